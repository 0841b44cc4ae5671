/**
 * The proxy's parts put together in the test's own process, on the node of a lab: for tests that take a part away, or look at
 * it alone. `kproxy_process.ts` is the whole program.
 *
 * @module
 */
import { prepareIptables } from "../../lib/backend/iptables/node/preflight.ts";
import { defaultConfig, selectedPeriods } from "../../lib/config/defaults.ts";
import { Conntrack } from "../../lib/kernel/conntrack.ts";
import { ChangeTracker } from "../../lib/model/change_tracker.ts";
import type { ApiObject } from "../../lib/model/objects.ts";
import { createLogger } from "../../lib/observe/log.ts";
import { decodeObject } from "../../lib/source/decode/decode.ts";
import { eventsBetween, identityOf } from "../../lib/source/source.ts";
import type { FlowReconciliation } from "../../lib/sync/stale_flows.ts";
import { FamilyRunner } from "../../lib/sync/family_runner.ts";
import { EventHandlers } from "../../lib/sync/event_handlers.ts";
import type { ApiJson } from "../flows/objects.ts";
import { modeContext } from "./mode_context.ts";
import type { Netns } from "./netns.ts";
import { NODE_ADDRESSES } from "./node_lab.ts";

/** How it is put together. */
export interface LabProxyOptions {
  /** Without, nothing looks after flows. @default {true} */
  readonly staleFlows?: boolean;
}

/** Runs until disposed of; the rules stay. */
export class LabProxy implements AsyncDisposable {
  /** Every look at the connections so far. */
  readonly reconciliations: FlowReconciliation[] = [];
  readonly #runners: readonly FamilyRunner[];
  readonly #handlers: EventHandlers;
  #objects = new Map<string, ApiObject>();

  private constructor(
    /** What it said. */
    readonly lines: readonly string[],
    makeRunners: (proxy: LabProxy) => readonly FamilyRunner[],
  ) {
    this.#runners = makeRunners(this);
    this.#handlers = new EventHandlers({
      runners: this.#runners,
      nodeName: "node-a",
      onNode: () => {},
      onRejected: ({ object, message }) => {
        throw new Error(`${object}: ${message}`);
      },
    });
    for (const runner of this.#runners) runner.start();
  }

  /** Resolves when it has been given the objects; its first syncs may still be to come. */
  static async start(
    netns: Netns,
    objects: readonly ApiJson[],
    { staleFlows = true }: LabProxyOptions = {},
  ): Promise<LabProxy> {
    const config = { ...defaultConfig(), clusterCIDR: "10.244.0.0/16,fd00:10:244::/56" };
    const lines: string[] = [];
    const log = createLogger({
      format: "text",
      verbosity: 1,
      write: (line) => lines.push(line),
      nowMs: () => Date.now(),
      pid: Deno.pid,
    });
    const { proxiers } = await prepareIptables(await modeContext({ exec: netns.exec, config, log }));
    const nodePortIps = ["127.0.0.1", "::1", ...Object.values(NODE_ADDRESSES).flat()];
    const proxy = new LabProxy(lines, (self) =>
      proxiers.map((proxier) =>
        new FamilyRunner({
          proxier,
          tracker: new ChangeTracker({ family: proxier.family, node: { name: "node-a", zone: "" } }),
          periods: { ...selectedPeriods(config, "iptables"), minSyncPeriod: 0 },
          observer: { synced: () => {}, failed: ({ error }) => lines.push(`${error.message}\n`) },
          log,
          onQueued: () => {},
          random: Math.random,
          ...(staleFlows
            ? {
              staleFlows: {
                conntrack: new Conntrack(netns.exec),
                nodePortIps: () => nodePortIps,
                observe: (reconciliation) => self.reconciliations.push(reconciliation),
              },
            }
            : {}),
        })
      ));
    proxy.set(objects);
    proxy.#handlers.events([{ type: "synced", kind: "services" }, {
      type: "synced",
      kind: "endpointslices",
    }]);
    proxy.#handlers.openGate();
    return proxy;
  }

  /** Makes these the objects there are. */
  set(objects: readonly ApiJson[]): void {
    const wanted = new Map<string, ApiObject>();
    for (const raw of objects) {
      for (const object of decodeObject(raw, "test").objects) wanted.set(identityOf(object), object);
    }
    const identities = new Set([...this.#objects.keys(), ...wanted.keys()]);
    this.#handlers.events(
      [...identities].flatMap((identity) => eventsBetween(this.#objects.get(identity), wanted.get(identity))),
    );
    this.#objects = wanted;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#runners.map((runner) => runner.stop()));
  }
}
