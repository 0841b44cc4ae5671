/**
 * The ports of kproxy's own that are open: each Service's, and those of a former life whose rules may still lead there.
 *
 * @module
 */
import type { PortRange } from "../../../config/port_range.ts";
import { joinHostPort } from "../../../model/ip.ts";
import type { IpFamily } from "../../../model/objects.ts";
import type { PortalFacts } from "../../../model/portals.ts";
import type { Place } from "../forward/open_portal.ts";
import type { OpenPortal } from "../forward/relay.ts";
import type { Portal, PortalId, PortalProtocol } from "../plan/ruleset.ts";

/** Portals that outlive the life that opened them, by what tells one from the others. */
export class LingeringPortals {
  readonly #portals = new Map<string, OpenPortal>();

  /** Keeps one at work, for whoever wants that port. */
  leave(place: string, portal: OpenPortal): void {
    void this.#portals.get(place)?.close();
    this.#portals.set(place, portal);
  }

  /** Hands the portal at a place over. */
  take(place: string): OpenPortal | undefined {
    const portal = this.#portals.get(place);
    this.#portals.delete(place);
    return portal;
  }

  /** Where they are, as {@linkcode placeOf} names it. */
  get places(): Iterable<string> {
    return this.#portals.keys();
  }

  /** Nobody wants the others any more. */
  async close(): Promise<void> {
    const portals = [...this.#portals.values()];
    this.#portals.clear();
    await Promise.all(portals.map((portal) => portal.close()));
  }
}

/** What tells a portal at work from all others. */
export function placeOf(family: IpFamily, protocol: PortalProtocol, ip: string, port: number): string {
  return `${family} ${protocol} ${ip} ${port}`;
}

/** What is told of a portal that is open. */
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

/** The portals of one family, as those see them who lead packets there. */
export interface PortalKeeper {
  readonly ids: Iterable<PortalId>;
  /** Undefined if it is not open. */
  portOf(id: PortalId): number | undefined;
  /**
   * Opens it if need be; one that is new leads nowhere yet.
   *
   * @param wished the port that rules lead to already; only looked at if it is not open
   * @throws {Error} if no port can be had
   */
  ensure(portal: Portal, wished: number | null): Promise<void>;
  /** Lets one that is open lead where it is to lead, once nobody comes to it but by rules. */
  lead(portal: Portal): void;
  /** Takes no more clients there. */
  close(ids: Iterable<PortalId>): Promise<void>;
}

/** Portals of another process, which opens and closes them itself: rules are led to those that it has. */
export class PortalsOfAnother implements PortalKeeper {
  readonly ids: readonly PortalId[] = [];
  readonly #portOf: (portal: Portal) => number | undefined;
  readonly #known = new Map<PortalId, number>();

  /** @param portOf undefined: that process has none */
  constructor(portOf: (portal: Portal) => number | undefined) {
    this.#portOf = portOf;
  }

  portOf(id: PortalId): number | undefined {
    return this.#known.get(id);
  }

  ensure(portal: Portal): Promise<void> {
    const port = this.#portOf(portal);
    if (port === undefined) return Promise.reject(new Error("the kproxy that runs has no port for it"));
    this.#known.set(portal.id, port);
    return Promise.resolve();
  }

  lead(): void {}

  close(): Promise<void> {
    return Promise.resolve();
  }
}

/** What {@linkcode Portals} needs. */
export interface PortalsOptions {
  readonly family: IpFamily;
  /** The address that all listen on. */
  readonly ip: string;
  readonly range: PortRange | null;
  /** Opens a port; rejects if none can be had. */
  readonly open: (place: Place) => Promise<OpenPortal>;
  readonly lingering: LingeringPortals;
}

/** One that is open, and what it was last told. */
interface KeptPortal {
  readonly wanted: Portal;
  readonly portal: OpenPortal;
}

/** Those of one family. */
export class Portals implements PortalKeeper {
  readonly #options: PortalsOptions;
  readonly #open = new Map<PortalId, KeptPortal>();

  constructor(options: PortalsOptions) {
    this.#options = options;
  }

  portOf(id: PortalId): number | undefined {
    return this.#open.get(id)?.portal.port;
  }

  get ids(): Iterable<PortalId> {
    return this.#open.keys();
  }

  /** What is open now. */
  get facts(): readonly PortalFacts[] {
    const { family, ip: address } = this.#options;
    return [...this.#open.values()].map(({ wanted, portal: { port } }) =>
      portalFacts(wanted, { family, address, port })
    );
  }

  async ensure(wanted: Portal, wished: number | null): Promise<void> {
    const { id, protocol } = wanted;
    const portal = this.#open.get(id)?.portal ?? await this.#begin(protocol, wished);
    this.#open.set(id, { wanted, portal });
  }

  lead({ id, endpoints, stickyMaxAgeSeconds }: Portal): void {
    this.#open.get(id)?.portal.update(endpoints, stickyMaxAgeSeconds);
  }

  async #begin(protocol: PortalProtocol, wished: number | null): Promise<OpenPortal> {
    const { family, ip, range, open, lingering } = this.#options;
    const former = wished === null ? undefined : lingering.take(this.#place(protocol, wished));
    return former ?? await open({ family, protocol, ip, wished, range, isOfOneFamily: true });
  }

  async close(ids: Iterable<PortalId>): Promise<void> {
    const portals = [...ids].map((id) => {
      const found = this.#open.get(id);
      this.#open.delete(id);
      return found?.portal.close();
    });
    await Promise.all(portals);
  }

  /** All go on at work, for the next life. */
  leave(): void {
    const { lingering } = this.#options;
    for (const { wanted: { protocol }, portal } of this.#open.values()) {
      lingering.leave(this.#place(protocol, portal.port), portal);
    }
    this.#open.clear();
  }

  #place(protocol: PortalProtocol, port: number): string {
    const { family, ip } = this.#options;
    return placeOf(family, protocol, ip, port);
  }
}
