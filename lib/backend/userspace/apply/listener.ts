/**
 * Userspace mode without rules, for one IP family: each Service port is open on an address of the node itself.
 *
 * @module
 */
import { Mutex } from "../../../kernel/mutex.ts";
import { type Cidr, joinHostPort } from "../../../model/ip.ts";
import type { IpFamily, NamespacedName } from "../../../model/objects.ts";
import type { PortalFacts } from "../../../model/portals.ts";
import type { Changed } from "../../../model/state.ts";
import type { Logger } from "../../../observe/log.ts";
import type { ApplyReport, FamilyProxier, SyncRequest } from "../../backend.ts";
import { Quarantine } from "../../quarantine.ts";
import type { Place } from "../forward/open_portal.ts";
import { NoPortError, type OpenPortal } from "../forward/relay.ts";
import { type Opening, planListening, type ServiceOpenings } from "../plan/listen.ts";
import type { PortalId } from "../plan/ruleset.ts";
import { type LingeringPortals, placeOf, portalFacts } from "./portals.ts";

/** Ports from here on need no right. */
const FIRST_FREE_PORT = 1024;
/** What stands in for port 80 without the right to it is 8080, as people are used to. */
const STAND_IN_OFFSET = 8000;

/** What a {@linkcode ListeningProxier} needs. */
export interface ListeningOptions {
  readonly family: IpFamily;
  /** Where the Services are opened. */
  readonly range: Cidr;
  /** Opens a port; rejects with a {@linkcode NoPortError} if it cannot be had. */
  readonly open: (place: Place) => Promise<OpenPortal>;
  readonly lingering: LingeringPortals;
  readonly log: Logger;
  /** Milliseconds, monotonic. Default: since the process began. */
  readonly nowMs?: () => number;
}

/** One Service port that is open. */
interface OpenPort {
  readonly opening: Opening;
  readonly portal: OpenPortal;
  /** As {@linkcode placeOf} names them: where it wants to be, and where it is. */
  readonly places: readonly string[];
}

type Plan = ReadonlyMap<NamespacedName, ServiceOpenings | null>;

/** One family. */
export class ListeningProxier implements FamilyProxier {
  readonly family: IpFamily;
  readonly #options: ListeningOptions;
  readonly #quarantine: Quarantine;
  readonly #oneAtATime = new Mutex();
  readonly #services = new Map<NamespacedName, readonly PortalId[]>();
  readonly #open = new Map<PortalId, OpenPort>();
  /** Place → the Service port that has it. */
  readonly #holders = new Map<string, string>();
  /** Service → the places that it would have if nobody else had. */
  readonly #waiting = new Map<NamespacedName, ReadonlySet<string>>();

  constructor(options: ListeningOptions) {
    this.family = options.family;
    this.#options = options;
    this.#quarantine = new Quarantine(options.nowMs ?? (() => performance.now()));
  }

  /** Closes what nobody wants any more, opens what is new, and leads all of it to its endpoints. */
  sync(request: SyncRequest): Promise<ApplyReport> {
    return this.#oneAtATime.run(() => this.#sync(request));
  }

  /** There are no rules that could be damaged. */
  checkCanary(): Promise<false> {
    return Promise.resolve(false);
  }

  /** What is open now. */
  get facts(): readonly PortalFacts[] {
    const { family } = this;
    return [...this.#open.values()].map(({ opening, portal: { port } }) =>
      portalFacts(opening, { family, address: opening.ip, port })
    );
  }

