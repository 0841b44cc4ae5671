/**
 * The ports of kproxy's own that one IP family has open.
 *
 * @module
 */
import { joinHostPort } from "../../../model/ip.ts";
import type { IpFamily, NamespacedName } from "../../../model/objects.ts";
import type { PortalFacts } from "../../../model/portals.ts";
import type { Portal, PortalId, UserspacePlan } from "../plan/plan.ts";
import type { SharedPortal } from "../forward/shared_portals.ts";

/** What is shown of a portal that is open. */
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

/** Opens one that leads nowhere yet, had on a port that rules lead to already; rejects if no port can be had. */
export type OpenPortalFor<Wanted extends Portal> = (
  portal: Wanted,
  requested: number | null,
) => Promise<SharedPortal>;

/** One that is open, what was last wanted of it, and whose it is. */
interface KeptPortal<Wanted extends Portal> {
  readonly service: NamespacedName;
  readonly wanted: Wanted;
  readonly portal: SharedPortal;
}

/** See the module. */
export class Portals<Wanted extends Portal = Portal> {
  readonly #open: OpenPortalFor<Wanted>;
  readonly #kept = new Map<PortalId, KeptPortal<Wanted>>();

  constructor(open: OpenPortalFor<Wanted>) {
    this.#open = open;
  }

  /** Undefined if it is not open. */
  portOf(id: PortalId): number | undefined {
    return this.#kept.get(id)?.portal.port;
  }

  get size(): number {
    return this.#kept.size;
  }

  /** What is open now. */
  facts(family: IpFamily): readonly PortalFacts[] {
    return [...this.#kept.values()].map(({ wanted, portal: { ip: address, port } }) =>
      portalFacts(wanted, { family, address, port })
    );
  }

  /**
   * Opens all portals of a plan that are not open; those lead nowhere yet.
   *
   * @param opened called for each, with its port; what it does is done when this resolves
   * @param order of two portals: below zero if the first one is opened first
   * @param requestedOf the port that rules lead to already
   * @returns why Services lack some
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

  /** Lets one that is open lead where it is to lead, once clients come to it by rules only. */
  async lead({ id, endpoints, stickyMaxAgeSeconds }: Portal): Promise<void> {
    await this.#kept.get(id)?.portal.update(endpoints, stickyMaxAgeSeconds);
  }

  /** Closes what these Services (`isAll`: and all others) do not want any more. @returns what was open, with its port */
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

  /** All go on at work, for the next proxier. */
  leave(): void {
    for (const { portal } of this.#kept.values()) portal.leave();
    this.#kept.clear();
  }
}
