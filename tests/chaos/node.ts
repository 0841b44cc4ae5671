/**
 * The node of a chaos run: kproxy on it with its API server and its tools, clients that connect without end, and a twin that is started
 * afresh whenever a test needs to know what the rules should be.
 *
 * @module
 */
import { ConnectLoop } from "../support/connect_loop.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { LabGateway } from "../support/lab_gateway.ts";
import { LabManifests } from "../support/lab_manifests.ts";
import { ListWatchServer } from "../support/list_watch_server.ts";
import { createNetns, type Netns, removeNetns } from "../support/netns.ts";
import { NODE_ADDRESSES, NodeLab } from "../support/node_lab.ts";
import { liveOfKernel } from "../../lib/inspect/live/kernel_rules.ts";
import type { ApiJson } from "../flows/objects.ts";
import { ChaosCluster, IDLE, MOVING_IP, SERVING_PODS, STABLE_IPS, TCP, UDP } from "./cluster.ts";
import type { ChaosMode } from "./mode.ts";
import { brokenPromises, throughRules } from "./oracle.ts";
import { ChaosTools } from "./tools.ts";
import { type FailedConnection, Windows } from "./windows.ts";

/** How often kproxy looks after its rules here. */
const SYNC_PERIOD = "1s";
/** Files of the snapshot; the disk that it is on is that small. */
const DISK_BYTES = 262_144;
/** More programs than a fault makes misbehave. */
const MOST_STARTS = 6;
const LOCK_FILE = "/run/xtables.lock";
/** As `SAME_CLOCK` of tests/support/switch_lab.ts, which says why. */
const SAME_CLOCK = "net.ipv4.tcp_timestamps=2";

const CLIENTS = [
  ["10.244.0.5", "cni0", "tcp", { ip: STABLE_IPS[0], port: TCP.port }],
  ["10.244.0.6", "cni0", "udp", { ip: STABLE_IPS[0], port: UDP.port }],
  ["fd00:10:244::5", "cni0", "tcp", { ip: STABLE_IPS[1], port: TCP.port }],
  ["198.51.100.9", "eth0", "tcp", { ip: NODE_ADDRESSES.eth0[0], port: TCP.nodePort }],
  ["10.244.0.7", "cni0", "tcp", { ip: MOVING_IP, port: TCP.port }],
] as const;

/** What the clients have seen so far. */
export interface Traffic {
  readonly connections: number;
  readonly failed: readonly FailedConnection[];
}

/** With all variants: kproxy chooses. */
function wrapped({ tools }: ChaosMode): string[] {
  return [...new Set(tools)].flatMap((tool) => {
    const [family, action] = /^(ip6?tables)(.*)$/.exec(tool)?.slice(1) ?? [];
    return [tool, ...["-nft", "-legacy"].map((variant) => `${family}${variant}${action}`)];
  });
}

/** See the module; disposing of it removes everything. */
export class ChaosNode implements AsyncDisposable {
  readonly cluster = new ChaosCluster();
  readonly windows: Windows;
  readonly #stack: AsyncDisposableStack;
  readonly #loops: ConnectLoop[] = [];
  #kproxy: KproxyProcess | undefined;
  /** One of those who end and start kproxy at a time. */
  #turn: Promise<unknown> = Promise.resolve();
  #gateway: LabGateway | undefined;
  /** How often it was started, and how often a start ended because a program that it needs misbehaved. */
  starts = 0;
  failedStarts = 0;
  /** Ends without a request. */
  readonly unexpectedEnds: string[] = [];

  private constructor(
    readonly mode: ChaosMode,
    readonly lab: NodeLab,
    readonly api: ListWatchServer,
    readonly tools: ChaosTools,
    readonly folder: string,
    stack: AsyncDisposableStack,
  ) {
    this.windows = new Windows(mode.repairMs);
    this.#stack = stack;
  }

