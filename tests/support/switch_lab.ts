/**
 * A node whose clients connect without end, over TCP and UDP and both IP families, while its proxy is ended, started, given another
 * configuration or another mode.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import type { ProxyMode } from "../../lib/config/types.ts";
import { type ApiJson, service, slice } from "../flows/objects.ts";
import { ConnectLoop, type LoopPace } from "./connect_loop.ts";
import { KproxyProcess } from "./kproxy_process.ts";
import { LabManifests } from "./lab_manifests.ts";
import type { LabHost } from "./lab_host.ts";
import type { ProbeProtocol } from "./lab_probe.ts";
import type { SocketAddress } from "./lab_sockets.ts";
import { NODE_ADDRESSES, NODE_OBJECT, NodeLab } from "./node_lab.ts";

/** How a proxy comes to be in the next state. */
export type SwitchWay =
  /** Ended by this signal, then a new process. */
  | "SIGTERM"
  | "SIGKILL"
  /** The configuration file changes, what the process takes as a new life. */
  | "reload"
  /** The configuration file changes in what a life goes on with. */
  | "live reload";

/** One step: into this mode, in this way. */
export interface Switch {
  readonly to: ProxyMode;
  readonly by: SwitchWay;
}

const [TCP, UDP] = [{ port: 80, nodePort: 30080, target: 8080 }, { port: 53, nodePort: 30053, target: 5353 }];
const CLUSTER_IPS = ["10.96.0.1", "fd00:10:96::1"] as const;
/** Of each family; the last one serves nothing at first. */
const PODS = [
  ["10.244.0.11", "10.244.0.12", "10.244.0.13"],
  ["fd00:10:244::11", "fd00:10:244::12", "fd00:10:244::13"],
] as const;
const SERVICE: ApiJson = service("shop/web", {
  type: "NodePort",
  clusterIP: CLUSTER_IPS[0],
  clusterIPs: CLUSTER_IPS,
  ipFamilies: ["IPv4", "IPv6"],
  ports: [`http:${TCP.port}:${TCP.nodePort}`, `dns:${UDP.port}:${UDP.nodePort}/UDP`],
});
/** Of a request over a connection that is held; enough for several packets to be sent again. */
const KEPT_LIMIT_MS = 30_000;
/** How often is looked for who still answers. */
const LATE_ROUNDS = 20;
const FIRST_SYNC = "First sync done, Services are served";
const ANEW = "Configuration changed, starting anew with it";
const LIVE = "Configuration changed, in force now";

/**
 * Servers close first here and remember both ends for a minute (TIME_WAIT). A SYN between the same ends is a new connection to them if its
 * timestamp is later, which it always is from one client. Masquerading gives different clients the same address, whose timestamps begin
 * anywhere; that none gets a port which another one had a moment ago is what tracked connections are for. They are forgotten when a client
 * uses its port again, and all at once, ended ones too, when IPVS loses a virtual server. Then an unlucky SYN is answered with an old
 * acknowledgement and sent again after two ticks (docs/operations.md). No packet is lost by it and no proxy can help it, but the loops
 * cannot tell. So all clients have the same clock here.
 */
const SAME_CLOCK = "net.ipv4.tcp_timestamps=2";

/** Who connects to what: each from a namespace of its own, because an agent runs one loop. */
const CLIENTS: readonly (readonly [ip: string, at: string, protocol: ProbeProtocol, to: SocketAddress])[] = [
  ["10.244.0.5", "cni0", "tcp", { ip: CLUSTER_IPS[0], port: TCP.port }],
  ["10.244.0.6", "cni0", "udp", { ip: CLUSTER_IPS[0], port: UDP.port }],
  ["fd00:10:244::5", "cni0", "tcp", { ip: CLUSTER_IPS[1], port: TCP.port }],
  ["fd00:10:244::6", "cni0", "udp", { ip: CLUSTER_IPS[1], port: UDP.port }],
  ["198.51.100.9", "eth0", "tcp", { ip: NODE_ADDRESSES.eth0[0], port: TCP.nodePort }],
  ["198.51.100.10", "eth0", "udp", { ip: NODE_ADDRESSES.eth0[0], port: UDP.nodePort }],
];

