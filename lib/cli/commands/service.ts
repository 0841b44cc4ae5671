/**
 * `kproxy service list` and `kproxy service get NAMESPACE/NAME`: Services, what their endpoints are used for, and what the kernel
 * holds for them.
 *
 * @module
 */
import { FAMILIES } from "../../model/objects.ts";
import { UsageError } from "../../errors.ts";
import { stateOf } from "../../inspect/desired/desired.ts";
import { type LiveProblem, uniqueProblems } from "../../inspect/live/live.ts";
import { readElements } from "../../inspect/live/unread_elements.ts";
import { desiredOf, type Look, look } from "../../inspect/look.ts";
import type { FoundObjects } from "../../inspect/objects.ts";
import {
  byName,
  listDocument,
  listRows,
  serviceDocument,
  serviceLines,
  type ServiceView,
  serviceView,
} from "../../inspect/service/service_view.ts";
import type { RulesetSnapshot } from "../../sim/ruleset_snapshot.ts";
import { problemLines } from "../../inspect/trace/trace_report.ts";
import type { Exec } from "../../kernel/exec.ts";
import { didYouMean } from "../../config/suggest.ts";
import type { ParsedFlags } from "../flags/parse_args.ts";
import type { Io } from "../io.ts";
import { alignColumns } from "../../text/columns.ts";
import { isKnown, lookOptions, noService } from "./look_options.ts";
import { printFound, printRejected } from "./output.ts";

const ACTIONS = ["list", "get"] as const;

/**
 * Prints all Services, or one.
 *
 * @returns 0; 1 if there is no such Service, or if what should be in the kernel for it is not there
 */
export async function serviceCommand(flags: ParsedFlags, io: Io): Promise<number> {
  const form = flags.outputForm("text");
  const [word, name] = flags.operands;
  const action = ACTIONS.find((one) => one === word);
  if (action === undefined || (action === "get") !== (name !== undefined)) {
    const hint = word === undefined || action !== undefined ? "" : didYouMean(word, ACTIONS);
    throw new UsageError(`Write kproxy service list or kproxy service get NAMESPACE/NAME${hint}`);
  }
  if (name !== undefined && !/^[^/:]+\/[^/:]+$/.test(name)) {
    throw new UsageError(`"${name}" is no Service's name: write NAMESPACE/NAME, without a port`);
  }
  const options = await lookOptions(flags, io);
  const selection = name === undefined ? {} : { services: [name] };
  const found = await look({ ...options, wantsDesired: true, areElementsLeft: action === "get", selection });
  const { objects } = found;
  if (objects === null) throw new RangeError("Objects were asked for");
  printRejected(objects.rejected, io);
  if (name !== undefined && !isKnown(name, objects)) throw await noService(name, objects, options);
  const { lines, document, code } = action === "list"
    ? listed(found, objects)
    : await oneOf(found, objects, name ?? "", options.exec);
  await printFound(form, { document: () => document, lines: () => lines }, io);
  return code;
}

interface Printed {
  readonly lines: readonly string[];
  readonly document: unknown;
  readonly code: number;
}

function listed(found: Look, objects: FoundObjects): Printed {
  const rows = FAMILIES.flatMap((family) =>
    listRows(stateOf(objects.state, family), found.live?.get(family) ?? null, objects.quarantined)
  ).sort(byName);
  const header = ["SERVICE", "PORT", "ADDRESS", "NODE PORT", "ENDPOINTS", "KERNEL", ""];
  const cells = rows.map((row) => [
    row.service,
    row.port,
    row.address,
    row.nodePort === 0 ? "-" : String(row.nodePort),
    `${row.used}/${row.endpoints}`,
    row.isHeld === null ? "-" : row.isHeld ? "yes" : "no",
    row.note,
  ]);
  const isWhole = rows.every(({ isHeld }) => isHeld !== false);
  const { unserved } = objects.state;
  const problems = uniqueProblems([...found.live?.values() ?? []].flatMap((live) => live.problems));
  return {
    lines: [
      ...alignColumns([header, ...cells]),
      ...unserved.map(({ service, destination, reason }) =>
        `Not served: ${service}: ${destination}: ${reason}`
      ),
      ...problemLines(problems),
    ],
    document: listDocument(rows, unserved, problems),
    code: isWhole ? 0 : 1,
  };
}

async function oneOf(found: Look, objects: FoundObjects, name: string, exec: Exec): Promise<Printed> {
  const { nodeAddresses } = found;
  const { quarantined, state } = objects;
  const problems: LiveProblem[] = [];
  const views: ServiceView[] = [];
  for (const family of FAMILIES) {
    const ofFamily = stateOf(state, family);
    if (!ofFamily.services.has(name)) continue;
    const viewIn = (live: RulesetSnapshot | null): readonly ServiceView[] =>
      serviceView({ state: ofFamily, name, live, nodeAddresses, quarantined, objects: state.objects });
    const held = found.live?.get(family);
    const live = held === undefined
      ? null
      : await readElements(exec, held, await desiredOf(found, family), viewIn);
    problems.push(...live?.problems ?? []);
    views.push(...viewIn(live));
  }
  const unserved = objects.state.unserved.filter(({ service }) => service === name);
  const isMissing = views.some(({ parts }) => parts !== null && parts.length === 0);
  return {
    lines: [
      ...serviceLines(views),
      ...unserved.map(({ destination, reason }) => `Not served: ${destination}: ${reason}`),
      ...problemLines(uniqueProblems(problems)),
    ],
    document: serviceDocument(name, views, unserved, uniqueProblems(problems)),
    code: isMissing ? 1 : 0,
  };
}
