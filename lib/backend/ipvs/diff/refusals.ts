/**
 * What the tools refuse of what Services claim: single real servers, virtual servers, entries. A plan without these is what the
 * kernel can hold.
 *
 * @module
 */
import type { NamespacedName } from "../../../model/objects.ts";
import { addEntryLine } from "../../../netfilter/ipset.ts";
import { addAddressLine } from "../../../netfilter/ip_batch.ts";
import { addVirtualServerLine, realServerKey, virtualServerKey } from "../../../netfilter/ipvs.ts";
import { RETRY_MS } from "../../quarantine.ts";
import { OUT_FILTER_CHAIN } from "../plan/base_rules.ts";
import { entryLine } from "./operations.ts";
import {
  DEVICE,
  type Entry,
  type IpvsPlan,
  type ServerChange,
  type ServiceClaims,
  type WantedServer,
} from "../plan/ruleset.ts";
import { setName } from "../plan/sets.ts";

/** One line that a program refused while it took others. */
export type RefusedWork =
  | { readonly program: "ipvsadm"; readonly change: ServerChange; readonly problem: string }
  | { readonly program: "ipset" | "ip" | "iptables"; readonly line: string; readonly problem: string };

/** One part that stays away. */
interface RefusedPart {
  /** What exactly was refused: something else under the same key is tried at once. */
  readonly what: string;
  readonly problem: string;
  readonly refusedAtMs: number;
}

/** What is refused of one Service. */
interface ServiceRefusals {
  /** By key; with all that belongs to it. */
  readonly servers: Map<string, RefusedPart>;
  /** Virtual server → real server, by their keys. */
  readonly realServers: Map<string, Map<string, RefusedPart>>;
  /** Those that belong to no one server. */
  readonly entries: Map<Entry, RefusedPart>;
}

/** True if everything but the endpoint can stay as it was written: nothing else depends on it. */
export function isRealServer(work: RefusedWork): boolean {
  return work.program === "ipvsadm" && work.change.kind === "addReal";
}

/** Of one family. */
export class Refusals {
  readonly #nowMs: () => number;
  readonly #services = new Map<NamespacedName, ServiceRefusals>();

  /** @param nowMs milliseconds, monotonic */
  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  /** Forgets everything, so that everything is tried. */
  retryAll(): void {
    this.#services.clear();
  }

  /**
   * Forgets what is to be tried again in this Service: its real servers, which costs the others nothing, and what was refused long
   * enough ago.
   */
  retry(service: NamespacedName): void {
    const refusals = this.#services.get(service);
    if (refusals === undefined) return;
    refusals.realServers.clear();
    const nowMs = this.#nowMs();
    for (const parts of [refusals.servers, refusals.entries]) {
      for (const [key, { refusedAtMs }] of parts) if (nowMs - refusedAtMs >= RETRY_MS) parts.delete(key);
    }
    this.#dropEmpty(service, refusals);
  }

