/**
 * `kproxy check` (`diff`): the rules that should be on this node against those that are.
 *
 * @module
 */
import { UsageError } from "../../errors.ts";
import { checkNode, type FamilyCheck, isClean, lastingChecks, mayPass } from "../../inspect/check/check.ts";
import {
  checkDocument,
  checkLines,
  type CheckReport,
  differenceCount,
  type RepairReport,
} from "../../inspect/check/report.ts";
import { STDIN_PATH } from "../../source/files/manifest_files.ts";
import { type DesiredInput, nodeNameFinding } from "../../inspect/desired/desired.ts";
import type { FoundObjects } from "../../inspect/objects.ts";
import { proxyOfTable } from "../../inspect/live/live.ts";
import { type Look, look, type LookOptions } from "../../inspect/look.ts";
import { baseOf } from "../../netfilter/nft_ruleset.ts";
import { silentLogger } from "../../observe/log.ts";
import type { ParsedFlags } from "../flags/parse_args.ts";
import type { Io } from "../io.ts";
import { runningSettings } from "../../inspect/running/running.ts";
import { modeFinding } from "../../inspect/trace/trace.ts";
import { audit } from "./audit.ts";
import { lookOptions } from "./look_options.ts";
import { printFound, printRejected, warnUnserved } from "./output.ts";

/**
 * Prints the differences.
 *
 * @returns 0 if there are none, 1 if there are some or something could not be read
 */
export async function checkCommand(flags: ParsedFlags, io: Io): Promise<number> {
  const form = flags.outputForm("text");
  let options = await lookOptions(flags, io);
  const wantsRepair = flags.get("repair") ?? false;
  if (wantsRepair && options.liveFrom.length > 0) {
    throw new UsageError("--repair writes the rules of this node, and --live-from reads those of files");
  }
  if (wantsRepair) options = await optionsToRepair(options);
  let seen = await seenTwice(options);
  printRejected(seen.objects.rejected, io);
  doubtsOf(seen).forEach(options.report);
  let repaired: RepairReport | null = null;
  if (wantsRepair) {
    repaired = await repairNode(seen, options, io);
    if (repaired === null) return 1;
    if (repaired.families.length > 0) {
      const { found: { mode, config }, objects: { from } } = seen;
      const { families, before } = repaired;
      await audit(
        "repair",
        { mode, families: families.join(","), differences: before, from },
        config,
        io,
      );
      seen = await seenTwice(options);
    }
  }
  const report: CheckReport = {
    mode: seen.found.mode,
    desiredFrom: seen.objects.from,
    liveFrom: [...seen.found.live?.values() ?? []][0]?.from ?? "nothing",
    families: seen.checks,
    repair: repaired,
  };
  await printFound(form, { document: () => checkDocument(report), lines: () => checkLines(report) }, io);
  // Objects and rules that were not read may hide any difference.
  const isRead = seen.objects.rejected.length === 0 &&
    seen.checks.every(({ problems }) => problems.every(({ place }) => isBesideServices(place, seen.found)));
  return isRead && seen.checks.every(isClean) ? 0 : 1;
}

/**
 * Options for a repair: rules come from files or the API server, as the kproxy that runs here is set to ask it, and not from its state:
 * an answer in its name may have been another program's.
 */
async function optionsToRepair(options: LookOptions): Promise<LookOptions> {
  const { config } = options;
  if (options.isSourceNamed || config.kproxy.manifests.length > 0) return options;
  const running = await runningSettings(config);
  if (running === null || !running.isTrusted) {
    const unasked = running === null
      ? `no kproxy answers on ${config.kproxy.socket || "a socket"}`
      : `${running.where} runs as another user, who may not say where rules come from`;
    return { ...options, unasked };
  }
  const { kproxy, mode, ...settings } = running.config;
  if (kproxy.manifests.includes(STDIN_PATH)) {
    throw new UsageError(
      `${running.where} has read its objects from its standard input: name files with --manifests=PATH`,
    );
  }
  return {
    ...options,
    config: {
      ...settings,
      kproxy,
      mode: options.isModeNamed ? config.mode : mode,
      hostnameOverride: running.nodeName,
    },
    master: running.master,
    isSourceNamed: true,
    isModeNamed: true,
  };
}

/** Hooks that packets to Services pass after kproxy's rules: foreign rules there hide nothing that is compared. */
const LATE_HOOKS: readonly string[] = ["forward", "input", "postrouting"];

function isBesideServices(place: string, { live }: Look): boolean {
  const [, label = "", name = ""] = /\btable (\S+ \S+) chain (\S+)/.exec(place) ?? [];
  const tables = [...live?.values() ?? []].flatMap(({ nftables }) => nftables);
  const bases = tables.filter((table) => table.name === label).map(({ chains }) =>
    baseOf(chains.get(name)?.hook)
  );
  return proxyOfTable(label) === null && bases.length > 0 &&
    bases.every((base) => LATE_HOOKS.includes(base?.hook ?? ""));
}