function slices(absent: number): ApiJson[] {
  return PODS.map((pods, i) => {
    const ports = [`http:${TCP.target}`, `dns:${UDP.target}/UDP`];
    return slice(`shop/web.${i}`, ports, pods.filter((_, pod) => pod !== absent).map((ip) => `${ip}@node-a`));
  });
}

/** The node, its clients and its kproxy. */
class SwitchLab implements AsyncDisposable {
  readonly #lab: NodeLab;
  readonly #manifests: LabManifests;
  readonly #folder: string;
  readonly #loops: ConnectLoop[] = [];
  /** Who holds a connection, to what, and the server at its other end. */
  readonly #kept: { readonly host: LabHost; readonly to: SocketAddress; server: string }[] = [];
  #mode: ProxyMode | undefined;
  #kproxy: KproxyProcess | undefined;
  #masqueradeAll = false;
  #verbosity = 2;
  #absent = 2;
  readonly #pace: LoopPace | undefined;

  private constructor(lab: NodeLab, manifests: LabManifests, folder: string, pace: LoopPace | undefined) {
    this.#pace = pace;
    this.#lab = lab;
    this.#manifests = manifests;
    this.#folder = folder;
  }

  /** Builds the node, starts kproxy in this mode, then the loops, at their usual pace unless said. */
  static async create(mode: ProxyMode, pace?: LoopPace): Promise<SwitchLab> {
    const folder = await Deno.makeTempDir({ prefix: "kproxy-config-" });
    const lab = new SwitchLab(await NodeLab.create(), await LabManifests.create(), folder, pace);
    try {
      await lab.#begin(mode);
      return lab;
    } catch (error) {
      await lab[Symbol.asyncDispose]();
      throw error;
    }
  }

