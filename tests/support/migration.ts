/**
 * A node that goes from kube-proxy to kproxy and back, as docs/migrate.md has it: kube-proxy's recorded rules, the command after the way
 * back, Services that come and go while no proxy runs, and what may be left in the end.
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

/** What is run on the node once kube-proxy serves, by the modes of kproxy before and of kube-proxy now. */
const AFTERWARDS: Readonly<Record<string, readonly string[]>> = {
  "nftables nftables": ["--of=kproxy"],
  "nftables iptables": ["--of=kproxy"],
  "iptables ipvs": ["--only=iptables"],
  "ipvs iptables": ["--only=ipvs"],
};

const TARGET_PORT = TRAFFIC_SERVICE.ports.tcp.target;
/** Is deleted while no proxy runs. It has rules of every kind. */
const GONE = {
  name: "shop/gone",
  clusterIp: "10.96.0.99",
  port: 80,
  pods: ["10.244.0.11"],
  affinitySeconds: 600,
  loadBalancer: { ip: "203.0.113.50", sourceRanges: ["198.51.100.0/24"] },
} as const;
/** Gets its endpoint while no proxy runs. */
const LATE = {
  name: "shop/late",
  clusterIp: "10.96.0.98",
  port: 80,
  nodePort: 30098,
  pods: ["10.244.0.12"],
} as const;

/** Its clients stay with their endpoints. */
const STICKY = {
  name: "shop/sticky",
  clusterIp: "10.96.0.97",
  port: 80,
  pods: ["10.244.0.11", "10.244.0.12", "10.244.0.13"],
  affinitySeconds: 10_800,
} as const;

/** Where pods are. */
export const CLUSTER_CIDR = "10.244.0.0/16,fd00:10:244::/56";
const SERVICE_CIDRS = ["10.96.0.0/16", "fd00:10:96::/112"] as const;

/** Of what another proxy left, which may take its time to go. A look starts many programs. */
const GONE_PATIENCE = { everyMs: 250, limitMs: 300_000 };
const ANSWER_LIMIT_MS = 10_000;
/** Of requests that must not be answered. */
const SILENCE_LIMIT_MS = 1_000;

/** What kube-proxy's configuration says there. */
export function takeoverFields(mode: KubeProxyMode): Readonly<Record<string, unknown>> {
  const periods = { minSyncPeriod: "1ms" };
  return { mode, clusterCIDR: CLUSTER_CIDR, iptables: periods, nftables: periods, ipvs: periods };
}

/** The other proxy of a node, and what the two of them are asked to do in turn. */
export class Migration implements AsyncDisposable {
  readonly #lab: NodeLab;
  readonly #traffic: ServiceTraffic;
  /** What it wrote for the same Services, where there is no program. */
  #kubeProxy: KubeProxy | undefined;
  /** The program itself, and what it asks. */
  #real: RealKubeProxy | undefined;
  #api: ProxyApi | undefined;
  /** Before the other proxy comes. */
  #isBefore = false;
  /** Who answered each client of the Service with affinity before. */
  #sticksTo: readonly (string | undefined)[] = [];

  constructor(lab: NodeLab, traffic: ServiceTraffic) {
    this.#lab = lab;
    this.#traffic = traffic;
  }

  /** Services beside those of the traffic. */
  get services(): readonly ApiJson[] {
    return servicesIn(this.#state);
  }

  /** Their slices. */
  get slices(): readonly ApiJson[] {
    return slicesIn(this.#state);
  }

  /** Has a proxy, whose end is near, serve the Service that will be gone, and know no endpoint of the other one. */
  async changeBefore(report: (service: string, families: number) => Promise<void>): Promise<void> {
    this.#isBefore = true;
    await report(GONE.name, 1);
    this.#sticksTo = await this.#askSticky();
  }

  /** kube-proxy ends, if it was there; then the Services change while no proxy runs. */
  async changeBetween(): Promise<void> {
    await this.#real?.stop("SIGKILL");
    this.#isBefore = false;
    [this.#kubeProxy, this.#real] = [undefined, undefined];
  }

  /** Starts kube-proxy and then, if kproxy was there in mode `from`, does the rest of the way back. */
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

  /** Has kube-proxy, which is in this mode, follow a change. */
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

  /** Nothing is in force but what the proxy of now writes on a node where it is the first one. */
  async assertTakenOver(
    mode: KubeProxyMode,
    { by, from }: { readonly by: "kube-proxy" | "kproxy"; readonly from: ProxyMode | undefined },
  ): Promise<void> {
    const clean = await withNetns(async (netns) => {
      // In mode nftables nothing of its own is in what is looked at.
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
    // Who knows the clients: the kernel, under names that both proxies use; in mode nftables each proxy's own table.
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

  /** All objects of the cluster, as kube-proxy gets them. */
  get #objects(): readonly ApiJson[] {
    return clusterObjects(this.#traffic, this.#state);
  }
}

/** All objects of the cluster in this state, as kube-proxy gets them. */
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

/** Tables that one of the two proxies made. */
async function proxyTables(netns: Netns): Promise<string[]> {
  // A kernel without tables has none.
  const { stdout } = await netns.exec.run(["nft", "list", "tables"]);
  return stdout.split("\n").filter((line) => /k(?:ube-)?proxy/.test(line)).sort();
}

/** All that there is of modes iptables and ipvs, in an order in which it can be compared. */
async function holdings(netns: Netns, mode: KubeProxyMode, by: "kube-proxy" | "kproxy"): Promise<string[]> {
  const held: string[] = [];
  for (const tool of ["iptables", "ip6tables"]) {
    for (const [table, lines] of await saveTables(netns, tool)) {
      const saved = withoutMarker(lines).filter((line) => /^(?::|-A).*KUBE-/.test(line));
      // In mode nftables each proxy leaves kubelet's chain as it finds it.
      const counted = mode === "nftables" ? saved.filter((line) => !line.includes("KUBE-FIREWALL")) : saved;
      const chains = counted.filter((line) => line.startsWith(":"));
      const isJump = (line: string): boolean =>
        /^-A (?:INPUT|OUTPUT|FORWARD|PREROUTING|POSTROUTING) /.test(line);
      const jumps = counted.filter(isJump);
      // Of jumps that are missing kube-proxy makes the first ones of their chain, whatever stands there.
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

/** Virtual and real servers, but for those that leave with the last of their connections. */
async function servers(netns: Netns): Promise<string[]> {
  const text = await netns.run(["ipvsadm", "-Sn"]);
  const lines = text.split("\n").map((line) => line.trim());
  return withoutMarker(lines).filter((line) => line !== "" && !line.endsWith(" -w 0")).sort();
}