  /** All go on at work, for the next life. */
  leave(): void {
    for (const { opening: { protocol, ip }, portal } of this.#open.values()) {
      this.#options.lingering.leave(placeOf(this.family, protocol, ip, portal.port), portal);
    }
    for (const known of [this.#open, this.#holders, this.#waiting, this.#services]) known.clear();
  }

  async #sync({ state, changed }: SyncRequest): Promise<ApplyReport> {
    const { range } = this.#options;
    const startMs = performance.now();
    const plan = new Map(planListening(state, this.#namesOf(changed, state.services.keys()), range));
    const plannedMs = performance.now();
    const freed = await this.#closeUnwanted(plan);
    // Whoever waited for a place has its turn in the same sync.
    const late = [...this.#waiting].filter(([name, places]) =>
      !plan.has(name) && !places.isDisjointFrom(freed)
    );
    const names = new Set(late.map(([name]) => name));
    for (const [name, service] of planListening(state, names, range)) plan.set(name, service);
    await this.#openAll(plan);
    return {
      commands: 0,
      bytes: 0,
      written: { services: plan.size },
      total: { portals: this.#open.size },
      phasesMs: { plan: plannedMs - startMs, apply: performance.now() - plannedMs },
      quarantined: this.#quarantine.services,
    };
  }

  #namesOf(changed: Changed, all: Iterable<NamespacedName>): ReadonlySet<NamespacedName> {
    return changed === "all"
      ? new Set([...all, ...this.#services.keys()])
      : changed.union(new Set(this.#quarantine.due(changed)));
  }

  /** @returns the places that are free now */
  async #closeUnwanted(plan: Plan): Promise<ReadonlySet<string>> {
    const closing: OpenPort[] = [];
    for (const [name, service] of plan) {
      const wanted = new Map(service?.openings.map((opening) => [opening.id, this.#placeOf(opening)]) ?? []);
      for (const id of this.#services.get(name) ?? []) {
        const open = this.#open.get(id);
        if (open === undefined || wanted.get(id) === open.places[0]) continue;
        this.#open.delete(id);
        closing.push(open);
      }
    }
    await Promise.all(closing.map(({ portal }) => portal.close()));
    for (const open of closing) {
      for (const place of open.places) this.#holders.delete(place);
      this.#tell("Service port is closed", open);
    }
    return new Set(closing.flatMap(({ places }) => places));
  }

  /** Those that need no right come first: none of them gives way to one that stands in for another. */
  async #openAll(plan: Plan): Promise<void> {
    const problems = new Map<NamespacedName, string>();
    const openings: (readonly [NamespacedName, Opening])[] = [];
    for (const [name, service] of plan) {
      this.#waiting.delete(name);
      if (service === null) this.#services.delete(name);
      else this.#services.set(name, service.openings.map(({ id }) => id));
      for (const problem of service?.unserved ?? []) problems.set(name, problem);
      openings.push(...service?.openings.map((opening) => [name, opening] as const) ?? []);
    }
    const isFree = ({ port }: Opening): boolean => port >= FIRST_FREE_PORT;
    for (
      const [name, opening] of openings.toSorted(([, a], [, b]) => Number(isFree(b)) - Number(isFree(a)))
    ) {
      const problem = await this.#ensure(name, opening);
      if (problem !== null) problems.set(name, `${opening.text}: ${problem}`);
    }
    for (const name of plan.keys()) {
      const problem = problems.get(name);
      if (problem === undefined) this.#quarantine.release(name);
      else this.#quarantine.refused({ service: name, problem });
    }
  }

  /** @returns why it is not open; null if it is */
  async #ensure(service: NamespacedName, opening: Opening): Promise<string | null> {
    const { id, endpoints, stickyMaxAgeSeconds } = opening;
    const present = this.#open.get(id);
    if (present !== undefined) {
      this.#open.set(id, { ...present, opening });
      present.portal.update(endpoints, stickyMaxAgeSeconds);
      return null;
    }
    try {
      const portal = await this.#begin(service, opening);
      const places = [...new Set([this.#placeOf(opening), this.#placeOf(opening, portal.port)])];
      const open: OpenPort = { opening, portal, places };
      this.#open.set(id, open);
      for (const place of places) this.#holders.set(place, opening.text);
      portal.update(endpoints, stickyMaxAgeSeconds);
      this.#tell("Service port is open", open);
      return null;
    } catch (error) {
      if (!(error instanceof NoPortError)) throw error;
      return error.message;
    }
  }

  /** @throws {NoPortError} if neither its port nor the one that may stand in for it can be had */
  async #begin(service: NamespacedName, opening: Opening): Promise<OpenPortal> {
    try {
      return await this.#listen(service, opening, opening.port);
    } catch (error) {
      if (!(error instanceof NoPortError && error.isDenied) || opening.port >= FIRST_FREE_PORT) throw error;
      try {
        return await this.#listen(service, opening, opening.port + STAND_IN_OFFSET);
      } catch (second) {
        if (!(second instanceof NoPortError)) throw second;
        throw new NoPortError(`no right to port ${opening.port}, and ${second.message}`, false);
      }
    }
  }

  async #listen(service: NamespacedName, opening: Opening, port: number): Promise<OpenPortal> {
    const { open, lingering } = this.#options;
    const { ip, protocol } = opening;
    const place = this.#placeOf(opening, port);
    const holder = this.#holders.get(place);
    if (holder !== undefined) {
      this.#waiting.set(service, new Set([...this.#waiting.get(service) ?? [], place]));
      throw new NoPortError(`${protocol} ${joinHostPort(ip, port)} is open for ${holder} already`, false);
    }
    return lingering.take(place) ??
      await open({ family: this.family, protocol, ip, wished: null, range: { first: port, last: port } });
  }

  #placeOf({ protocol, ip, port }: Opening, actual = port): string {
    return placeOf(this.family, protocol, ip, actual);
  }

  #tell(what: string, { opening: { text, protocol, ip, port }, portal }: OpenPort): void {
    const standsInFor = portal.port === port ? {} : { standsInFor: port };
    const address = joinHostPort(ip, portal.port);
    this.#options.log.info(what, { servicePort: text, protocol, address, ...standsInFor });
  }
}
