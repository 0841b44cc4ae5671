/**
 * Says, once for each IP family, that this node cannot serve it while something counts on it.
 *
 * @module
 */
import type { RefusedFamily } from "../kernel/iptables_families.ts";
import type { IpFamily, NodeObject, Service } from "../model/objects.ts";
import { nodeUse, serviceUse } from "../model/unserved_family.ts";
import { familyNotServedEvent } from "../observe/event_catalog.ts";
import type { ProxyEvent } from "../observe/events.ts";
import type { Logger } from "../observe/log.ts";

/** What {@linkcode UnservedFamilies} needs. */
export interface UnservedFamiliesOptions {
  readonly refused: readonly RefusedFamily[];
  readonly nodeName: string;
  readonly log: Logger;
  readonly onEvent: (event: ProxyEvent) => void;
  /** Hears of each family that something counts on, and of what. */
  readonly onUse: (family: IpFamily, use: string) => void;
}

/** Looks at what the source says, as long as there is a family to be told of. */
export class UnservedFamilies {
  readonly #options: UnservedFamiliesOptions;
  /** Those that nothing has counted on so far. */
  readonly #unused: Map<IpFamily, RefusedFamily>;

  constructor(options: UnservedFamiliesOptions) {
    this.#options = options;
    this.#unused = new Map(options.refused.map((refused) => [refused.family, refused]));
    for (const { family, hasRules } of options.refused) {
      if (hasRules) this.#tell(family, "rules of an earlier start are there, and nobody looks after them");
    }
  }

  /** The own Node was added or changed. */
  takeNode(node: NodeObject): void {
    for (const family of this.#unused.keys()) this.#tell(family, nodeUse(node, family));
  }

  /** A Service was added or changed. */
  takeService(service: Service): void {
    for (const family of this.#unused.keys()) this.#tell(family, serviceUse(service, family));
  }

  #tell(family: IpFamily, use: string | null): void {
    const refused = this.#unused.get(family);
    if (use === null || refused === undefined) return;
    this.#unused.delete(family);
    const { nodeName, log, onEvent, onUse } = this.#options;
    const { reason } = refused;
    log.warn("The cluster counts on an IP family that this node cannot serve", { family, use, reason });
    onEvent(familyNotServedEvent(nodeName, { family, use, reason }));
    onUse(family, use);
  }
}
