/**
 * `kproxy service list` and `kproxy service get NAMESPACE/NAME`: Services, what their endpoints are used for, and what the kernel
 * holds for them.
 *
 * @module
 */
import { FAMILIES } from "../../model/objects.ts";
import { UsageError } from "../../errors.ts";
import { stateOf } from "../../inspect/desired/desired.ts";
import { desiredOf, liveNear, type Look, look } from "../../inspect/look.ts";
import type { FoundObjects } from "../../inspect/objects.ts";
import { serviceDocument, serviceLines, type ServiceView, serviceView } from "../../inspect/service_view.ts";
import type { HeldRules } from "../../sim/node/held_rules.ts";
import { listDocument, listRows } from "../../inspect/service_list.ts";
import { didYouMean } from "../suggest.ts";
import { outputForm } from "../flags/output_form.ts";
import type { ParsedFlags } from "../flags/parse_args.ts";
import type { Io } from "../io.ts";
import { alignColumns } from "../terminal/columns.ts";
import { printableJson, reportLine } from "../terminal/printable.ts";
import { lookingOf } from "./looking.ts";

const ACTIONS = ["list", "get"] as const;

/**
 * Prints Services, or one of them.
 *
 * @returns 0; 1 if there is no such Service, or if what should be in the kernel for it is not there
 */
export async function serviceCommand(flags: ParsedFlags, io: Io): Promise<number> {
  const form = outputForm(flags, "text");
  const [word, name] = flags.operands;
  const action = ACTIONS.find((one) => one === word);
  if (action === undefined || (action === "get") !== (name !== undefined)) {
    const hint = word === undefined || action !== undefined ? "" : didYouMean(word, ACTIONS);
    throw new UsageError(`Write kproxy service list or kproxy service get NAMESPACE/NAME${hint}`);
  }
  const { options, warn } = await lookingOf(flags, io);
  const selection = name === undefined ? {} : { services: [name] };
  const found = await look({ ...options, wantsDesired: true, isNear: action === "get", selection });
  const { objects } = found;
  if (objects === null) throw new RangeError("Objects were asked for");
  for (const { where, object, message } of objects.rejected) {
    io.err(`Error: ${where}: ${object}: ${message}\n`);
  }
  const { lines, document, code } = action === "list"
    ? listed(found, objects)
    : await oneOf(found, objects, name ?? "", warn);
  await io.out(
    form === "json" ? `${printableJson(document)}\n` : lines.map(reportLine).join(""),
  );
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
  );
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
  return { lines: alignColumns([header, ...cells]), document: listDocument(rows), code: isWhole ? 0 : 1 };
}

async function viewsOf(
  found: Look,
  { state, quarantined }: FoundObjects,
  name: string,
  warn: (sentence: string) => void,
): Promise<readonly ServiceView[]> {
  const { nodeAddresses } = found;
  const views = await Promise.all(FAMILIES.map(async (family) => {
    const ofFamily = stateOf(state, family);
    if (!ofFamily.services.has(name)) return [];
    const viewIn = (live: HeldRules | null): readonly ServiceView[] =>
      serviceView({ state: ofFamily, name, live, nodeAddresses, quarantined });
    const desired = found.near === null ? null : await desiredOf(found, family, warn);
    return viewIn(await liveNear(found, family, { desired, use: viewIn }));
  }));
  return views.flat();
}

async function oneOf(
  found: Look,
  objects: FoundObjects,
  name: string,
  warn: (sentence: string) => void,
): Promise<Printed> {
  const views = await viewsOf(found, objects, name, warn);
  const unserved = objects.state.unserved.filter(({ service }) => service === name);
  if (views.length === 0 && unserved.length === 0) {
    const known = [
      ...new Set(FAMILIES.flatMap((family) => [...stateOf(objects.state, family).services.keys()])),
    ];
    throw new Error(`There is no Service ${name} with a cluster IP${didYouMean(name, known)}`);
  }
  const isMissing = views.some(({ parts }) => parts !== null && parts.length === 0);
  return {
    lines: [
      ...serviceLines(views, alignColumns),
      ...unserved.map(({ destination, reason }) => `Not served: ${destination}: ${reason}`),
    ],
    document: serviceDocument(name, views, unserved),
    code: isMissing ? 1 : 0,
  };
}
