/**
 * Parts of Services that the tools refuse: single real servers, virtual servers with all that belongs to
 * them, entries. A plan without these parts is what the kernel can hold.
 *
 * @module
 */
import type { IpFamily, NamespacedName } from "../../../model/objects.ts";
import { addEntryLine } from "../../../netfilter/ipset.ts";
import { addAddressLine } from "../../../netfilter/ip_batch.ts";
import { addRealServerLine, addVirtualServerLine, updateVirtualServerLine } from "../../../netfilter/ipvs.ts";
import type { Quarantine, RefusedService } from "../../quarantine.ts";
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

/** Thrown if lines are refused on which others depend, so that not all of them were written. */
export class RefusedLinesError extends Error {
  readonly lines: readonly RefusedLine[];

  constructor(lines: readonly RefusedLine[]) {
    super(lines.map(({ program, problem }) => `${program}: ${problem}`)[0] ?? "nothing is refused");
    this.lines = lines;
  }
}

const ADD_REAL_SERVER = "-a ";

/** True if everything but the endpoint can stay as it was written: nothing else depends on it. */
export function isEndpoint({ program, line }: RefusedLine): boolean {
  return program === "ipvsadm" && line.startsWith(ADD_REAL_SERVER);
}

/** A part of a Service's objects, which is written as a whole or not at all. */
interface Part {
  /** All lines that write it: something else under the same name is tried at once. */
  readonly id: string;
  readonly lines: readonly string[];
  /** For humans, e.g. `address 10.96.0.1:80/TCP`. */
  readonly name: string;
}

/**
 * Finds the Services that own refused lines, with the part that each line writes.
 *
 * @throws {RefusedLinesError} if no Service of the plan is to blame for one of them
 */
export function blame(
  refused: readonly RefusedLine[],
  { base, services }: IpvsPlan,
): readonly RefusedService[] {
  const byLine = new Map(refused.map((line) => [line.line, line]));
  const unknown = new Set(refused);
  const found: RefusedService[] = [];
  for (const [service, objects] of refused.length === 0 ? [] : services) {
    for (const { id, name, lines } of partsOf(objects, base.family)) {
      for (const line of lines) {
        const one = byLine.get(line);
        if (one === undefined) continue;
        unknown.delete(one);
        found.push({ service, part: id, problem: `${name}: ${one.program}: ${one.problem}` });
      }
    }
  }
  if (unknown.size > 0) throw new RefusedLinesError([...unknown]);
  return found;
}

/** Forgets refused parts that the Services of the plan do not want any more. */
export function forgetUnwanted(quarantine: Quarantine, { all, base, services }: IpvsPlan): void {
  for (const { service } of quarantine.services) {
    if (!all && !services.has(service)) continue;
    const wanted = new Set<string>();
    for (const { id } of partsOf(services.get(service), base.family)) wanted.add(id);
    quarantine.keepParts(service, (part) => wanted.has(part));
  }
}

/**
 * Forgets parts of a Service to try with the next sync: an endpoint whenever its Service changes, which costs
 * the others nothing; the rest a while after it was refused.
 */
export function forgetDueParts(quarantine: Quarantine, service: NamespacedName): void {
  quarantine.keepParts(
    service,
    (part) => !part.startsWith(ADD_REAL_SERVER) && !quarantine.isPartDue(service, part),
  );
}

/** The plan without refused parts. */
export function withoutRefused(plan: IpvsPlan, quarantine: Quarantine): IpvsPlan {
  const services = new Map(plan.services);
  for (const { service } of quarantine.services) {
    const objects = services.get(service);
    if (!objects) continue;
    const refused = quarantine.parts(service);
    const isIn = ({ id }: Part): boolean => !refused.has(id);
    services.set(service, {
      servers: objects.servers.filter((server) => isIn(serverPart(server, plan.base.family))).map((
        server,
      ) => ({
        ...server,
        realServers: server.realServers.filter((real) => isIn(endpointPart(server, real))),
      })),
      entries: objects.entries.filter((entry) => isIn(entryPart(entry))),
    });
  }
  return { ...plan, services };
}

function* partsOf(objects: ServiceObjects | null | undefined, family: IpFamily): Generator<Part> {
  for (const server of objects?.servers ?? []) {
    yield serverPart(server, family);
    for (const real of server.realServers) yield endpointPart(server, real);
  }
  for (const entry of objects?.entries ?? []) yield entryPart(entry);
}

function partOf(name: string, ...lines: readonly string[]): Part {
  return { id: lines.join("\n"), lines, name };
}

/** A virtual server without its real ones. */
function serverPart({ key, server, bind, outFilter, entries }: WantedServer, family: IpFamily): Part {
  const { address } = server;
  return partOf(
    `address ${key}`,
    addVirtualServerLine(server),
    updateVirtualServerLine(server),
    ...entries.map((entry) => `add ${entry}`),
    ...outFilter === "" ? [] : [`-A ${OUT_FILTER_CHAIN} ${outFilter}`],
    ...bind ? [addEntryLine(setName("KUBE-IPVS-IPS", family), address), addAddressLine(DEVICE, address)] : [],
  );
}

function endpointPart({ server }: WantedServer, real: string): Part {
  return partOf(`endpoint ${real}`, addRealServerLine(server, realServerOf(real)));
}

function entryPart(entry: Entry): Part {
  return partOf(`entry ${entry}`, `add ${entry}`);
}
