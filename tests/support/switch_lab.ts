/**
 * A node whose clients connect continuously, over TCP, UDP and both IP families, while its proxy is ended, restarted, given another
 * configuration or another mode, or replaced by another proxy.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import type { ProxyMode } from "../../lib/config/types.ts";
import type { LoopPace } from "./connect_loop.ts";
import type { KubeProxyMode } from "./kube_proxy/kube_proxy.ts";
import { httpGet } from "./http_get.ts";
import { KproxyProcess } from "./kproxy_process.ts";
import { LabManifests } from "./lab_manifests.ts";
import { CLUSTER_CIDR, Migration } from "./migration.ts";
import { NODE_OBJECT, NodeLab } from "./node_lab.ts";
import { ServiceTraffic } from "./service_traffic.ts";

/** How a proxy changes to the next state. */
export type SwitchWay =
  /** Ended by this signal, then a new process is started. */
  | "SIGTERM"
  | "SIGKILL"
  /** A configuration change with which kproxy starts anew, in the same process. */
  | "reload"
  /** A configuration change that takes effect without that. */
  | "live reload";

/** One step of kproxy: the mode, and how it gets there. */
export interface Switch {
  readonly to: ProxyMode;
  readonly by: SwitchWay;
}

/** One step in which another proxy, kube-proxy or kproxy, takes over the node. */
export type Takeover =
  | { readonly to: KubeProxyMode; readonly by: "kube-proxy" }
  | { readonly to: KubeProxyMode; readonly by: "kproxy" };

export type Step = Switch | Takeover;

const LIVE = "Configuration changed, in force now";

/** The node, its clients and its proxy. */
export class SwitchLab implements AsyncDisposable {
  readonly #lab: NodeLab;
  readonly #manifests: LabManifests;
  readonly #folder: string;
  readonly #traffic: ServiceTraffic;
  readonly #migration: Migration;
  #mode: ProxyMode | undefined;
  /** Undefined while kube-proxy serves. */
  #kproxy: KproxyProcess | undefined;
  #masqueradeAll = false;
  #verbosity = 2;

  private constructor(lab: NodeLab, manifests: LabManifests, folder: string, pace: LoopPace | undefined) {
    this.#lab = lab;
    this.#manifests = manifests;
    this.#folder = folder;
    this.#traffic = new ServiceTraffic(lab, pace);
    this.#migration = new Migration(lab, this.#traffic);
  }

  /** Builds the node, starts its first proxy, then the loops, by default at their usual pace. */
  static async create(first: ProxyMode | Takeover, pace?: LoopPace): Promise<SwitchLab> {
    const folder = await Deno.makeTempDir({ prefix: "kproxy-config-" });
    const lab = new SwitchLab(await NodeLab.create(), await LabManifests.create(), folder, pace);
    try {
      await lab.#begin(first);
      return lab;
    } catch (error) {
      await lab[Symbol.asyncDispose]();
      throw error;
    }
  }

