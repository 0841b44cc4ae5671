/**
 * Clients that connect continuously to a Service of a node, over TCP, UDP and both IP families, and connections they keep.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { type ApiJson, service, slice } from "../flows/objects.ts";
import { ConnectLoop, type LoopPace } from "./connect_loop.ts";
import type { LabHost } from "./lab_host.ts";
import type { ProbeProtocol } from "./lab_probe.ts";
import type { SocketAddress } from "./lab_sockets.ts";
import { NODE_ADDRESSES, type NodeLab } from "./node_lab.ts";

const PORTS = {
  tcp: { name: "http", port: 80, nodePort: 30080, target: 8080 },
  udp: { name: "dns", port: 53, nodePort: 30053, target: 5353 },
} as const;
const CLUSTER_IPS = ["10.96.0.1", "fd00:10:96::1"] as const;
/** Pods by family; one is not an endpoint. All of them answer every client. */
const PODS = [
  ["10.244.0.11", "10.244.0.12", "10.244.0.13"],
  ["fd00:10:244::11", "fd00:10:244::12", "fd00:10:244::13"],
] as const;

/** The Service that clients use. */
export const TRAFFIC_SERVICE = { name: "shop/web", clusterIps: CLUSTER_IPS, ports: PORTS } as const;
const SERVICE: ApiJson = service(TRAFFIC_SERVICE.name, {
  type: "NodePort",
  clusterIP: CLUSTER_IPS[0],
  clusterIPs: CLUSTER_IPS,
  ipFamilies: ["IPv4", "IPv6"],
  ports: [
    `${PORTS.tcp.name}:${PORTS.tcp.port}:${PORTS.tcp.nodePort}`,
    `${PORTS.udp.name}:${PORTS.udp.port}:${PORTS.udp.nodePort}/UDP`,
  ],
});
/** The pod that was no endpoint when kube-proxy's rules for this Service were recorded. */
const RECORDED_ABSENT = 2;
/** Limit of a request over a kept connection; enough for several retransmissions. */
const KEPT_LIMIT_MS = 30_000;
/** Rounds of checks for endpoints that still answer. */
const LATE_ROUNDS = 20;

/**
 * Servers close first here and remember both ends for a minute (TIME_WAIT). To them a SYN between the same ends is a new connection if its
 * timestamp is later, as always from one client. Masquerading gives different clients the same address, but their timestamps start
 * anywhere; tracked connections keep one client from getting a port that another one just had. They are dropped when a client
 * reuses its port, and all at once, ended ones too, when IPVS loses a virtual server. Then an unlucky SYN is answered with an old
 * ACK and sent again after two ticks (docs/operations.md). No packet is lost and no proxy can prevent it, but the loops
 * cannot tell. So all clients have the same timestamp clock here.
 */
const SAME_CLOCK = "net.ipv4.tcp_timestamps=2";

/** Clients and destinations: each client has a namespace of its own, because an agent runs one loop. */
const CLIENTS: readonly (readonly [ip: string, at: string, protocol: ProbeProtocol, to: SocketAddress])[] = [
  ["10.244.0.5", "cni0", "tcp", { ip: CLUSTER_IPS[0], port: PORTS.tcp.port }],
  ["10.244.0.6", "cni0", "udp", { ip: CLUSTER_IPS[0], port: PORTS.udp.port }],
  ["fd00:10:244::5", "cni0", "tcp", { ip: CLUSTER_IPS[1], port: PORTS.tcp.port }],
  ["fd00:10:244::6", "cni0", "udp", { ip: CLUSTER_IPS[1], port: PORTS.udp.port }],
  ["198.51.100.9", "eth0", "tcp", { ip: NODE_ADDRESSES.eth0[0], port: PORTS.tcp.nodePort }],
  ["198.51.100.10", "eth0", "udp", { ip: NODE_ADDRESSES.eth0[0], port: PORTS.udp.nodePort }],
];

/** The clients, and the Service's pods. */
export class ServiceTraffic {
  readonly #lab: NodeLab;
  readonly #pace: LoopPace | undefined;
  readonly #loops: ConnectLoop[] = [];
  /** Kept connections: client, destination, and the server at the other end. */
  readonly #kept: { readonly host: LabHost; readonly to: SocketAddress; server: string }[] = [];
  /** The pod that is no endpoint: one of two, in turn, so that one endpoint stays. */
  #absent: 0 | 2 = RECORDED_ABSENT;

  constructor(lab: NodeLab, pace: LoopPace | undefined) {
    this.#lab = lab;
    this.#pace = pace;
  }

  /** The Service object. */
  get services(): readonly ApiJson[] {
    return [SERVICE];
  }

  /** Current slices of the Service. */
  get slices(): readonly ApiJson[] {
    const ports = [`${PORTS.tcp.name}:${PORTS.tcp.target}`, `${PORTS.udp.name}:${PORTS.udp.target}/UDP`];
    return this.pods.map((pods, i) =>
      slice(`${TRAFFIC_SERVICE.name}.${i}`, ports, pods.map((ip) => `${ip}@node-a`))
    );
  }

