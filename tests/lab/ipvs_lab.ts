/**
 * A node in the user-mode Linux with kproxy in IPVS mode, and what tests ask of it.
 *
 * @module
 */
import { assert } from "@std/assert";
import { Ipvsadm } from "../../lib/kernel/ipvsadm.ts";
import { readDevices } from "../../lib/kernel/ip_address.ts";
import { realServerKey } from "../../lib/netfilter/ipvs.ts";
import { service, slice } from "../flows/objects.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { IPVS } from "../support/lab_mode.ts";
import type { LabHost } from "../support/lab_host.ts";
import { LabManifests } from "../support/lab_manifests.ts";
import type { SocketAddress } from "../support/lab_sockets.ts";
import { NodeLab } from "../support/node_lab.ts";
import { type Patience, until } from "../support/until.ts";

/** How long tests wait there, where everything is slow, each look too: it would take the processor from what is waited for. */
export const PATIENCE = { everyMs: 400, limitMs: 300_000 } satisfies Patience;
/** What is not answered by then never will be. */
const LOST_MS = 10_000;

export const WEB = service("shop/web", {
  type: "LoadBalancer",
  clusterIP: "10.96.0.1",
  ingress: [{ ip: "203.0.113.5" }],
  ports: ["http:80:30080"],
});

/** Its endpoints, on the node. */
export function webPods(...pods: readonly string[]) {
  return slice("shop/web.1", ["http:8080"], pods.map((pod) => `${pod}@node-a`));
}

/** The one long connection of a host. */
export class HeldConnection implements AsyncDisposable {
  readonly #host: LabHost;
  readonly #to: SocketAddress;

  constructor(host: LabHost, ip: string) {
    this.#host = host;
    this.#to = { ip, port: 80 };
  }

  async #isAnswered(timeoutMs: number): Promise<boolean> {
    return (await this.#host.call("askKept", { to: this.#to, timeoutMs })).kind === "answer";
  }

  /** Asks so often. @throws {AssertionError} if that is not answered */
  async answered(count: number): Promise<void> {
    for (let at = 0; at < count; at++) {
      assert(await this.#isAnswered(PATIENCE.limitMs), "a held connection is answered");
    }
  }

  /** Asks until nothing answers any more. */
  async lost(): Promise<void> {
    await until(async () => !await this.#isAnswered(LOST_MS), "the held connection is lost", PATIENCE);
  }

  /** Ends it properly, or by a reset. */
  async close(isReset = false): Promise<void> {
    await this.#host.call("dropKept", isReset);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/** The node; {@linkcode IpvsLab.start} starts kproxy. */
export class IpvsLab implements AsyncDisposable {
  readonly lab: NodeLab;
  readonly manifests: LabManifests;
  readonly ipvs: Ipvsadm;
  #kproxy: KproxyProcess | undefined;

  private constructor(lab: NodeLab, manifests: LabManifests) {
    this.lab = lab;
    this.manifests = manifests;
    this.ipvs = new Ipvsadm(lab.node.netns.exec);
  }

  static async create(): Promise<IpvsLab> {
    return new IpvsLab(await NodeLab.create(), await LabManifests.create());
  }

  get node() {
    return this.lab.node.netns;
  }

  get kproxy(): KproxyProcess {
    if (this.#kproxy === undefined) throw new TypeError("kproxy is not started");
    return this.#kproxy;
  }

  args(more: readonly string[] = []): string[] {
    return [
      "--proxy-mode=ipvs",
      "--hostname-override=node-a",
      "--cluster-cidr=10.244.0.0/16,fd00:10:244::/56",
      "--ipvs-min-sync-period=0s",
      "--ipvs-sync-period=2s",
      "--ipvs-tcpfin-timeout=1s",
      "--ipvs-exclude-cidrs=10.96.5.0/24",
      `--manifests=${this.manifests.folder}`,
      ...more,
    ];
  }

  async start(...more: readonly string[]): Promise<void> {
    await this.#kproxy?.[Symbol.asyncDispose]();
    this.#kproxy = await KproxyProcess.start({ netns: this.node, args: this.args(more) });
  }

  /** Replaces the objects and waits until they are in force. */
  async change(
    name: string,
    objects: Parameters<LabManifests["replace"]>[1],
    service: string,
  ): Promise<number> {
    const lines = await this.kproxy.change(() => this.manifests.replace(name, objects), service);
    const synced = lines.findLast(({ msg }) => msg === "Synced rules");
    return Number(synced?.["commands"]);
  }

  /** `-A` and `-a` lines, sorted. */
  async table(): Promise<readonly string[]> {
    const text = await this.node.run(["ipvsadm", "-Sn"]);
    return text.trim().split("\n").map((line) => line.trim()).filter((line) => line !== "").sort();
  }

  /** Weight by real server of the web Service's cluster IP. */
  async weights(): Promise<Record<string, number>> {
    const saved = (await this.ipvs.save()).virtualServers.get("10.96.0.1:80/TCP");
    return Object.fromEntries(
      [...saved?.realServers.values() ?? []].map((real) => [realServerKey(real), real.weight]),
    );
  }

  async addresses(): Promise<readonly string[]> {
    const { addresses } = await readDevices(this.node.exec);
    return addresses.filter(({ device }) => device === "kube-ipvs0").map(({ address }) => address).sort();
  }

  /** Everything the mode has in the kernel, and virtual servers of others, as text. */
  async everything(): Promise<string> {
    return await IPVS.rules(this.node);
  }

  /** A connection from a pod to a Service, that for the web if none is named, answered. */
  async connected(ip = "10.96.0.1"): Promise<HeldConnection> {
    const connection = new HeldConnection(await this.lab.host("10.244.0.5", "cni0"), ip);
    await connection.answered(3);
    return connection;
  }

  /** An endpoint's server, until it is disposed of. */
  async serving(ip: string): Promise<AsyncDisposable> {
    const host = await this.lab.host(ip, "cni0");
    await host.call("serve", { protocol: "tcp", ip, port: 8080 });
    return { [Symbol.asyncDispose]: async () => await host.call("unserve", 8080) };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#kproxy?.[Symbol.asyncDispose]();
    await this.manifests[Symbol.asyncDispose]();
    await this.lab[Symbol.asyncDispose]();
  }
}
