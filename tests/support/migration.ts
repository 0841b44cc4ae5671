/**
 * A node that goes from kube-proxy to kproxy and back, as in docs/migrate.md: kube-proxy's recorded rules, the cleanup command after the
 * way back, Services that are created and deleted while no proxy runs, and leftovers at the end.
 *
 * @module
 */
import { assertEquals, assertNotEquals } from "@std/assert";
import type { ProxyMode } from "../../lib/config/types.ts";
import { kproxy as runKproxy } from "../cli/kproxy.ts";
import { type ApiJson, service, slice } from "../flows/objects.ts";
import { KubeProxy, type KubeProxyMode, type RecordedState } from "./kube_proxy/kube_proxy.ts";
import { ProxyApi, withoutMarker } from "./kube_proxy/proxy_api.ts";
import { kubeProxyProgram, RealKubeProxy } from "./kube_proxy/real_kube_proxy.ts";
import { inComparableOrder, saveTables } from "./lab_rules.ts";
import { type Netns, withNetns } from "./netns.ts";
import { NODE_ADDRESSES, NODE_OBJECT, type NodeLab } from "./node_lab.ts";
import { rawServiceCidr } from "./raw_objects.ts";
import { type ServiceTraffic, TRAFFIC_SERVICE } from "./service_traffic.ts";
import { eventually } from "./until.ts";

/** Cleanup flags to run once kube-proxy serves, by kproxy's former mode and kube-proxy's mode. */
const AFTERWARDS: Readonly<Record<string, readonly string[]>> = {
  "nftables nftables": ["--of=kproxy"],
  "nftables iptables": ["--of=kproxy"],
  "iptables ipvs": ["--only=iptables"],
  "ipvs iptables": ["--only=ipvs"],
};

const TARGET_PORT = TRAFFIC_SERVICE.ports.tcp.target;
/** A Service that is deleted while no proxy runs. It has rules of every kind. */
const GONE = {
  name: "shop/gone",
  clusterIp: "10.96.0.99",
  port: 80,
  pods: ["10.244.0.11"],
  affinitySeconds: 600,
  loadBalancer: { ip: "203.0.113.50", sourceRanges: ["198.51.100.0/24"] },
} as const;
/** A Service that gets its endpoint while no proxy runs. */
const LATE = {
  name: "shop/late",
  clusterIp: "10.96.0.98",
  port: 80,
  nodePort: 30098,
  pods: ["10.244.0.12"],
} as const;

/** A Service with session affinity. */
const STICKY = {
  name: "shop/sticky",
  clusterIp: "10.96.0.97",
  port: 80,
  pods: ["10.244.0.11", "10.244.0.12", "10.244.0.13"],
  affinitySeconds: 10_800,
} as const;

/** Networks of pods. */
export const CLUSTER_CIDR = "10.244.0.0/16,fd00:10:244::/56";
const SERVICE_CIDRS = ["10.96.0.0/16", "fd00:10:96::/112"] as const;

/** Wait for another proxy's leftovers, which may take time to go. A check starts many programs. */
const GONE_PATIENCE = { everyMs: 250, limitMs: 300_000 };
const ANSWER_LIMIT_MS = 10_000;
/** Limit of requests that must not be answered. */
const SILENCE_LIMIT_MS = 1_000;

/** kube-proxy's configuration for the takeover. */
export function takeoverFields(mode: KubeProxyMode): Readonly<Record<string, unknown>> {
  const periods = { minSyncPeriod: "1ms" };
  return { mode, clusterCIDR: CLUSTER_CIDR, iptables: periods, nftables: periods, ipvs: periods };
}

/** kube-proxy on a node, and the steps by which it and kproxy take turns. */
export class Migration implements AsyncDisposable {
  readonly #lab: NodeLab;
  readonly #traffic: ServiceTraffic;
  /** kube-proxy's recorded rules for the same Services, if the program is missing. */
  #kubeProxy: KubeProxy | undefined;
  /** The real kube-proxy, and its API server. */
  #real: RealKubeProxy | undefined;
  #api: ProxyApi | undefined;
  /** True before the other proxy takes over. */
  #isBefore = false;
  /** Servers that answered each client of the Service with affinity before. */
  #sticksTo: readonly (string | undefined)[] = [];

  constructor(lab: NodeLab, traffic: ServiceTraffic) {
    this.#lab = lab;
    this.#traffic = traffic;
  }

