/**
 * Finds out by trying whether a node has the sets and the matches that the rules of IPVS mode use.
 *
 * @module
 */
import { firstLine } from "../../../text/lines.ts";
import { ExecError, UnsupportedError } from "../../../errors.ts";
import type { Exec } from "../../../kernel/exec.ts";
import { createSets, destroySets, listSets, restoreSets } from "../../../kernel/ipset.ts";
import type { Iptables } from "../../../kernel/iptables.ts";
import type { IpFamily } from "../../../model/objects.ts";
import {
  createSetLine,
  DEFAULT_MAX_ELEMENTS,
  SET_TYPES,
  type SetDefinition,
  type SetType,
} from "../../../netfilter/ipset.ts";
import { chainLine } from "../../../netfilter/iptables_jumps.ts";
import { PROBE_CHAIN, probeSetName, setDefinitions } from "../plan/sets.ts";

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

/** How to make sure of sets and matches. */
export interface ProbeOptions {
  /** False: what is missing is not looked for. Default true. */
  readonly searches?: boolean;
  /** True: the mode's own sets are most likely not there. If none is, they are made instead of others, and stay. Default false. */
  readonly isFresh?: boolean;
}

/**
 * Makes sure of the sets and matches of some families; nothing is left behind, but for what is returned.
 *
 * @returns the mode's own sets that it made, all of these families or none; they are empty
 * @throws {UnsupportedError} naming the modules that are missing
 * @throws {ExecError} if something is missing that is not looked for, or nobody can tell
 */
export async function requireSetsAndMatches(
  exec: Exec,
  families: readonly Iptables[],
  { searches = true, isFresh = false }: ProbeOptions = {},
): Promise<readonly SetDefinition[]> {
  if (isFresh) {
    const own = families.flatMap(({ family }) => setDefinitions(family));
    if (await createSets(exec, own)) {
      await requireMatchesWith(exec, families, { sets: own, searches, keeps: true });
      return own;
    }
  }
  const sets = families.flatMap(({ family }) => SET_TYPES.map((type) => probeSet(type, family)));
  try {
    await requireSets(exec, sets, searches);
  } catch (error) {
    await removeSets(exec, sets, false);
    throw error;
  }
  await requireMatchesWith(exec, families, { sets, searches, keeps: false });
  return [];
}

function probeSet(type: SetType, family: IpFamily): SetDefinition {
  return { name: probeSetName(type, family), type, family, maxElements: DEFAULT_MAX_ELEMENTS };
}

/** Sets that are there for the matches. */
interface MadeSets {
  readonly sets: readonly SetDefinition[];
  readonly searches: boolean;
  /** True: they stay if all is well. */
  readonly keeps: boolean;
}

async function requireMatchesWith(
  exec: Exec,
  families: readonly Iptables[],
  { sets, searches, keeps }: MadeSets,
): Promise<void> {
  let isDone = false;
  try {
    for (const iptables of families) await requireMatches(iptables, sets, searches);
    isDone = true;
  } finally {
    if (!isDone || !keeps) await removeSets(exec, sets, true);
  }
}

async function requireSets(exec: Exec, sets: readonly SetDefinition[], searches: boolean): Promise<void> {
  const missing = await findMissing(
    sets,
    (some) => restoreSets(exec, some.map((set) => `${createSetLine(set)}\n`).join("")),
    ({ type }) => SET_MODULES[type],
    searches,
  );
  if (missing !== null) throw missing.in("Sets");
}

/** @param areMade false if it is not known which of them are there */
async function removeSets(exec: Exec, sets: readonly SetDefinition[], areMade: boolean): Promise<void> {
  const own = sets.map(({ name }) => name);
  try {
    if (areMade) return await destroySets(exec, own);
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
  }
  const left = (await listSets(exec)).filter((name) => own.includes(name));
  if (left.length > 0) await destroySets(exec, left);
}

async function requireMatches(
  iptables: Iptables,
  sets: readonly SetDefinition[],
  searches: boolean,
): Promise<void> {
  const { family } = iptables;
  const set = sets.find((one) => one.type === "hash:ip,port" && one.family === family);
  const uses = matches(set?.name ?? "");
  const nat = `*nat\n${chainLine(PROBE_CHAIN)}\n-X ${PROBE_CHAIN}\nCOMMIT\n`;
  const remove = `*filter\n${chainLine(PROBE_CHAIN)}\n-X ${PROBE_CHAIN}\nCOMMIT\n`;
  const missing = await findMissing(
    [...uses.keys()],
    async (modules) => {
      const rules = modules.map((module) => `-A ${PROBE_CHAIN} ${uses.get(module)}\n`).join("");
      await iptables.restore(`*filter\n${chainLine(PROBE_CHAIN)}\n${rules}COMMIT\n${remove}${nat}`);
    },
    (module) => module,
    searches,
  );
  if (missing !== null) throw missing.in(`Rules of ${iptables.family}`);
}

/** What does not work, and what the tool says about the first of it. */
class Missing {
  readonly #modules: readonly string[];
  readonly #error: ExecError;

  constructor(modules: readonly string[], error: ExecError) {
    this.#modules = modules;
    this.#error = error;
  }

  in(feature: string): UnsupportedError {
    const plural = this.#modules.length === 1 ? "module" : "modules";
    return new UnsupportedError(
      feature,
      `the kernel ${plural} ${this.#modules.join(", ")}`,
      firstLine(this.#error.stderr),
      { cause: this.#error },
    );
  }
}

/** Tries all things at once; if that fails and `searches`, one by one. Null: all work. */
async function findMissing<T>(
  things: readonly T[],
  use: (things: readonly T[]) => Promise<void>,
  moduleOf: (thing: T) => string,
  searches: boolean,
): Promise<Missing | null> {
  let failure: ExecError;
  try {
    await use(things);
    return null;
  } catch (error) {
    if (!(error instanceof ExecError) || !searches || error.isInconclusive()) throw error;
    failure = error;
  }
  const modules: string[] = [];
  let first = failure;
  for (const thing of things) {
    try {
      await use([thing]);
    } catch (error) {
      if (!(error instanceof ExecError) || error.isInconclusive()) throw error;
      if (modules.length === 0) first = error;
      const module = moduleOf(thing);
      if (!modules.includes(module)) modules.push(module);
    }
  }
  // What fails only together is no missing module.
  if (modules.length === 0) throw failure;
  return new Missing(modules, first);
}
