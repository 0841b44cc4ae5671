/**
 * `kproxy check` (`diff`): the rules that should be on this node against those that are.
 *
 * @module
 */
import { UsageError } from "../../errors.ts";
import { checkNode, planAhead, type PlansAhead } from "../../inspect/check/check.ts";
import {
  checkDocument,
  type CheckReport,
  differenceCount,
  type RepairReport,
} from "../../inspect/check/check_json.ts";
import { checkLines } from "../../inspect/check/check_text.ts";
import { type FamilyCheck, isClean } from "../../inspect/check/difference.ts";
import { nodeNameFinding } from "../../inspect/node_name_finding.ts";
import type { FoundObjects } from "../../inspect/objects.ts";
import { desiredInput, type Look, look } from "../../inspect/look.ts";
import { silentLogger } from "../../observe/log.ts";
import { outputForm } from "../flags/output_form.ts";
import type { ParsedFlags } from "../flags/parse_args.ts";
import type { Io } from "../io.ts";
import { type Looking, lookingOf } from "./looking.ts";
import { tellFound, tellRejected } from "./telling.ts";

/**
 * Prints what differs.
 *
 * @returns 0 if nothing does, 1 if something does or could not be read
 */
export async function checkCommand(flags: ParsedFlags, io: Io): Promise<number> {
  const form = outputForm(flags, "text");
  const looking = await lookingOf(flags, io);
  const wantsRepair = flags.get("repair") ?? false;
  if (wantsRepair && looking.options.liveFrom.length > 0) {
    throw new UsageError("--repair writes the rules of this node, and --live-from reads those of files");
  }
  let seen = await seenNode(looking);
  tellRejected(seen.objects.rejected, io);
  const [unnamed] = nodeNameFinding(seen.objects.state, seen.found.nodeAddresses);
  if (unnamed !== undefined) looking.warn(unnamed);
  let repaired: RepairReport | null = null;
  if (wantsRepair) {
    repaired = await repairNode(seen, looking, io);
    if (repaired === null) return 1;
    if (repaired.families.length > 0) seen = await seenNode(looking);
  }
  const report: CheckReport = {
    mode: seen.found.plane,
    desiredFrom: seen.objects.from,
    liveFrom: [...seen.found.live?.values() ?? []][0]?.from ?? "nothing",
    families: seen.checks,
    repair: repaired,
  };
  await tellFound(form, { document: () => checkDocument(report), lines: () => checkLines(report) }, io);
  // What was not read may hide anything.
  const isRead = seen.objects.rejected.length === 0 &&
    seen.checks.every(({ problems }) => problems.length === 0);
  return isRead && seen.checks.every(isClean) ? 0 : 1;
}

/** The node as it was looked at. */
interface Seen {
  readonly found: Look;
  readonly objects: FoundObjects;
  readonly checks: readonly FamilyCheck[];
}

async function seenNode({ options, warn }: Looking): Promise<Seen> {
  let plans: PlansAhead = {};
  const meanwhile = async (early: Look): Promise<void> => {
    if (early.objects === null) return;
    plans = await planAhead(early.plane, desiredInput(early, early.objects, warn));
  };
  const found = await look({ ...options, wantsDesired: true, wantsLive: true, meanwhile });
  const { objects, live, plane, nodeAddresses, podInterface } = found;
  if (objects === null || live === null) throw new RangeError("Both sides were asked for");
  const checks = await checkNode({
    plane,
    desired: desiredInput(found, objects, warn),
    live,
    isKernel: options.liveFrom.length === 0,
    nodeAddresses,
    podInterface,
    quarantined: objects.quarantined,
    plans,
  });
  return { found, objects, checks };
}

/** True if something of ours that is there is not wanted by the objects that could be read. */
function takesAway(checks: readonly FamilyCheck[]): boolean {
  return checks.some(({ base, services, leftovers }) =>
    [...base, ...leftovers, ...[...services.values()].flat()].some(({ kind, found }) =>
      kind !== "foreign" && kind !== "otherMode" && found.length > 0
    )
  );
}

/** Null: it was refused, and said why. */
async function repairNode(
  { found, objects, checks }: Seen,
  { options, warn }: Looking,
  io: Io,
): Promise<RepairReport | null> {
  const { damagedFamilies, repair, repairLeave } = await import("../../inspect/check/repair.ts");
  if (damagedFamilies(checks).length === 0) return { families: [], note: null, before: 0, refused: [] };
  const leave = await repairLeave(found.config, found.plane);
  if (!leave.isAllowed) {
    io.err(`Error: nothing is repaired: ${leave.reason}\n`);
    return null;
  }
  if (objects.rejected.length > 0 && takesAway(checks)) {
    io.err(
      "Error: nothing is repaired: rules that are there would go, and they may be those of the objects that cannot be read\n",
    );
    return null;
  }
  if (nodeNameFinding(objects.state, found.nodeAddresses).length > 0) {
    io.err("Error: nothing is repaired: the rules would be those of another node\n");
    return null;
  }
  const before = checks.reduce((sum, check) => sum + differenceCount(check), 0);
  const { families, refused } = await repair({
    exec: options.exec,
    plane: found.plane,
    desired: desiredInput(found, objects, warn),
    checks,
    log: silentLogger,
  });
  return { families, note: leave.note, before, refused };
}