  /**
   * Takes the step and then asserts that the proxy is in this mode, changes the Service's endpoints, and asserts that every
   * connection so far was answered in time, and that those kept from before the step are still open.
   */
  async make(step: Step): Promise<void> {
    const traffic = this.#traffic;
    const timeline = (): string => this.#timeline();
    if (step.by === "kube-proxy" || step.by === "kproxy") await this.#takeOver(step);
    else {
      // Replies to a datagram return by their flow, which is dropped when kproxy's own ports give way to endpoints.
      const forgetsFlows = this.#mode !== step.to && [this.#mode, step.to].includes("userspace");
      await traffic.resting(forgetsFlows, () => this.#switch(step));
    }
    if (this.#kproxy !== undefined) {
      const { body } = await httpGet(this.#lab.node.netns, "http://127.0.0.1:10249/proxyMode");
      assertEquals(body, step.to);
    }
    await traffic.answered(20);
    await traffic.askKept("after the switch", timeline);
    // kube-proxy's recorded rules have fixed endpoints.
    if (this.#kproxy !== undefined) await this.#changeEndpoints();
    await traffic.askKept("after a change of the endpoints", timeline);
    await traffic.unbroken(timeline);
  }

  async #changeEndpoints(): Promise<void> {
    await this.#traffic.change(() => this.#report("shop/web", 2), this.#mode === "userspace");
  }

  async #switch({ to, by }: Switch): Promise<void> {
    const from = this.#process.lines.length;
    // When IPVS goes, connections through it break (docs/operations.md).
    if (this.#mode === "ipvs" && to !== "ipvs") await this.#traffic.dropKept();
    this.#mode = to;
    if (by === "SIGTERM" || by === "SIGKILL") {
      const { code } = await this.#process.stop(by);
      assertEquals(code, by === "SIGTERM" ? 0 : 137);
      await this.#traffic.answered(20);
      await this.#configure(to);
      await this.#start();
    } else if (by === "reload") {
      this.#masqueradeAll = !this.#masqueradeAll;
      await this.#process.anew(() => this.#configure(to));
    } else {
      this.#verbosity = 5 - this.#verbosity;
      await this.#configure(to);
      await this.#process.untilMessage(LIVE, from);
    }
  }

  /** Takes over as in docs/migrate.md. Services change while no proxy runs. */
  async #takeOver({ to, by }: Takeover): Promise<void> {
    if (!this.#traffic.isAsRecorded) await this.#changeEndpoints();
    const from = this.#mode;
    if (from === "ipvs" && to !== "ipvs") await this.#traffic.dropKept();
    const fromKproxy = this.#kproxy === undefined ? undefined : from;
    await this.#migration.changeBefore((service, families) => this.#report(service, families));
    // The harder case: kproxy hangs, and is killed.
    if (this.#kproxy !== undefined) assertEquals((await this.#kproxy.stop("SIGKILL")).code, 137);
    this.#kproxy = undefined;
    await this.#migration.changeBetween();
    await this.#traffic.answered(20);
    this.#mode = to;
    if (by === "kube-proxy") await this.#migration.startKubeProxy(to, fromKproxy);
    else {
      await this.#write();
      this.#masqueradeAll = false;
      await this.#configure(to);
      await this.#start();
    }
    await this.#migration.assertTakenOver(to, { by, from });
  }

  /** As {@linkcode ServiceTraffic.figures}. */
  figures(): ReturnType<ServiceTraffic["figures"]> {
    return this.#traffic.figures();
  }

  /** Ends the loops; fails unless each connection was answered in time and there were enough of them. */
  async end(): Promise<void> {
    await this.#traffic.end();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#kproxy?.[Symbol.asyncDispose]();
    await this.#migration[Symbol.asyncDispose]();
    await this.#lab[Symbol.asyncDispose]();
    await this.#manifests[Symbol.asyncDispose]();
    await Deno.remove(this.#folder, { recursive: true });
  }

  get #process(): KproxyProcess {
    if (this.#kproxy === undefined) throw new TypeError("kproxy is not started");
    return this.#kproxy;
  }

  async #begin(first: ProxyMode | Takeover): Promise<void> {
    await this.#traffic.serve();
    await this.#manifests.replace("node.json", [NODE_OBJECT]);
    await this.#write();
    if (typeof first === "object" && first.by === "kube-proxy") {
      this.#mode = first.to;
      await this.#migration.startKubeProxy(first.to, undefined);
    } else {
      this.#mode = typeof first === "object" ? first.to : first;
      await this.#configure(this.#mode);
      await this.#start();
    }
    await this.#traffic.start();
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
      clusterCIDR: CLUSTER_CIDR,
      iptables: periods,
      nftables: periods,
      ipvs: { minSyncPeriod: "0s" },
      // Answers in this lab may take long while others use the processors. Each client is one more socket for as long.
      ...mode === "userspace" ? { udpIdleTimeout: "5s" } : {},
      logging: { verbosity: this.#verbosity },
    };
    await Deno.writeTextFile(`${this.#folder}/config.yaml`, JSON.stringify(config));
  }

  async #write(): Promise<void> {
    await this.#manifests.replace("endpoints.json", [...this.#traffic.slices, ...this.#migration.slices]);
    await this.#manifests.replace("services.json", [...this.#traffic.services, ...this.#migration.services]);
  }

  /** Gives the proxy all objects, and waits until it has synced this Service in so many families. */
  async #report(service: string, families: number): Promise<void> {
    if (this.#kproxy === undefined) await this.#migration.syncKubeProxy(this.#mode ?? "");
    else await this.#kproxy.change(() => this.#write(), service, families);
  }

  /** kproxy's log, by the clock of the failures. */
  #timeline(): string {
    return (this.#kproxy?.lines ?? []).map(({ ts, msg, ...rest }) => {
      const clock = typeof ts === "number" ? new Date(ts).toISOString().slice(11, -1) : "";
      return `${clock} ${msg} ${JSON.stringify(rest)}`;
    }).join("\n");
  }
}

/** Takes the steps one after the other, under connect loops that must not fail. */
export async function walk(
  t: Deno.TestContext,
  from: ProxyMode | Takeover,
  steps: readonly Step[],
  pace?: LoopPace,
): Promise<void> {
  await using lab = await SwitchLab.create(from, pace);
  for (const step of steps) {
    // After a failed step, later ones would not begin where they say.
    assert(await t.step(`to ${step.to} by ${step.by}`, () => lab.make(step)), `by ${step.by}`);
  }
  await lab.end();
}

/** There by kill and restart, back by a configuration change; there once more by one, back by kill and restart. */
export function thereAndBack(from: ProxyMode, to: ProxyMode): readonly [Switch, ...Switch[]] {
  return [
    { to, by: "SIGKILL" },
    ...thereAndBackByReload(to, from),
    { to: from, by: "SIGKILL" },
  ];
}

/** There and back by configuration changes. */
export function thereAndBackByReload(from: ProxyMode, to: ProxyMode): readonly Switch[] {
  return [{ to, by: "reload" }, { to: from, by: "reload" }];
}

/** All steps of a proxy that stays in its mode. */
export function within(mode: ProxyMode): Switch[] {
  return (["SIGTERM", "SIGKILL", "live reload", "reload"] as const).map((by) => ({ to: mode, by }));
}
