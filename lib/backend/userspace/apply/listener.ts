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
import { NoPortError } from "../forward/relay.ts";
import { type Opening, planListening, type ServiceOpenings } from "../plan/listen.ts";
import { Portals } from "./portals.ts";
import type { SharedPortal, SharedPortals } from "./shared_portals.ts";

/** Ports from here on need no right. */
const FIRST_FREE_PORT = 1024;
/** What stands in for port 80 without the right to it is 8080, as people are used to. */
const STAND_IN_OFFSET = 8000;

/** What a {@linkcode ListeningProxier} needs. */
export interface ListeningOptions {
  readonly family: IpFamily;
  /** Where the Services are opened. */
  readonly range: Cidr;
  readonly shared: Pick<SharedPortals, "open">;
  readonly log: Logger;
  /** Milliseconds, monotonic. Default: since the process began. */
  readonly nowMs?: () => number;
}

type Plan = Map<NamespacedName, ServiceOpenings | null>;

/** One family. */
export class ListeningProxier implements FamilyProxier {
  readonly family: IpFamily;
  readonly #options: ListeningOptions;
  readonly #quarantine: Quarantine;
  readonly #oneAtATime = new Mutex();
  readonly #portals = new Portals<Opening>((opening) => this.#begin(opening));
  /** Place → the Service port that has it: where it wants to be, and where it is. */
  readonly #holders = new Map<string, string>();

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
    return this.#portals.facts(this.family);
  }

  /** All go on at work, for the next proxy server. */
  leave(): void {
    this.#portals.leave();
    this.#holders.clear();
  }

  async #sync({ state, changed }: SyncRequest): Promise<ApplyReport> {
    const { range } = this.#options;
    const startMs = performance.now();
    if (changed === "all") this.#quarantine.replace([]);
    const names = changed === "all" ? changed : changed.union(new Set(this.#quarantine.due(changed)));
    const plan = new Map(planListening(state, names, range));
    const plannedMs = performance.now();
    if (await this.#closeUnwanted(plan, changed)) {
      // A Service that waited for a place has its turn in the same sync.
      const waiting = this.#quarantine.services.map(({ service }) => service).filter((name) =>
        !plan.has(name)
      );
      for (const [name, service] of planListening(state, new Set(waiting), range)) plan.set(name, service);
    }
    await this.#openAll(plan);
    return {
      commands: 0,
      bytes: 0,
      written: { services: plan.size },
      total: { portals: this.#portals.size },
      phasesMs: { plan: plannedMs - startMs, apply: performance.now() - plannedMs },
      quarantined: this.#quarantine.services,
    };
  }

  /** @returns true if something was closed */
  async #closeUnwanted(plan: Plan, changed: Changed): Promise<boolean> {
    const openings = [...plan.values()].flatMap((service) => service?.openings ?? []);
    const wanted = new Map(openings.map((opening) => [opening.id, placeOf(opening)]));
    const closed = await this.#portals.closeWhere((opening, service) =>
      (changed === "all" || plan.has(service)) && wanted.get(opening.id) !== placeOf(opening)
    );
    for (const { wanted, port } of closed) {
      for (const place of [placeOf(wanted), placeOf(wanted, port)]) this.#holders.delete(place);
      this.#report("Service port is closed", wanted, port);
    }
    return closed.length > 0;
  }

  /** Those that need no right come first: none of them gives way to one that stands in for another. */
  async #openAll(plan: Plan): Promise<void> {
    const problems = new Map<NamespacedName, string>();
    const openings: (readonly [NamespacedName, Opening])[] = [];
    for (const [name, service] of plan) {
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
    try {
      const isNew = this.#portals.portOf(opening.id) === undefined;
      const port = await this.#portals.ensure(service, opening);
      this.#portals.lead(opening);
      if (!isNew) return null;
      for (const place of [placeOf(opening), placeOf(opening, port)]) this.#holders.set(place, opening.text);
      this.#report("Service port is open", opening, port);
      return null;
    } catch (error) {
      if (!(error instanceof NoPortError)) throw error;
      return error.message;
    }
  }

  /** @throws {NoPortError} if neither its port nor the one that may stand in for it can be had */
  async #begin(opening: Opening): Promise<SharedPortal> {
    try {
      return await this.#listen(opening, opening.port);
    } catch (error) {
      if (!(error instanceof NoPortError && error.isDenied) || opening.port >= FIRST_FREE_PORT) throw error;
      try {
        return await this.#listen(opening, opening.port + STAND_IN_OFFSET);
      } catch (second) {
        if (!(second instanceof NoPortError)) throw second;
        throw new NoPortError(`no right to port ${opening.port}, and ${second.message}`, false);
      }
    }
  }

  async #listen(opening: Opening, port: number): Promise<SharedPortal> {
    const { family, shared } = this.#options;
    const { ip, protocol } = opening;
    const holder = this.#holders.get(placeOf(opening, port));
    if (holder !== undefined) {
      throw new NoPortError(`${protocol} ${joinHostPort(ip, port)} is open for ${holder} already`, false);
    }
    return await shared.open({ family, protocol, ip, requested: port, range: { first: port, last: port } });
  }

  #report(what: string, { text, protocol, ip, port: wanted }: Opening, port: number): void {
    const standsInFor = port === wanted ? {} : { standsInFor: wanted };
    this.#options.log.info(what, {
      servicePort: text,
      protocol,
      address: joinHostPort(ip, port),
      ...standsInFor,
    });
  }
}

/** Of the port that it wants, or has. */
function placeOf({ protocol, ip, port }: Opening, actual = port): string {
  return `${protocol} ${ip} ${actual}`;
}
