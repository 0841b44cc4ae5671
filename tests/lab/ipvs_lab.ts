/**
 * A node in the user-mode Linux with kproxy in IPVS mode, and what tests ask of it.
 *
 * @module
 */
import { Ipvsadm } from "../../lib/kernel/ipvsadm.ts";
import { readDevices } from "../../lib/kernel/ip_address.ts";
import { realServerKey } from "../../lib/netfilter/ipvs.ts";
import { service, slice } from "../flows/objects.ts";
import { HeldConnection } from "../support/held_connection.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { IPVS } from "../support/lab_mode.ts";
import { LabManifests } from "../support/lab_manifests.ts";
import { NodeLab } from "../support/node_lab.ts";
import type { Patience } from "../support/until.ts";

/** How long tests wait there, where everything is slow. */
export const PATIENCE = { everyMs: 100, limitMs: 300_000 } satisfies Patience;

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

  /** A connection from there to a Service, that for the web if none is named, answered. */
  async connected(netns: NodeLab["node"]["netns"], ip = "10.96.0.1"): Promise<HeldConnection> {
    const deadline = performance.now() + PATIENCE.limitMs;
    for (;;) {
      const connection = new HeldConnection(netns, { ip, port: 80 });
      try {
        await connection.answered(3);
        return connection;
      } catch (error) {
        // The server is a process that starts beside.
        await connection[Symbol.asyncDispose]();
        if (performance.now() > deadline) throw error;
      }
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#kproxy?.[Symbol.asyncDispose]();
    await this.manifests[Symbol.asyncDispose]();
    await this.lab[Symbol.asyncDispose]();
  }
}
