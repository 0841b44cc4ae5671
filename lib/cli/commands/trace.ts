/**
 * `kproxy trace` (`explain`): the path of one packet through the rules that should be there and those that are.
 *
 * @module
 */
import { UsageError } from "../../errors.ts";
import { hostStateOf, nodeFindings, readLocalnet } from "../../inspect/live/host_network.ts";
import { desiredOf, type Look, look, type LookOptions } from "../../inspect/look.ts";
import { unknownPorts, withPortalsJudged } from "../../inspect/live/portals.ts";
import { readElements } from "../../inspect/live/unread_elements.ts";
import {
  destinationOfName,
  packetOf,
  readDestination,
  readSource,
  type TracedDestination,
  type TracedSource,
} from "../../inspect/trace/packet.ts";
import { type Trace, tracePacket } from "../../inspect/trace/trace.ts";
import { traceDocument, traceLines } from "../../inspect/trace/trace_report.ts";
import type { NamespacedName } from "../../model/objects.ts";
import type { ObjectSelection } from "../../serve/status/select_objects.ts";
import type { Flow } from "../../sim/flow.ts";
import type { RulesetSnapshot } from "../../sim/ruleset_snapshot.ts";
import { RulesetSimulator } from "../../sim/ruleset_simulator.ts";
import type { ParsedFlags } from "../flags/parse_args.ts";
import type { Io } from "../io.ts";
import { isKnown, lookOptions, noService } from "./look_options.ts";
import { printFound, printRejected } from "./output.ts";

/**
 * Prints the path of a packet.
 *
 * @returns 0; 1 if something is wrong on the node, such as live rules that do something else than the desired ones, or if a rule
 * on the packet's path is not understood
 */
export async function traceCommand(flags: ParsedFlags, io: Io): Promise<number> {
  const form = flags.outputForm("text");
  const [from, given] = flags.operands;
  if (from === undefined || given === undefined) {
    throw new UsageError(
      `"kproxy ${flags.command}" needs a source and a destination: kproxy trace SRC DST:PORT[/udp]`,
    );
  }
  const to = destinationOfName(given);
  const options = await lookOptions(flags, io);
  if (!options.wantsDesired && !options.wantsLive) {
    throw new UsageError("--no-desired and --no-live leave nothing to be walked through");
  }
  // Before anything costs time.
  if (!to.replace(/\/(?:tcp|udp|sctp|icmp)$/i, "").includes("/")) readDestination(to, new Map());
  const found = await look({ ...options, areElementsLeft: true, selection: selectionOf(to) });
  printRejected(found.objects?.rejected ?? [], io);
  const service = serviceIn(to);
  if (service !== null && found.objects !== null && !isKnown(service, found.objects)) {
    throw await noService(service, found.objects, options);
  }
  const trace = await traceOf(
    found,
    options,
    from,
    readDestination(to, found.objects?.state.states ?? new Map(), from),
  );
  await printFound(
    form,
    { document: () => traceDocument(trace), lines: () => traceLines(trace) },
    io,
  );
  return trace.findings.length + trace.unsure.length > 0 ? 1 : 0;
}

/** The Service that a destination names; null: it is an address. */
function serviceIn(to: string): NamespacedName | null {
  const service = /^([a-z][a-z0-9.-]*\/[a-z0-9.-]+)(?=[:/]|$)/i.exec(to)?.[1];
  return service?.replace(/\/(?:tcp|udp|sctp)$/i, "") ?? null;
}

/** Selects a Service by its name, or those that may own the destination: enough for one packet. */
function selectionOf(to: string): ObjectSelection {
  const service = serviceIn(to);
  if (service !== null) return { services: [service] };
  const { ip, port } = readDestination(to, new Map());
  return { addresses: [ip], nodePorts: port === 0 ? [] : [port], endpoints: [ip] };
}

async function traceOf(
  found: Look,
  options: LookOptions,
  from: string,
  to: TracedDestination,
): Promise<Trace> {
  const { around, nodeAddresses, podInterface, objects, mode } = found;
  const source: TracedSource = readSource(from, to, { around, nodeAddresses, podInterface });
  const { inInterface } = source;
  const isHere = options.wantsLive && options.liveFrom.length === 0;
  const packet = packetOf(source, to);
  const isLocalnet = [packet.source, packet.destination].some((text) => text.startsWith("127."));
  const nearer = isHere && isLocalnet ? await readLocalnet(options.exec, around) : around;
  const rules = await desiredOf(found, to.family);
  const hostState = hostStateOf(nearer, nodeAddresses, inInterface);
  const walk = (live: RulesetSnapshot): Flow => new RulesetSimulator(live).send(packet, hostState);
  const unread = found.live?.get(to.family);
  const held = unread === undefined ? null : await readElements(options.exec, unread, rules, walk);
  const { live, ...portals } = await withPortalsJudged(found.portals, held, packet, hostState, isHere);
  return tracePacket({
    family: to.family,
    packet,
    hostState,
    desired: objects === null || rules === null ? null : {
      from: objects.from,
      mode,
      state: objects.state,
      rules,
      quarantined: objects.quarantined,
    },
    live,
    findings: [...(isHere ? nodeFindings(around) : []), ...portals.findings],
    unsure: [
      ...portals.unsure,
      ...(rules === null ? [] : unknownPorts(found.portals, found.desired, packet)),
    ],
    notes: [
      ...(source.note === null ? [] : [source.note]),
      ...nearer.problems.map(({ place, message }) => `${place}: ${message}`),
    ],
  });
}