  /**
   * Makes the switch and then sees to it that the proxy is in this mode, has the Service's endpoints follow a change, that up to now
   * every single connection was answered in time, and that those from before the switch are still there.
   */
  async make({ to, by }: Switch): Promise<void> {
    // What answers to a datagram leaves by the way that it came by, which is forgotten when kproxy's own ports give way to endpoints.
    const forgetsFlows = this.#mode !== to && [this.#mode, to].includes("userspace");
    await this.#resting(forgetsFlows, () => this.#switch({ to, by }));
    assertEquals(await this.#proxyMode(), to);
    await this.#answered(40);
    await this.#askKept("after the switch");
    await this.#change();
    await this.#askKept("after a change of the endpoints");
    await this.#unbroken();
  }

  async #switch({ to, by }: Switch): Promise<void> {
    const from = this.#process.lines.length;
    // When IPVS goes, the connections through it do (docs/operations.md).
    if (this.#mode === "ipvs" && to !== "ipvs") await this.#dropKept();
    this.#mode = to;
    if (by === "SIGTERM" || by === "SIGKILL") {
      const { code } = await this.#process.stop(by);
      assertEquals(code, by === "SIGTERM" ? 0 : 137);
      await this.#answered(20);
      await this.#configure(to);
      await this.#start();
    } else if (by === "reload") {
      this.#masqueradeAll = !this.#masqueradeAll;
      await this.#configure(to);
      await this.#process.until("its next life", (lines) => {
        const begin = lines.findIndex(({ msg }) => msg === ANEW);
        return begin >= 0 && lines.slice(begin).filter(({ msg }) => msg === FIRST_SYNC).length === 2;
      }, from);
    } else {
      this.#verbosity = 5 - this.#verbosity;
      await this.#configure(to);
      await this.#process.untilMessage(LIVE, from);
    }
  }

  /** No datagram is on its way while the work is done, if so. */
  async #resting(isSo: boolean, work: () => Promise<void>): Promise<void> {
    const resting = this.#loops.filter((_, i) => isSo && CLIENTS[i]![2] === "udp");
    await resting.reduce((work, loop) => () => loop.resting(work), work)();
  }

  /** Ends the loops; fails unless each connection was answered in time and there were enough of them. */
  async end(): Promise<void> {
    for (const loop of this.#loops.splice(0)) await loop.stopUnbroken();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#kproxy?.[Symbol.asyncDispose]();
    await this.#lab[Symbol.asyncDispose]();
    await this.#manifests[Symbol.asyncDispose]();
    await Deno.remove(this.#folder, { recursive: true });
  }

  get #process(): KproxyProcess {
    if (this.#kproxy === undefined) throw new TypeError("kproxy is not started");
    return this.#kproxy;
  }

  async #begin(mode: ProxyMode): Promise<void> {
    for (const ip of PODS.flat()) {
      const host = await this.#lab.host(ip, "cni0");
      await host.call("serve", { protocol: "tcp", ip, port: TCP.target });
      await host.call("serve", { protocol: "udp", ip, port: UDP.target });
    }
    await this.#manifests.replace("node.json", [NODE_OBJECT]);
    await this.#manifests.replace("web.json", [SERVICE]);
    await this.#manifests.replace("endpoints.json", slices(this.#absent));
    this.#mode = mode;
    await this.#configure(mode);
    await this.#start();
    for (const [ip, at, protocol, to] of CLIENTS) {
      const host = await this.#lab.host(ip, at);
      if (this.#pace !== undefined) await host.netns.run(["sysctl", "-q", "-w", SAME_CLOCK]);
      this.#loops.push(await ConnectLoop.start(host, to, protocol, this.#pace));
      if (protocol === "tcp") this.#kept.push({ host, to, server: "" });
    }
    await this.#answered(20);
    await this.#askKept("first");
  }

  async #start(): Promise<void> {
    await this.#kproxy?.[Symbol.asyncDispose]();
    this.#kproxy = await KproxyProcess.start({
      netns: this.#lab.node.netns,
      verbosity: null,
      args: [
        `--config=${this.#folder}/config.yaml`,
        "--hostname-override=node-a",
        `--manifests=${this.#manifests.folder}`,
      ],
    });
  }

  async #configure(mode: ProxyMode): Promise<void> {
    const periods = { masqueradeAll: this.#masqueradeAll, minSyncPeriod: "0s" };
    const config = {
      apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
      kind: "KubeProxyConfiguration",
      mode,
      clusterCIDR: "10.244.0.0/16,fd00:10:244::/56",
      iptables: periods,
      nftables: periods,
      ipvs: { minSyncPeriod: "0s" },
      // Answers of this lab may take long while others use the processors. Each client is one more socket for as long.
      ...mode === "userspace" ? { udpIdleTimeout: "5s" } : {},
      logging: { verbosity: this.#verbosity },
    };
    await Deno.writeTextFile(`${this.#folder}/config.yaml`, JSON.stringify(config));
  }

  async #proxyMode(): Promise<string> {
    const curl = ["curl", "-s", "--max-time", "30", "--noproxy", "*", "http://127.0.0.1:10249/proxyMode"];
    return await this.#lab.node.netns.run(curl);
  }

  async #dropKept(): Promise<void> {
    for (const kept of this.#kept) {
      await kept.host.call("dropKept");
      kept.server = "";
    }
  }

  /** Asks over the connections that are held, made now where there is none: each leads to the server that it always led to. */
  async #askKept(when: string): Promise<void> {
    for (const kept of this.#kept) {
      const result = await kept.host.call("askKept", { to: kept.to, timeoutMs: KEPT_LIMIT_MS });
      const server = result.kind === "answer" ? result.answer.server : JSON.stringify(result);
      if (kept.server === "" && result.kind === "answer") kept.server = server;
      assertEquals(
        server,
        kept.server,
        `a held connection to ${kept.to.ip} ${kept.to.port} ${when}\n${this.#timeline()}`,
      );
    }
  }

  /** Takes another pod out of the Service and waits until no connection is answered by it any more. */
  async #change(): Promise<void> {
    this.#absent = (this.#absent + 1) % 3;
    const edit = (): Promise<void> => this.#manifests.replace("endpoints.json", slices(this.#absent));
    const changed = async (): Promise<void> => {
      await this.#process.change(edit, "shop/web", 2);
    };
    // An endpoint that leaves takes the datagrams along that are on their way from it, whatever the mode; where answers take long
    // there would be some, unless kproxy itself has them in its hands. Connections end by themselves.
    await this.#resting(this.#pace !== undefined && this.#mode !== "userspace", changed);
    // Those under way were sent before.
    for (const loop of this.#loops) await loop.resting(() => Promise.resolve());
    const gone = PODS.map((pods) => pods[this.#absent]);
    // UDP flows are forgotten after the sync: where everything is slow, it may take another round until the last one is.
    for (let rounds = LATE_ROUNDS;; rounds--) {
      const { answering, known } = await this.#answering();
      const late = answering.filter((server) =>
        gone.some((ip) => server.startsWith(`${ip}:`) || server.startsWith(`[${ip}]:`))
      );
      if (late.length > 0 && rounds > 1) continue;
      assertEquals(late, [], "no endpoints, but answer");
      assert(known.length >= 8, `only ${known.join(" ")} answer`);
      return;
    }
  }

  /** Who answers now, and who ever did. */
  async #answering(): Promise<{ readonly answering: readonly string[]; readonly known: readonly string[] }> {
    const before = await this.#answers();
    await this.#answered(30);
    const after = await this.#answers();
    const known = [...after.keys()];
    return { answering: known.filter((server) => after.get(server) !== before.get(server)), known };
  }

  async #answers(): Promise<Map<string, number>> {
    const counts = new Map<string, number>();
    for (const { byServer } of await Promise.all(this.#loops.map((loop) => loop.report()))) {
      for (const [server, count] of Object.entries(byServer)) {
        counts.set(server, (counts.get(server) ?? 0) + count);
      }
    }
    return counts;
  }

  async #answered(count: number): Promise<void> {
    await Promise.all(this.#loops.map((loop) => loop.answered(count)));
  }

  async #unbroken(): Promise<void> {
    const broken: string[] = [];
    for (const [i, loop] of this.#loops.entries()) {
      const { failures, requests } = await loop.report();
      const [, , protocol, to] = CLIENTS[i]!;
      if (failures.length === 0) continue;
      broken.push(`${failures.length} of ${requests}, ${protocol} to ${to.ip} ${to.port}:`, ...failures);
    }
    assertEquals(broken, [], `${broken.join("\n")}\n${this.#timeline()}`);
  }

  /** What kproxy did, in the clock of the failures. */
  #timeline(): string {
    return this.#process.lines.map(({ ts, msg, ...rest }) => {
      const clock = typeof ts === "number" ? new Date(ts).toISOString().slice(11, -1) : "";
      return `${clock} ${msg} ${JSON.stringify(rest)}`;
    }).join("\n");
  }
}

/** Makes the switches one after the other, under loops that nothing may break. */
export async function walk(
  t: Deno.TestContext,
  from: ProxyMode,
  switches: readonly Switch[],
  pace?: LoopPace,
): Promise<void> {
  await using lab = await SwitchLab.create(from, pace);
  for (const step of switches) {
    // What comes after a failed step begins elsewhere than it says.
    assert(await t.step(`to ${step.to} by ${step.by}`, () => lab.make(step)), `by ${step.by}`);
  }
  await lab.end();
}

/** There by a kill and a start, and back by the configuration file. */
export function thereAndBack(from: ProxyMode, to: ProxyMode): Switch[] {
  return [{ to, by: "SIGKILL" }, { to: from, by: "reload" }, { to, by: "reload" }, {
    to: from,
    by: "SIGKILL",
  }];
}

/** Everything that may happen to a proxy that stays in its mode. */
export function within(mode: ProxyMode): Switch[] {
  return (["SIGTERM", "SIGKILL", "live reload", "reload"] as const).map((by) => ({ to: mode, by }));
}
