/**
 * Portals, the ports of kproxy's own, that one IP family has open.
 *
 * @module
 */
import { joinHostPort } from "../../../model/ip.ts";
import type { IpFamily, NamespacedName } from "../../../model/objects.ts";
import type { PortalFacts } from "../../../model/portals.ts";
import type { Portal, PortalId, UserspacePlan } from "../plan/plan.ts";
import type { SharedPortal } from "../forward/shared_portals.ts";

/** Facts of an open portal, for display. */
export function portalFacts(
  { text, protocol, policy, endpoints, stickyMaxAgeSeconds }: Portal,
  { family, address, port }: Pick<PortalFacts, "family" | "address" | "port">,
): PortalFacts {
  return {
    family,
    servicePort: text,
    protocol,
    policy: policy === "local" ? "Local" : "Cluster",
    address,
    port,
    endpoints: endpoints.map((one) => joinHostPort(one.ip, one.port)),
    affinitySeconds: stickyMaxAgeSeconds,
  };
}

/** Opens a portal without endpoints, on a port that rules lead to already if possible; rejects if there is no port. */
export type OpenPortalFor<Wanted extends Portal> = (
  portal: Wanted,
  requested: number | null,
) => Promise<SharedPortal>;

/** An open portal, its last plan, and the Service that owns it. */
interface KeptPortal<Wanted extends Portal> {
  readonly service: NamespacedName;
  readonly wanted: Wanted;
  readonly portal: SharedPortal;
}

/** Open portals of one family. */
export class Portals<Wanted extends Portal = Portal> {
  readonly #open: OpenPortalFor<Wanted>;
  readonly #kept = new Map<PortalId, KeptPortal<Wanted>>();

  constructor(open: OpenPortalFor<Wanted>) {
    this.#open = open;
  }

  /** Port of a portal; undefined if it is not open. */
  portOf(id: PortalId): number | undefined {
    return this.#kept.get(id)?.portal.port;
  }

  get size(): number {
    return this.#kept.size;
  }

  /** Facts of the portals that are open now. */
  facts(family: IpFamily): readonly PortalFacts[] {
    return [...this.#kept.values()].map(({ wanted, portal: { ip: address, port } }) =>
      portalFacts(wanted, { family, address, port })
    );
  }

  /**
   * Opens all portals of a plan that are not open; those have no endpoints yet.
   *
   * @param opened called for each portal, with its port; awaited before this resolves
   * @param order of two portals: below zero if the first one is opened first
   * @param requestedOf the port that rules lead to already
   * @returns problems of Services that lack portals
   */
  async openAll(
    plan: UserspacePlan<Wanted>,
    opened: (wanted: Wanted, port: number, isNew: boolean) => Promise<void>,
    { requestedOf = () => null, order = () => 0 }: {
      readonly requestedOf?: (wanted: Wanted) => number | null;
      readonly order?: (one: Wanted, other: Wanted) => number;
    } = {},
  ): Promise<ReadonlyMap<NamespacedName, string>> {
    const problems = new Map<NamespacedName, string>();
    const all: (readonly [NamespacedName, Wanted])[] = [];
    const led: Promise<void>[] = [];
    for (const [name, service] of plan) {
      for (const problem of service?.unserved ?? []) problems.set(name, problem);
      for (const wanted of service?.portals ?? []) all.push([name, wanted]);
    }
    for (const [service, wanted] of all.toSorted(([, one], [, other]) => order(one, other))) {
      const present = this.#kept.get(wanted.id)?.portal;
      const lacks = (error: unknown): void => {
        problems.set(service, `${wanted.text}: ${error instanceof Error ? error.message : String(error)}`);
      };
      try {
        const portal = present ?? await this.#open(wanted, requestedOf(wanted));
        this.#kept.set(wanted.id, { service, wanted, portal });
        led.push(opened(wanted, portal.port, present === undefined).catch(lacks));
      } catch (error) {
        lacks(error);
      }
    }
    await Promise.all(led);
    return problems;
  }

  /** Gives an open portal its endpoints, once clients come to it by rules only. */
  async lead({ id, endpoints, stickyMaxAgeSeconds }: Portal): Promise<void> {
    await this.#kept.get(id)?.portal.update(endpoints, stickyMaxAgeSeconds);
  }

  /** Closes portals that these Services (`isAll`: and all others) do not want any more. @returns them, with ports */
  async closeUnused(
    plan: UserspacePlan<Wanted>,
    isAll: boolean,
  ): Promise<readonly { readonly wanted: Wanted; readonly port: number }[]> {
    const used = new Set([...plan.values()].flatMap((service) => service?.portals.map(({ id }) => id) ?? []));
    const closing = [...this.#kept.values()].filter(({ wanted, service }) =>
      (isAll || plan.has(service)) && !used.has(wanted.id)
    );
    for (const { wanted: { id } } of closing) this.#kept.delete(id);
    await Promise.all(closing.map(({ portal }) => portal.close()));
    return closing.map(({ wanted, portal: { port } }) => ({ wanted, port }));
  }

  /** Leaves all portals at work, for the next proxier. */
  leave(): void {
    for (const { portal } of this.#kept.values()) portal.leave();
    this.#kept.clear();
  }
}