  /** Builds everything, starts kproxy and then the clients. */
  static async create(mode: ChaosMode): Promise<ChaosNode> {
    await using stack = new AsyncDisposableStack();
    // The process id tells the lab's guard whose it is.
    const folder = await Deno.makeTempDir({ prefix: `kproxy-manifests-${Deno.pid}-chaos-` });
    stack.defer(() => Deno.remove(folder, { recursive: true }));
    const lab = stack.use(await NodeLab.create());
    const api = stack.use(new ListWatchServer());
    const tools = await ChaosTools.create(`${folder}/tools`, wrapped(mode));
    await Deno.mkdir(`${folder}/disk`);
    await Deno.writeTextFile(`${folder}/lock`, "");
    const node = new ChaosNode(mode, lab, api, tools, folder, stack.move());
    try {
      await node.#begin();
      return node;
    } catch (error) {
      await node[Symbol.asyncDispose]();
      throw error;
    }
  }

  get netns(): Netns {
    return this.lab.node.netns;
  }

  /** What kproxy's own xtables lock is. */
  get lockFile(): string {
    return `${this.folder}/lock`;
  }

  /** The one that runs, or ran last. */
  get kproxy(): KproxyProcess {
    if (this.#kproxy === undefined) throw new TypeError("kproxy was never started");
    return this.#kproxy;
  }

  /** Has kproxy for itself: no other test ends or starts it meanwhile. */
  withKproxy<T>(work: () => Promise<T>): Promise<T> {
    const result = this.#turn.then(work);
    this.#turn = result.catch(() => undefined);
    return result;
  }

  /** Ends it in this way; fails unless it was running until now and ends as that way says. Only in {@linkcode withKproxy}. */
  async end(signal: "SIGTERM" | "SIGKILL"): Promise<void> {
    this.noteEnd();
    const { code } = await this.kproxy.stop(signal);
    const wanted = signal === "SIGTERM" ? 0 : 137;
    if (code !== wanted) this.unexpectedEnds.push(`${signal} ended kproxy with ${code}:\n${this.tail()}`);
  }

  /**
   * Starts another one, and waits for its first syncs. Only in {@linkcode withKproxy}. A start may end where programs misbehave; then
   * there is another one, as a kubelet sees to it.
   *
   * @throws {Error} with kproxy's log if it does not come to its first syncs
   */
  async start(): Promise<void> {
    for (let tries = 1;; tries++) {
      this.starts++;
      const wasActive = this.tools.isActive;
      try {
        return await this.#start();
      } catch (error) {
        if (!(wasActive || this.tools.isActive) || tries === MOST_STARTS) throw error;
        this.failedStarts++;
      }
    }
  }

  async #start(): Promise<void> {
    this.#kproxy = await KproxyProcess.start({
      netns: this.netns,
      path: this.tools.path,
      as: {
        // A disk and a lock file of its own, which are gone when it is.
        prefix: ["sh", "-c", `${this.#privateMounts()} exec "$@"`, "sh"],
        deno: Deno.execPath(),
      },
      args: [
        ...this.#commonArgs(),
        `--master=${this.api.url}`,
        `--snapshot=${this.folder}/disk/snapshot`,
      ],
    });
  }

  /** Writes down an end without a request. */
  noteEnd(): void {
    const { status } = this.kproxy;
    if (status === undefined) return;
    this.unexpectedEnds.push(`kproxy ended by itself with ${status.code}:\n${this.tail()}`);
  }

  /** The last lines of kproxy's log. */
  tail(count = 25): string {
    const lines = this.kproxy.lines.filter(({ msg }) => !msg.startsWith("FLAG: ")).slice(-count);
    return lines.map(({ ts, ...line }) => {
      const clock = typeof ts === "number" ? new Date(ts).toISOString().slice(11, -1) : "";
      return `${clock} ${JSON.stringify(line)}`;
    }).join("\n");
  }

  /** Opens or closes the way to the API server. */
  async connectApi(open: boolean): Promise<void> {
    this.#gateway?.[Symbol.dispose]();
    this.#gateway = open ? await LabGateway.open(this.netns, Number(new URL(this.api.url).port)) : undefined;
  }

  /** What a kproxy that knows the same objects makes in a namespace of its own, from nothing. */
  async freshRules(): Promise<string[]> {
    await using stack = new AsyncDisposableStack();
    const twin = await createNetns();
    stack.defer(() => removeNetns(twin));
    for (const [name, addresses] of Object.entries(NODE_ADDRESSES)) {
      await twin.run(["ip", "link", "add", name, "type", "bridge"]);
      for (const address of addresses) {
        // As on the node.
        const bits = address.includes(":") ? (name === "cni0" ? 128 : 64) : name === "cni0" ? 32 : 24;
        await twin.run(["ip", "address", "add", `${address}/${bits}`, "dev", name].concat(
          address.includes(":") ? ["nodad"] : [],
        ));
      }
      await twin.run(["ip", "link", "set", name, "up"]);
    }
    await this.mode.prepare(twin);
    const manifests = stack.use(await LabManifests.create());
    await manifests.replace(
      "all.json",
      this.cluster.objects as unknown as Readonly<Record<string, unknown>>[],
    );
    stack.use(
      await KproxyProcess.start({
        netns: twin,
        args: [...this.#commonArgs(), `--manifests=${manifests.folder}`],
      }),
    );
    return await this.mode.rules(twin);
  }

  /** What packets meet in the rules that the objects do not say, in words; empty if all is well. */
  async brokenPromises(): Promise<string[]> {
    const objects = this.cluster.objects as readonly unknown[] as readonly ApiJson[];
    const labels = this.cluster.objects.find(({ kind }) => kind === "Node")?.metadata.labels;
    return brokenPromises(throughRules(await liveOfKernel(this.netns.exec)), objects, {
      mode: this.mode.proxyMode,
      name: "node-a",
      zone: labels?.["topology.kubernetes.io/zone"] ?? "",
      nodePortIps: NODE_ADDRESSES.eth0,
    }, IDLE);
  }

  /** What the clients have seen. */
  async traffic(): Promise<Traffic> {
    let connections = 0;
    const failed: FailedConnection[] = [];
    for (const [i, loop] of this.#loops.entries()) {
      const { requests, failures, failuresAtMs } = await loop.report();
      const [from, , protocol, to] = CLIENTS[i]!;
      connections += requests;
      failures.forEach((failure, at) => {
        failed.push({
          atMs: failuresAtMs[at]!,
          what: `${from} → ${to.ip} ${to.port}/${protocol} ${failure}`,
        });
      });
    }
    return { connections, failed };
  }

  /** Ends the clients, and says what they have seen in all. */
  async endTraffic(): Promise<Traffic> {
    for (const loop of this.#loops) await loop.resting(() => Promise.resolve());
    const traffic = await this.traffic();
    for (const loop of this.#loops.splice(0)) await loop.stop();
    return traffic;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#gateway?.[Symbol.dispose]();
    await this.tools.end();
    if (this.#kproxy !== undefined) await this.#kproxy[Symbol.asyncDispose]();
    await this.#stack.disposeAsync();
  }

  #privateMounts(): string {
    const disk = `mount -t tmpfs -o size=${DISK_BYTES} tmpfs "${this.folder}/disk" &&`;
    return `[ ! -e ${LOCK_FILE} ] || mount --bind "${this.lockFile}" ${LOCK_FILE} && ${disk}`;
  }

  #commonArgs(): string[] {
    return [
      `--proxy-mode=${this.mode.proxyMode}`,
      "--hostname-override=node-a",
      "--cluster-cidr=10.244.0.0/16,fd00:10:244::/56",
      ...["iptables", "ipvs"].flatMap((mode) => [
        `--${mode}-min-sync-period=0s`,
        `--${mode}-sync-period=${SYNC_PERIOD}`,
      ]),
    ];
  }

  async #begin(): Promise<void> {
    for (const ip of SERVING_PODS.flat()) {
      const host = await this.lab.host(ip, "cni0");
      await host.call("serve", { protocol: "tcp", ip, port: TCP.target });
      await host.call("serve", { protocol: "udp", ip, port: UDP.target });
    }
    for (const object of this.cluster.objects) this.api.put(object);
    await this.mode.prepare(this.netns);
    await this.connectApi(true);
    await this.start();
    for (const [ip, at, protocol, to] of CLIENTS) {
      const host = await this.lab.host(ip, at);
      await host.netns.run(["sysctl", "-q", "-w", SAME_CLOCK]);
      this.#loops.push(await ConnectLoop.start(host, to, protocol, this.mode.pace));
    }
    await Promise.all(this.#loops.map((loop) => loop.answered(10)));
  }
}