  /** Current endpoint addresses, by family. */
  get pods(): readonly (readonly string[])[] {
    return PODS.map((pods) => pods.filter((_, pod) => pod !== this.#absent));
  }

  /** True if the endpoints are those of kube-proxy's recorded rules. */
  get isAsRecorded(): boolean {
    return this.#absent === RECORDED_ABSENT;
  }

  /** Starts servers in the pods. */
  async serve(): Promise<void> {
    for (const ip of PODS.flat()) {
      const host = await this.#lab.host(ip, "cni0");
      for (const protocol of ["tcp", "udp"] as const) {
        await host.call("serve", { protocol, ip, port: PORTS[protocol].target });
      }
    }
  }

  /** Starts the clients, once a proxy serves. */
  async start(): Promise<void> {
    for (const [ip, at, protocol, to] of CLIENTS) {
      const host = await this.#lab.host(ip, at);
      if (this.#pace !== undefined) await host.netns.run(["sysctl", "-q", "-w", SAME_CLOCK]);
      this.#loops.push(await ConnectLoop.start(host, to, protocol, this.#pace));
      if (protocol === "tcp") this.#kept.push({ host, to, server: "" });
    }
    await this.answered(20);
    await this.askKept("first", () => "");
  }

  /** Waits until each client has been answered this many times more. */
  async answered(count: number): Promise<void> {
    await Promise.all(this.#loops.map((loop) => loop.answered(count)));
  }

  /** Runs `work`, if `isSo` without datagrams under way. */
  async resting(isSo: boolean, work: () => Promise<void>): Promise<void> {
    const resting = this.#loops.filter((_, i) => isSo && CLIENTS[i]![2] === "udp");
    await resting.reduce((work, loop) => () => loop.resting(work), work)();
  }

  /** Ends the loops; fails unless each connection was answered in time and there were enough of them. */
  async end(): Promise<void> {
    for (const loop of this.#loops.splice(0)) await loop.stopUnbroken();
  }

  /** Closes the kept connections; the next request opens others. */
  async dropKept(): Promise<void> {
    for (const kept of this.#kept) {
      await kept.host.call("dropKept");
      kept.server = "";
    }
  }

  /**
   * Sends requests over the kept connections, opened on first use: each must reach the same server as before.
   *
   * @param timeline the proxy's log, by the clock of the failures
   */
  async askKept(when: string, timeline: () => string): Promise<void> {
    for (const kept of this.#kept) {
      const result = await kept.host.call("askKept", { to: kept.to, timeoutMs: KEPT_LIMIT_MS });
      const server = result.kind === "answer" ? result.answer.server : JSON.stringify(result);
      if (kept.server === "" && result.kind === "answer") kept.server = server;
      assertEquals(
        server,
        kept.server,
        `a held connection to ${kept.to.ip} ${kept.to.port} ${when}\n${timeline()}`,
      );
    }
  }

  /**
   * Replaces an endpoint of the Service, and waits until the former one answers no more connections.
   *
   * @param change makes the proxy apply the change
   * @param asksItself the proxy forwards datagrams itself
   */
  async change(change: () => Promise<void>, asksItself: boolean): Promise<void> {
    this.#absent = this.#absent === 2 ? 0 : 2;
    // With an endpoint, datagrams on their way from it are lost, in any mode; where answers take long
    // there would be some, except if kproxy itself forwards them. Connections end by themselves.
    await this.resting(this.#pace !== undefined && !asksItself, change);
    // Requests under way were sent before the change.
    for (const loop of this.#loops) await loop.resting(() => Promise.resolve());
    const gone = PODS.map((pods) => pods[this.#absent]);
    // UDP flows are dropped after the sync: on a slow machine the last one may need another round.
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

  /** Counters of all loops so far; the gap is the longest of any loop since the last call. */
  async figures(): Promise<{ connections: number; failed: number; longestGapMs: number }> {
    const reports = await Promise.all(this.#loops.map((loop) => loop.report()));
    const gaps = await Promise.all(this.#loops.map((loop) => loop.longestGap()));
    return {
      connections: reports.reduce((sum, { requests }) => sum + requests, 0),
      failed: reports.reduce((sum, { failures }) => sum + failures.length, 0),
      longestGapMs: Math.round(Math.max(...gaps)),
    };
  }

  /** Fails unless each connection so far was answered in time. */
  async unbroken(timeline: () => string): Promise<void> {
    const broken: string[] = [];
    for (const [i, loop] of this.#loops.entries()) {
      const { failures, requests } = await loop.report();
      const [, , protocol, to] = CLIENTS[i]!;
      if (failures.length === 0) continue;
      broken.push(`${failures.length} of ${requests}, ${protocol} to ${to.ip} ${to.port}:`, ...failures);
    }
    assertEquals(broken, [], `${broken.join("\n")}\n${timeline()}`);
  }

  /** Servers that answer now, and all that ever did. */
  async #answering(): Promise<{ readonly answering: readonly string[]; readonly known: readonly string[] }> {
    const before = await this.#answers();
    await this.answered(30);
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
}
