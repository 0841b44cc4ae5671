/**
 * Finds out by trying whether a node has the sets and the matches that the rules of IPVS mode use.
 *
 * @module
 */
import { firstLine } from "../../../text/lines.ts";
import { ExecError, UnsupportedError } from "../../../errors.ts";
import type { Exec } from "../../../kernel/exec.ts";
import { destroySets, listSets, restoreSets } from "../../../kernel/ipset.ts";
import type { Iptables } from "../../../kernel/iptables.ts";
import type { IpFamily } from "../../../model/objects.ts";
import {
  createSetLine,
  DEFAULT_MAX_ELEMENTS,
  SET_TYPES,
  type SetDefinition,
  type SetType,
} from "../../../netfilter/ipset.ts";
import { chainLine, tableBlock } from "../../../netfilter/iptables_jumps.ts";
import { isolateRefused } from "../../isolate.ts";
import { PROBE_CHAIN, probeSetName } from "../plan/sets.ts";

/** Type of set → module of the kernel. */
const SET_MODULES: Readonly<Record<SetType, string>> = {
  "hash:ip": "ip_set_hash_ip",
  "hash:ip,port": "ip_set_hash_ipport",
  "hash:ip,port,ip": "ip_set_hash_ipportip",
  "hash:ip,port,net": "ip_set_hash_ipportnet",
  "bitmap:port": "ip_set_bitmap_port",
};

/** Module of the kernel → a use of it. */
function matches(set: string): ReadonlyMap<string, string> {
  return new Map([
    ["xt_set", `-m set --match-set ${set} dst,dst`],
    ["xt_ipvs", "-m ipvs --vproto 6 --vport 1"],
    ["xt_physdev", "-m physdev ! --physdev-is-in"],
    ["xt_addrtype", "-m addrtype --dst-type LOCAL"],
    ["xt_conntrack", "-m conntrack --ctstate NEW"],
    ["xt_mark", "-m mark --mark 0x1/0x1"],
    ["xt_comment", "-m comment --comment probe"],
  ]);
}

/**
 * Makes sure of the sets and matches of some families; nothing is left behind.
 *
 * @throws {UnsupportedError} naming the modules that are missing
 * @throws {ExecError} if a tool fails without an answer
 */
export async function requireSetsAndMatches(exec: Exec, families: readonly Iptables[]): Promise<void> {
  const sets = families.flatMap(({ family }) => SET_TYPES.map((type) => probeSet(type, family)));
  try {
    await requireAll("Sets", sets, {
      use: (some) => restoreSets(exec, some.map((set) => `${createSetLine(set)}\n`).join("")),
      moduleOf: ({ type }) => SET_MODULES[type],
    });
    for (const iptables of families) await requireMatches(iptables);
  } finally {
    await removeSets(exec, sets);
  }
}

function probeSet(type: SetType, family: IpFamily): SetDefinition {
  return { name: probeSetName(type, family), type, family, maxElements: DEFAULT_MAX_ELEMENTS };
}

async function removeSets(exec: Exec, sets: readonly SetDefinition[]): Promise<void> {
  const own = sets.map(({ name }) => name);
  try {
    await destroySets(exec, own);
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    // Not all of them were made.
    const left = (await listSets(exec)).filter((name) => own.includes(name));
    if (left.length > 0) await destroySets(exec, left);
  }
}

async function requireMatches(iptables: Iptables): Promise<void> {
  const { family } = iptables;
  const uses = matches(probeSetName("hash:ip,port", family));
  const remove = tableBlock("filter", [chainLine(PROBE_CHAIN), `-X ${PROBE_CHAIN}`]);
  const nat = tableBlock("nat", [chainLine(PROBE_CHAIN), `-X ${PROBE_CHAIN}`]);
  await requireAll(`Rules of ${family}`, [...uses.keys()], {
    use: async (modules) => {
      const rules = modules.map((module) => `-A ${PROBE_CHAIN} ${uses.get(module)}`);
      await iptables.restore(tableBlock("filter", [chainLine(PROBE_CHAIN), ...rules]) + remove + nat);
    },
    moduleOf: (module) => module,
  });
}

/** How things of the kernel are tried. */
interface Trial<T> {
  readonly use: (things: readonly T[]) => Promise<void>;
  readonly moduleOf: (thing: T) => string;
}

/** Tries all things at once, and where that fails finds out which of them are missing. */
async function requireAll<T>(
  feature: string,
  things: readonly T[],
  { use, moduleOf }: Trial<T>,
): Promise<void> {
  let first: ExecError | undefined;
  const missing = await isolateRefused(things, async (some) => {
    try {
      await use(some);
      return null;
    } catch (error) {
      if (!(error instanceof ExecError) || error.isInconclusive()) throw error;
      first ??= error;
      return { problem: firstLine(error.stderr), named: [] };
    }
  });
  if (first === undefined) return;
  const modules = [...new Set(missing.map(({ item }) => moduleOf(item)))];
  // What fails only together is no missing module.
  if (modules.length === 0) throw first;
  const needs = `the kernel ${modules.length === 1 ? "module" : "modules"} ${modules.join(", ")}`;
  throw new UnsupportedError(feature, needs, missing[0]?.problem ?? "", { cause: first });
}
