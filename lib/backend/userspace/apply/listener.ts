/**
 * Userspace mode without rules, for one IP family: each Service port is open on an address of the node itself.
 *
 * @module
 */
import { type Cidr, hostCidr, joinHostPort, parseCidr, parseIp } from "../../../model/ip.ts";
import type { IpFamily, NamespacedName } from "../../../model/objects.ts";
import type { PortalFacts } from "../../../model/portals.ts";
import type { Changed, ProxyState, ServicePort } from "../../../model/state.ts";
import type { Logger } from "../../../observe/log.ts";
import { addWritten, Proxier } from "../../apply/proxier.ts";
import { NoPortError } from "../forward/relay.ts";
import {
  type Portal,
  portalOf,
  type ServicePortals,
  unservedText,
  type UserspacePlan,
} from "../plan/plan.ts";
import { Portals } from "./portals.ts";
import type { SharedPortal, SharedPortals } from "../forward/shared_portals.ts";
import { categorizeEndpoints } from "../../../model/endpoint.ts";
import { atOnce, planServicesInSteps } from "../../planning.ts";

/** Ports from here on need no right. */
const FIRST_FREE_PORT = 1024;
/** Without the right to port 80 its substitute is 8080, as people are used to. */
const STAND_IN_OFFSET = 8000;

/** Options of a {@linkcode ListeningProxier}. */
export interface ListeningOptions {
  readonly family: IpFamily;
  /** Addresses on which Services are opened. */
  readonly range: Cidr;
  readonly shared: Pick<SharedPortals, "open">;
  readonly log: Logger;
  /** Milliseconds, monotonic. Default: since the process began. */
  readonly nowMs?: () => number;
}

/** Proxier of one family without rules. A sync closes unused portals, opens new ones, and gives all their endpoints. */
export class ListeningProxier extends Proxier<null, true> {
  readonly #options: ListeningOptions;
  readonly #portals = new Portals<Opening>((opening) => this.#begin(opening));
  /** Address and port → the Service port that holds it: the wanted place, and the actual one. */
  readonly #holders = new Map<string, string>();

  constructor(options: ListeningOptions) {
    const { family, log: logger, nowMs } = options;
    super({ mode: "userspace", family, settings: null, logger, nowMs, kinds: ["services"] });
    this.#options = options;
  }

  /** There are no rules that could be damaged. */
  protected override checkDrift(): Promise<false> {
    return Promise.resolve(false);
  }

  /** Portals that are open now. */
  get facts(): readonly PortalFacts[] {
    return this.#portals.facts(this.family);
  }

  /** Leaves all portals at work, for the next proxy server. */
  leave(): void {
    this.#portals.leave();
    this.#holders.clear();
  }

  protected override total(): Readonly<Record<string, number>> {
    return { portals: this.#portals.size };
  }

  protected override async writeAll(state: ProxyState): Promise<true> {
    await this.#write(state, "all");
    return true;
  }

  protected override writeChange(state: ProxyState, changed: ReadonlySet<NamespacedName>): Promise<void> {
    return this.#write(state, changed.union(new Set(this.quarantine.due(changed))));
  }

  async #write(state: ProxyState, names: Changed): Promise<void> {
    const plan = new Map(await this.run("plan", () => this.#plan(state, names)));
    await this.run("apply", () => this.#apply(state, plan, names === "all"));
    addWritten(this.progress, { services: plan.size });
  }

  #plan(state: ProxyState, names: Changed): UserspacePlan<Opening> {
    return planListening(state, names, this.#options.range);
  }

  async #apply(
    state: ProxyState,
    plan: Map<NamespacedName, ServicePortals<Opening> | null>,
    isAll: boolean,
  ): Promise<void> {
    const { quarantine } = this;
    const closed = await this.#portals.closeUnused(plan, isAll);
    for (const { wanted, port } of closed) {
      for (const place of [placeOf(wanted), placeOf(wanted, port)]) this.#holders.delete(place);
      this.#report("Service port is closed", wanted, port);
    }
    // A Service that waited for a place has its turn in the same sync.
    const waiting = closed.length === 0 ? [] : quarantine.services.map(({ service }) => service);
    const late = new Set(waiting.filter((name) => !plan.has(name)));
    for (const [name, service] of this.#plan(state, late)) plan.set(name, service);
    const opened = async (opening: Opening, port: number, isNew: boolean): Promise<void> => {
      if (isNew) {
        for (const place of [placeOf(opening), placeOf(opening, port)]) {
          this.#holders.set(place, opening.text);
        }
      }
      await this.#portals.lead(opening);
      if (isNew) this.#report("Service port is open", opening, port);
    };
    // Ports that need no right come first: none of them gives way to a substitute for another.
    const isFree = ({ port }: Opening): number => Number(port >= FIRST_FREE_PORT);
    const order = (one: Opening, other: Opening): number => isFree(other) - isFree(one);
    quarantine.settle(plan.keys(), await this.#portals.openAll(plan, opened, { order }));
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

/** Address and port of an opening: the wanted port, or the actual one. */
function placeOf({ protocol, ip, port }: Opening, actual = port): string {
  return `${protocol} ${ip} ${actual}`;
}

/** A portal that has an address and port of the Service's own, which are in its id. */
interface Opening extends Portal {
  readonly ip: string;
  readonly port: number;
}

/** Where Services may listen: an address as the network of it alone, or a network; null if the text is neither. */
export function parseListenRange(text: string): Cidr | null {
  const ip = parseIp(text);
  return ip === null ? parseCidr(text) : hostCidr(ip);
}

/** The address of the network that has the Service's last bits: 10.96.0.10 in 127.0.0.0/8 is 127.96.0.10. */
export function listenIp(range: Cidr, clusterIP: string): string {
  const service = parseIp(clusterIP);
  if (service === null || service.family !== range.family) {
    throw new RangeError(`${clusterIP} is no address of ${range.family}`);
  }
  const bytes = range.bytes.map((byte, at) => {
    const fixed = Math.min(8, Math.max(0, range.prefixLength - 8 * at));
    return byte | service.bytes[at]! & (0xff >> fixed);
  });
  return range.family === "IPv4" ? bytes.join(".") : parseIp(groups(bytes))!.text;
}

function groups(bytes: readonly number[]): string {
  const words = Array.from({ length: 8 }, (_, at) => bytes[2 * at]! << 8 | bytes[2 * at + 1]!);
  return words.map((word) => word.toString(16)).join(":");
}

/**
 * Portals of the changed Services (all of them for `"all"`), by name, and no rules. Traffic policies do not
 * apply: the client is this node, which need not be one of the cluster.
 */
export function planListening(state: ProxyState, changed: Changed, range: Cidr): UserspacePlan<Opening> {
  const steps = planServicesInSteps(
    state,
    changed,
    range.family,
    (ports, endpoints): ServicePortals<Opening> => {
      const isServed = ({ protocol }: ServicePort): boolean => protocol !== "SCTP";
      return {
        portals: ports.filter(isServed).map((port) => {
          const anywhere = { ...port, internalPolicyLocal: false, externalPolicyLocal: false };
          const { cluster } = categorizeEndpoints(endpoints?.get(port.key) ?? [], anywhere, state.node);
          const place = { ip: listenIp(range, port.clusterIP), port: port.port };
          const portal = portalOf(port, "cluster", cluster);
          return { ...portal, ...place, id: `${portal.id} at ${joinHostPort(place.ip, place.port)}` };
        }),
        rules: [],
        unserved: ports.filter((port) => !isServed(port)).map(unservedText),
      };
    },
  );
  return atOnce(steps);
}