  /** Services of the migration, beside those of the traffic. */
  get services(): readonly ApiJson[] {
    return servicesIn(this.#state);
  }

  /** Slices of these Services. */
  get slices(): readonly ApiJson[] {
    return slicesIn(this.#state);
  }

  /** Makes a proxy that is about to end serve the Service that will be deleted, and the other without endpoints. */
  async changeBefore(report: (service: string, families: number) => Promise<void>): Promise<void> {
    this.#isBefore = true;
    await report(GONE.name, 1);
    this.#sticksTo = await this.#askSticky();
  }

  /** Ends kube-proxy, if it ran; then changes Services while no proxy runs. */
  async changeBetween(): Promise<void> {
    await this.#real?.stop("SIGKILL");
    this.#isBefore = false;
    [this.#kubeProxy, this.#real] = [undefined, undefined];
  }

  /** Starts kube-proxy and then, if kproxy ran before in mode `from`, runs the cleanup of the way back. */
  async startKubeProxy(mode: KubeProxyMode, from: ProxyMode | undefined): Promise<void> {
    const { netns } = this.#lab.node;
    const program = kubeProxyProgram();
    if (program === undefined) {
      this.#kubeProxy = new KubeProxy(netns, mode);
      await this.#kubeProxy.start(this.#state);
    } else {
      this.#api ??= await ProxyApi.open([netns]);
      this.#api.replace(this.#objects);
      this.#real = await RealKubeProxy.start(program, {
        netns,
        api: this.#api,
        fields: takeoverFields(mode),
      });
      await this.#api.inForce(netns, mode);
    }
    if (from === undefined) return;
    const flags = AFTERWARDS[`${from} ${mode}`];
    if (flags === undefined) return assertEquals(from, mode, "there is no such way back");
    const { code, out, err } = await runKproxy(["cleanup", ...flags], { netns: netns.name });
    assertEquals(code, 0, out + err);
  }

  /** Makes kube-proxy, in this mode, apply a change. */
  async syncKubeProxy(mode: string): Promise<void> {
    await this.#kubeProxy?.sync(this.#state);
    if (this.#real === undefined) return;
    this.#api?.replace(this.#objects);
    await this.#api?.inForce(this.#lab.node.netns, mode);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#real?.[Symbol.asyncDispose]();
    await this.#api?.[Symbol.asyncDispose]();
  }

  /** Asserts that the node has exactly the rules that the current proxy writes on an empty node. */
  async assertTakenOver(
    mode: KubeProxyMode,
    { by, from }: { readonly by: "kube-proxy" | "kproxy"; readonly from: ProxyMode | undefined },
  ): Promise<void> {
    const clean = await withNetns(async (netns) => {
      // In mode nftables kube-proxy's own table is not compared.
      if (mode !== "nftables") await new KubeProxy(netns, mode).start(this.#state);
      return await holdings(netns, mode, by);
    });
    const table = by === "kproxy" ? "kproxy" : "kube-proxy";
    const tables = mode === "nftables" ? [`table ip ${table}`, `table ip6 ${table}`] : [];
    const { netns } = this.#lab.node;
    await eventually(async () => {
      assertEquals(await proxyTables(netns), tables);
      assertEquals(await holdings(netns, mode, by), clean, `${by} in mode ${mode}`);
    }, GONE_PATIENCE);
    await this.#assertAnswers();
    // Affinity is stored in the kernel, under names that both proxies use; in mode nftables in a proxy's own table.
    if (from === mode && mode !== "nftables") {
      assertEquals(await this.#askSticky(), this.#sticksTo, "affinity");
    }
  }

  async #askSticky(): Promise<readonly (string | undefined)[]> {
    const pods = await Promise.all(["10.244.0.5", "10.244.0.6"].map((ip) => this.#lab.host(ip, "cni0")));
    const to = { ip: STICKY.clusterIp, port: STICKY.port };
    const results = await Promise.all(
      [...pods, this.#lab.node].map((host) =>
        host.probe({ protocol: "tcp", to, timeoutMs: ANSWER_LIMIT_MS })
      ),
    );
    return results.map(([result]) => result?.kind === "answer" ? result.answer.server : result?.kind);
  }

  async #assertAnswers(): Promise<void> {
    const pod = await this.#lab.host("10.244.0.5", "cni0");
    const outside = await this.#lab.host("198.51.100.9", "eth0");
    const ask = async (host: typeof pod, ip: string, port: number, timeoutMs = ANSWER_LIMIT_MS) => {
      const [result] = await host.probe({ protocol: "tcp", to: { ip, port }, timeoutMs });
      return result?.kind;
    };
    assertNotEquals(
      await ask(pod, GONE.clusterIp, GONE.port, SILENCE_LIMIT_MS),
      "answer",
      "a Service that is gone",
    );
    assertNotEquals(
      await ask(outside, GONE.loadBalancer.ip, GONE.port, SILENCE_LIMIT_MS),
      "answer",
      "a Service that is gone",
    );
    const late = [
      await ask(pod, LATE.clusterIp, LATE.port),
      await ask(this.#lab.node, LATE.clusterIp, LATE.port),
      await ask(outside, NODE_ADDRESSES.eth0[0], LATE.nodePort),
    ];
    assertEquals(
      late,
      ["answer", "answer", "answer"],
      "to a pod, the node, a client outside; by a Service that had no endpoints",
    );
  }

  get #state(): RecordedState {
    return this.#isBefore ? "before" : "after";
  }

  /** All objects of the cluster, for kube-proxy. */
  get #objects(): readonly ApiJson[] {
    return clusterObjects(this.#traffic, this.#state);
  }
}

/** All objects of the cluster in this state, for kube-proxy. */
export function clusterObjects(traffic: ServiceTraffic, state: RecordedState): readonly ApiJson[] {
  const cidrs = rawServiceCidr("kubernetes", [...SERVICE_CIDRS]) as unknown as ApiJson;
  return [
    NODE_OBJECT,
    cidrs,
    ...traffic.services,
    ...servicesIn(state),
    ...traffic.slices,
    ...slicesIn(state),
  ];
}

function servicesIn(state: RecordedState): readonly ApiJson[] {
  const late = service(LATE.name, {
    type: "NodePort",
    clusterIP: LATE.clusterIp,
    ports: [`http:${LATE.port}:${LATE.nodePort}`],
  });
  const sticky = service(STICKY.name, {
    clusterIP: STICKY.clusterIp,
    ports: [`http:${STICKY.port}`],
    ...affinity(STICKY.affinitySeconds),
  });
  const gone = service(GONE.name, {
    type: "LoadBalancer",
    clusterIP: GONE.clusterIp,
    ports: [`http:${GONE.port}`],
    ingress: [{ ip: GONE.loadBalancer.ip }],
    loadBalancerSourceRanges: [...GONE.loadBalancer.sourceRanges],
    ...affinity(GONE.affinitySeconds),
  });
  return state === "before" ? [late, sticky, gone] : [late, sticky];
}

function slicesIn(state: RecordedState): readonly ApiJson[] {
  return [STICKY, state === "before" ? GONE : LATE].map(({ name, pods }) =>
    slice(`${name}.1`, [`http:${TARGET_PORT}`], pods.map((ip) => `${ip}@node-a`))
  );
}

function affinity(timeoutSeconds: number) {
  return { sessionAffinity: "ClientIP", sessionAffinityConfig: { clientIP: { timeoutSeconds } } } as const;
}

/** Tables of either proxy. */
async function proxyTables(netns: Netns): Promise<string[]> {
  // A kernel without nftables has no tables.
  const { stdout } = await netns.exec.run(["nft", "list", "tables"]);
  return stdout.split("\n").filter((line) => /k(?:ube-)?proxy/.test(line)).sort();
}

/** All rules of modes iptables and ipvs, in a comparable order. */
async function holdings(netns: Netns, mode: KubeProxyMode, by: "kube-proxy" | "kproxy"): Promise<string[]> {
  const held: string[] = [];
  for (const tool of ["iptables", "ip6tables"]) {
    for (const [table, lines] of await saveTables(netns, tool)) {
      const saved = withoutMarker(lines).filter((line) => /^(?::|-A).*KUBE-/.test(line));
      // In mode nftables each proxy leaves kubelet's chain unchanged.
      const counted = mode === "nftables" ? saved.filter((line) => !line.includes("KUBE-FIREWALL")) : saved;
      const chains = counted.filter((line) => line.startsWith(":"));
      const isJump = (line: string): boolean =>
        /^-A (?:INPUT|OUTPUT|FORWARD|PREROUTING|POSTROUTING) /.test(line);
      const jumps = counted.filter(isJump);
      // kube-proxy inserts missing jumps at the top of their chain, whatever the other rules are.
      if (by === "kube-proxy") jumps.sort();
      const rules = counted.filter((line) => line.startsWith("-A") && !isJump(line));
      held.push(
        ...[
          ...chains.sort(),
          ...jumps,
          ...inComparableOrder(rules, mode === "ipvs" ? "ipvs" : "iptables", true),
        ].map((line) => `${tool} ${table} ${line}`),
      );
    }
  }
  if (mode === "ipvs") held.push(...await servers(netns));
  const entries = (await netns.run(["ipset", "save"])).split("\n");
  held.push(...withoutMarker(entries).filter((line) => line.startsWith("add ")).sort());
  return held;
}

/** Virtual and real servers, except drained ones. */
async function servers(netns: Netns): Promise<string[]> {
  const text = await netns.run(["ipvsadm", "-Sn"]);
  const lines = text.split("\n").map((line) => line.trim());
  return withoutMarker(lines).filter((line) => line !== "" && !line.endsWith(" -w 0")).sort();
}