  /** Forgets what the Services of the plan do not claim any more. */
  prune(plan: IpvsPlan): void {
    const names = plan.all ? [...this.#services.keys()] : plan.services.keys();
    for (const name of names) {
      const refusals = this.#services.get(name);
      if (refusals === undefined) continue;
      const claims = plan.services.get(name);
      const servers = new Map(claims?.servers.map((server) => [server.key, server]));
      const entries = new Set(claims?.entries);
      for (const [key, { what }] of refusals.servers) {
        const server = servers.get(key);
        if (server === undefined || signature(server) !== what) refusals.servers.delete(key);
      }
      for (const [key, parts] of refusals.realServers) {
        const wanted = new Set(servers.get(key)?.realServers);
        for (const real of parts.keys()) if (!wanted.has(real)) parts.delete(real);
        if (parts.size === 0) refusals.realServers.delete(key);
      }
      for (const entry of refusals.entries.keys()) if (!entries.has(entry)) refusals.entries.delete(entry);
      this.#dropEmpty(name, refusals);
    }
  }

  /** The plan without what is refused. */
  without(plan: IpvsPlan): IpvsPlan {
    if (this.#services.size === 0) return plan;
    const services = new Map<NamespacedName, ServiceClaims | null>();
    for (const [name, claims] of plan.services) {
      const refusals = this.#services.get(name);
      services.set(
        name,
        refusals === undefined || claims === null ? claims : claimsWithout(claims, refusals),
      );
    }
    return { ...plan, services };
  }

  /**
   * Takes over what was refused of the plan.
   *
   * @returns those that no Service of the plan is to blame for
   */
  blame(refused: readonly RefusedWork[], plan: IpvsPlan): readonly RefusedWork[] {
    const owners = new Owners(plan);
    return refused.filter((work) => {
      const found = owners.of(work);
      for (const owner of found) this.#add(owner, work);
      return found.length === 0;
    });
  }

  /** What is refused of the Service, in words; null: nothing. */
  problemOf(service: NamespacedName): string | null {
    const refusals = this.#services.get(service);
    if (refusals === undefined) return null;
    const problems = new Set<string>();
    for (const [key, { problem }] of refusals.servers) problems.add(`address ${key}: ${problem}`);
    for (const parts of refusals.realServers.values()) {
      for (const [key, { problem }] of parts) problems.add(`endpoint ${key}: ${problem}`);
    }
    for (const [entry, { problem }] of refusals.entries) problems.add(`entry ${entry}: ${problem}`);
    const [first = "", ...others] = [...problems].sort();
    return others.length === 0 ? first : `${first} (and ${others.length} more)`;
  }

  /** Those of which something is refused. */
  get services(): Iterable<NamespacedName> {
    return this.#services.keys();
  }

  #add({ service, server, entry }: Owner, work: RefusedWork): void {
    const refusals = this.#services.get(service) ??
      { servers: new Map(), realServers: new Map(), entries: new Map() };
    this.#services.set(service, refusals);
    const part = { problem: `${work.program}: ${work.problem}`, refusedAtMs: this.#nowMs() };
    if (server === null) {
      refusals.entries.set(entry, { what: entry, ...part });
    } else if (work.program === "ipvsadm" && work.change.kind === "addReal") {
      const parts = refusals.realServers.get(server.key) ?? new Map<string, RefusedPart>();
      refusals.realServers.set(server.key, parts);
      const key = realServerKey(work.change.real);
      parts.set(key, { what: key, ...part });
    } else refusals.servers.set(server.key, { what: signature(server), ...part });
  }

  #dropEmpty(service: NamespacedName, { servers, realServers, entries }: ServiceRefusals): void {
    if (servers.size + realServers.size + entries.size === 0) this.#services.delete(service);
  }
}

/** Everything about a server but its real ones. */
function signature({ server, bind, outFilter, entries }: WantedServer): string {
  return [addVirtualServerLine(server), bind, outFilter, ...entries].join("\n");
}

function claimsWithout(claims: ServiceClaims, refusals: ServiceRefusals): ServiceClaims {
  const servers: WantedServer[] = [];
  for (const server of claims.servers) {
    if (refusals.servers.get(server.key)?.what === signature(server)) continue;
    const refused = refusals.realServers.get(server.key);
    servers.push(
      refused === undefined
        ? server
        : { ...server, realServers: server.realServers.filter((key) => !refused.has(key)) },
    );
  }
  return { servers, entries: claims.entries.filter((entry) => !refusals.entries.has(entry)) };
}

/** Who wants a line: one of its servers, or the Service as such. */
type Owner =
  | { readonly service: NamespacedName; readonly server: WantedServer; readonly entry: "" }
  | { readonly service: NamespacedName; readonly server: null; readonly entry: Entry };

/** Who of a plan is behind which line. Made for the few lines that are refused. */
class Owners {
  readonly #plan: IpvsPlan;
  readonly #byKey = new Map<string, Owner[]>();
  readonly #byLine = new Map<string, Owner[]>();

  constructor(plan: IpvsPlan) {
    this.#plan = plan;
    for (const [service, claims] of plan.services) {
      for (const server of claims?.servers ?? []) {
        push(this.#byKey, server.key, { service, server, entry: "" });
      }
    }
  }

  of(work: RefusedWork): readonly Owner[] {
    if (work.program !== "ipvsadm") {
      if (this.#byLine.size === 0) this.#readLines();
      return this.#byLine.get(work.line) ?? [];
    }
    const owners = this.#byKey.get(virtualServerKey(work.change.server)) ?? [];
    switch (work.change.kind) {
      case "addReal": {
        const key = realServerKey(work.change.real);
        return owners.filter(({ server }) => server?.realServers.includes(key) === true);
      }
      case "addServer":
      case "updateServer":
        return owners;
      default:
        return [];
    }
  }

  #readLines(): void {
    const ips = setName("KUBE-IPVS-IPS", this.#plan.base.family);
    for (const [service, claims] of this.#plan.services) {
      for (const server of claims?.servers ?? []) {
        const owner: Owner = { service, server, entry: "" };
        for (const entry of server.entries) push(this.#byLine, entryLine(addEntryLine, entry), owner);
        if (server.outFilter !== "") push(this.#byLine, `-A ${OUT_FILTER_CHAIN} ${server.outFilter}`, owner);
        if (!server.bind) continue;
        const { address } = server.server;
        push(this.#byLine, addEntryLine(ips, address), owner);
        push(this.#byLine, addAddressLine(DEVICE, address), owner);
      }
      for (const entry of claims?.entries ?? []) {
        push(this.#byLine, entryLine(addEntryLine, entry), { service, server: null, entry });
      }
    }
  }
}

function push(map: Map<string, Owner[]>, key: string, owner: Owner): void {
  const known = map.get(key);
  if (known === undefined) map.set(key, [owner]);
  else known.push(owner);
}
