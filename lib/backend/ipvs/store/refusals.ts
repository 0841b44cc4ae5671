/**
 * What the tools refuse of what Services want: single real servers, virtual servers, entries. A plan without these is what the
 * kernel can hold.
 *
 * @module
 */
import type { NamespacedName } from "../../../model/objects.ts";
import { addEntryLine } from "../../../netfilter/ipset.ts";
import { addAddressLine } from "../../../netfilter/ip_batch.ts";
import { addRealServerLine, addVirtualServerLine, updateVirtualServerLine } from "../../../netfilter/ipvs.ts";
import { RETRY_MS } from "../../quarantine.ts";
import { OUT_FILTER_CHAIN } from "../plan/base_rules.ts";
import {
  DEVICE,
  type Entry,
  type IpvsPlan,
  type ServiceObjects,
  type WantedServer,
} from "../plan/ruleset.ts";
import { setName } from "../plan/sets.ts";
import { realServerOf } from "./objects.ts";

/** One line that a program refused while it took others. */
export interface RefusedLine {
  readonly program: "ipvsadm" | "ipset" | "ip" | "iptables";
  readonly line: string;
  readonly problem: string;
}

/** One part of a Service that stays away. */
interface RefusedPart {
  /** For humans, e.g. `address 10.96.0.1:80/TCP`. */
  readonly name: string;
  readonly problem: string;
  readonly refusedAtMs: number;
  /** It costs the others nothing to try it. */
  readonly isEndpoint: boolean;
}

/** A part of what a Service wants, which is there as a whole or not at all. */
interface Part {
  /** All that it is made of: something else under the same name is tried at once. */
  readonly id: string;
  readonly name: string;
  /** What writes it. */
  readonly lines: readonly string[];
}

/** True if everything but the endpoint can stay as it was written: nothing else depends on it. */
export function isEndpoint({ program, line }: RefusedLine): boolean {
  return program === "ipvsadm" && line.startsWith("-a ");
}

/** Of one family. */
export class Refusals {
  readonly #nowMs: () => number;
  /** Service → refused part, by its id. */
  readonly #services = new Map<NamespacedName, Map<string, RefusedPart>>();

  /** @param nowMs milliseconds, monotonic */
  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  /** Forgets everything, so that everything is tried. */
  retryAll(): void {
    this.#services.clear();
  }

  /** Forgets what is to be tried again in this Service: its endpoints, and what was refused long enough ago. */
  retry(service: NamespacedName): void {
    this.#keep(
      service,
      ([, { isEndpoint, refusedAtMs }]) => !isEndpoint && this.#nowMs() - refusedAtMs < RETRY_MS,
    );
  }

  /** Forgets what the Services of the plan do not want any more. */
  prune({ all, base, services }: IpvsPlan): void {
    for (const name of [...this.#services.keys()]) {
      if (!all && !services.has(name)) continue;
      const wanted = new Set<string>();
      for (const { id } of partsOf(services.get(name) ?? NOTHING, setName("KUBE-IPVS-IPS", base.family))) {
        wanted.add(id);
      }
      this.#keep(name, ([id]) => wanted.has(id));
    }
  }

  /** The plan without what is refused. */
  without(plan: IpvsPlan): IpvsPlan {
    if (this.#services.size === 0) return plan;
    const services = new Map(plan.services);
    for (const [name, refused] of this.#services) {
      const objects = services.get(name);
      if (objects) services.set(name, objectsWithout(objects, refused));
    }
    return { ...plan, services };
  }

  /**
   * Takes over what was refused of the plan.
   *
   * @returns lines that no Service of the plan is to blame for
   */
  blame(refused: readonly RefusedLine[], { base, services }: IpvsPlan): readonly RefusedLine[] {
    const byLine = new Map(refused.map((line) => [line.line, line]));
    const blamed = new Set<RefusedLine>();
    for (const [service, objects] of refused.length === 0 ? [] : services) {
      for (const { id, name, lines } of partsOf(objects ?? NOTHING, setName("KUBE-IPVS-IPS", base.family))) {
        for (const line of lines) {
          const found = byLine.get(line);
          if (found === undefined) continue;
          blamed.add(found);
          const parts = this.#services.get(service) ?? new Map<string, RefusedPart>();
          this.#services.set(service, parts);
          parts.set(id, {
            name,
            problem: `${found.program}: ${found.problem}`,
            refusedAtMs: this.#nowMs(),
            isEndpoint: isEndpoint(found),
          });
        }
      }
    }
    return refused.filter((line) => !blamed.has(line));
  }

  /** What is refused of the Service, in words; null: nothing. */
  problemOf(service: NamespacedName): string | null {
    const parts = this.#services.get(service)?.values() ?? [];
    const problems = new Set(Array.from(parts, ({ name, problem }) => `${name}: ${problem}`));
    const [first = null, ...others] = [...problems].sort();
    return first === null || others.length === 0 ? first : `${first} (and ${others.length} more)`;
  }

  /** Those of which something is refused. */
  get services(): Iterable<NamespacedName> {
    return this.#services.keys();
  }

  #keep(service: NamespacedName, isKept: (part: readonly [id: string, RefusedPart]) => boolean): void {
    const kept = [...this.#services.get(service) ?? []].filter(isKept);
    if (kept.length === 0) this.#services.delete(service);
    else this.#services.set(service, new Map(kept));
  }
}

const NOTHING: ServiceObjects = { servers: [], entries: [] };

function* partsOf({ servers, entries }: ServiceObjects, ipsSet: string): Generator<Part> {
  for (const wanted of servers) {
    const { key, server, realServers } = wanted;
    yield { id: serverId(wanted), name: `address ${key}`, lines: serverLines(wanted, ipsSet) };
    for (const real of realServers) {
      yield {
        id: endpointId(key, real),
        name: `endpoint ${real}`,
        lines: [addRealServerLine(server, realServerOf(real))],
      };
    }
  }
  for (const entry of entries) yield { id: entry, name: `entry ${entry}`, lines: [entryLine(entry)] };
}

/** Everything about a server but its real ones. */
function serverId({ server, bind, outFilter, entries }: WantedServer): string {
  return [addVirtualServerLine(server), bind, outFilter, ...entries].join("\n");
}

function endpointId(serverKey: string, realServer: string): string {
  return `${serverKey} ${realServer}`;
}

function serverLines({ server, bind, outFilter, entries }: WantedServer, ipsSet: string): readonly string[] {
  const { address } = server;
  return [
    addVirtualServerLine(server),
    updateVirtualServerLine(server),
    ...entries.map(entryLine),
    ...outFilter === "" ? [] : [`-A ${OUT_FILTER_CHAIN} ${outFilter}`],
    ...bind ? [addEntryLine(ipsSet, address), addAddressLine(DEVICE, address)] : [],
  ];
}

function entryLine(entry: Entry): string {
  return `add ${entry}`;
}

function objectsWithout(
  { servers, entries }: ServiceObjects,
  refused: ReadonlyMap<string, RefusedPart>,
): ServiceObjects {
  return {
    servers: servers.filter((server) => !refused.has(serverId(server))).map((server) => ({
      ...server,
      realServers: server.realServers.filter((real) => !refused.has(endpointId(server.key, real))),
    })),
    entries: entries.filter((entry) => !refused.has(entry)),
  };
}