/** The desired rules of the node, compared with the live ones. */
interface Seen {
  readonly found: Look;
  readonly objects: FoundObjects;
  readonly desired: DesiredInput;
  readonly checks: readonly FamilyCheck[];
}

/** Compares the node; differences count if a second look finds them, too. Files do not change while they are read. */
async function seenTwice(options: LookOptions): Promise<Seen> {
  const first = await seenNode(options);
  if (options.liveFrom.length > 0 || !mayPass(first.checks)) return first;
  const again = await seenNode(options);
  return { ...again, checks: lastingChecks(first.checks, again.checks) };
}

async function seenNode(options: LookOptions): Promise<Seen> {
  const found = await look({ ...options, wantsDesired: true, wantsLive: true, isCounted: false });
  const { objects, desired, live, mode, nodeAddresses, podInterface } = found;
  if (objects === null || desired === null || live === null) {
    throw new RangeError("Both sides were asked for");
  }
  warnUnserved(objects.state.unserved, options.report);
  const checks = await checkNode({
    mode,
    desired,
    live,
    isKernel: options.liveFrom.length === 0,
    nodeAddresses,
    podInterface,
    quarantined: objects.quarantined,
    portals: found.portals,
  });
  return { found, objects, desired, checks };
}

/** Reasons to doubt that these are the rules that this node should have. */
function doubtsOf({ found, objects, checks }: Seen): readonly string[] {
  const modes = [...found.live?.values() ?? []].flatMap((live) => modeFinding(found.mode, live));
  return [...new Set([...modes, ...doubtsOfRepair(found, objects, checks)])];
}

/** Reasons why rules made from these objects and this configuration may be another node's. */
function doubtsOfRepair(
  found: Look,
  { state }: FoundObjects,
  checks: readonly FamilyCheck[],
): readonly string[] {
  const cidrs = found.config.detectLocalMode === "ClusterCIDR" && found.config.clusterCIDR === ""
    ? otherClusterCidrs(checks)
    : [];
  return [
    ...nodeNameFinding(state, found.nodeAddresses),
    ...(cidrs.length === 0 ? [] : [
      `Rules that are there go by cluster CIDR ${cidrs.join(",")}: --cluster-cidr=${
        cidrs.join(",")
      } is missing`,
    ]),
  ];
}

/** Networks by which surplus rules distinguish sources inside of the cluster from others. */
function otherClusterCidrs(checks: readonly FamilyCheck[]): readonly string[] {
  const rules = checks.flatMap(({ services }) => [...services.values()].flat()).flatMap(({ found }) => found);
  return [...new Set(rules.flatMap((rule) => /(?:! -s|saddr !=) (\S+)/.exec(rule)?.[1] ?? []))].sort();
}

/** True if live rules of kproxy's are surplus by the objects that could be read. */
function takesAway(checks: readonly FamilyCheck[]): boolean {
  return checks.some(({ base, services, leftovers }) =>
    [...base, ...leftovers, ...[...services.values()].flat()].some(({ kind, found }) =>
      kind !== "foreign" && kind !== "otherMode" && found.length > 0
    )
  );
}

/** Repairs the node; null if that was refused, and the reason was printed. */
async function repairNode(seen: Seen, { exec }: LookOptions, io: Io): Promise<RepairReport | null> {
  const { found: { mode, config }, desired, checks } = seen;
  const { damagedFamilies, repair, repairLeave } = await import("../../inspect/check/repair.ts");
  if (damagedFamilies(checks).length === 0) return { families: [], note: null, before: 0, refused: [] };
  const leave = await repairLeave(config, mode);
  const refusal = leave.isAllowed ? refusalOf(seen) : leave.reason;
  if (!leave.isAllowed || refusal !== null) {
    io.err(`Error: nothing is repaired: ${refusal}\n`);
    return null;
  }
  const before = checks.reduce((sum, check) => sum + differenceCount(check), 0);
  const { families, refused } = await repair({ exec, mode, desired, checks, log: silentLogger });
  return { families, note: leave.note, before, refused };
}

/** Reason to doubt that a repair would write what this node should have; null: there is none. */
function refusalOf({ found, objects, checks }: Seen): string | null {
  if (objects.rejected.length > 0 && takesAway(checks)) {
    return "rules that are there would go, and they may be those of the objects that cannot be read";
  }
  if (doubtsOfRepair(found, objects, checks).length > 0) {
    return "the rules may be those of another node or configuration";
  }
  const { mode, portals } = found;
  if (mode !== "userspace" || (portals !== null && typeof portals !== "string")) return null;
  return "rules of mode userspace lead to ports of a kproxy that runs, and none says which it has: " +
    `${portals ?? "no kproxy was asked"}`;
}
