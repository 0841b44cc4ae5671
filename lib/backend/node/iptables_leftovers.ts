/**
 * Takes a service proxy's chains and rules out of iptables, and nothing else: kubelet's chains (KUBE-FIREWALL,
 * KUBE-KUBELET-CANARY, KUBE-IPTABLES-HINT, KUBE-MARK-DROP) and the rules of others stay. Other modes that write to
 * iptables name their chains; all of them leave in one transaction per table.
 *
 * @module
 */
import { ExecError, UnsupportedError } from "../../errors.ts";
import type { Exec } from "../../kernel/exec.ts";
import { Iptables, type IptablesTable } from "../../kernel/iptables.ts";
import type { Nft } from "../../kernel/nft.ts";
import { type NftFamily, nftFamily } from "../../netfilter/nft_words.ts";
import { probeIptables } from "../../kernel/iptables_variant.ts";
import { FAMILIES, type IpFamily } from "../../model/objects.ts";
import {
  type IptablesRuleset,
  parseIptablesSave,
  type SavedChain,
  type SavedTable,
  unreadableTables,
} from "../../netfilter/iptables_save.ts";
import { chainLine, tableBlock } from "../../netfilter/iptables_jumps.ts";
import type {
  KeptLeftover,
  Leftover,
  LeftoverFailure,
  LeftoverReport,
  ModeCleanup,
  OwnedChains,
} from "./cleanup.ts";
import {
  CANARY_CHAIN,
  EXTERNAL_SERVICES_CHAIN,
  FIREWALL_JUMP_COMMENT,
  FORWARD_CHAIN,
  isServiceChain,
  KUBELET_FIREWALL_CHAIN,
  MARK_MASQ_CHAIN,
  NODE_PORTS_CHAIN,
  POSTROUTING_CHAIN,
  PROXY_FIREWALL_CHAIN,
  serviceChainsInCallOrder,
  SERVICES_CHAIN,
} from "../iptables/plan/chains.ts";
import { CHAINS as USERSPACE_CHAINS } from "../userspace/plan/chains.ts";
import type { CleanupMode } from "../../config/types.ts";
import { splitWords } from "../../netfilter/iptables_rule.ts";
import {
  listedChains,
  type ListedTable,
  type NftListedChain,
  type NftListedRule,
} from "../../netfilter/nft_listing.ts";

export const IPTABLES_CLEANUP: ModeCleanup = {
  mode: "iptables",
  distinct: [],
  chains: {
    nat: [NODE_PORTS_CHAIN, CANARY_CHAIN],
    filter: [SERVICES_CHAIN, EXTERNAL_SERVICES_CHAIN, NODE_PORTS_CHAIN, CANARY_CHAIN],
    mangle: [CANARY_CHAIN],
  },
  jumpComments: [FIREWALL_JUMP_COMMENT],
};

export const USERSPACE_CLEANUP: ModeCleanup = {
  mode: "userspace",
  distinct: [],
  chains: { ...USERSPACE_CHAINS, mangle: [] },
};

/** Options of a cleanup of iptables. */
export interface CleanupOptions {
  /** True only lists what would be removed. */
  readonly dryRun?: boolean;
  /** The modes whose chains go. Default: iptables mode. */
  readonly modes?: readonly ModeCleanup[];
  /**
   * Spares the reading of tables of the nft variant without chains of these modes, if they all name their chains; cleans tables that
   * iptables cannot read.
   */
  readonly nft?: CleanupNft;
}

/** Calls of nft that a cleanup needs. */
export type CleanupNft = Pick<Nft, "hasNone" | "listTable" | "apply">;

/** Dependencies of the cleanup of a target. */
interface CleanupTools {
  readonly target: Iptables;
  readonly nft: CleanupNft | undefined;
  readonly modes: readonly ModeCleanup[];
  readonly failed: LeftoverFailure[];
}

/** Chains that leave in one transaction of the nft variant. All of 5,000 × 10: 300 → 3.3 s, 1,000 → 2.8 s, 3,000 → 4.2 s. */
const CHAINS_PER_TRANSACTION = 1000;

// Errors of a node that has the programs but not this kernel interface.
const NOT_AVAILABLE_REGEXP =
  /Failed to initialize nft|Protocol not supported|Table does not exist|can't initialize/;

/** The iptables of these families in every variant that is installed here. */
export async function cleanupTargets(
  exec: Exec,
  families: readonly IpFamily[] = FAMILIES,
): Promise<Iptables[]> {
  const targets: Iptables[] = [];
  for (const variant of ["nft", "legacy"] as const) {
    for (const family of families) {
      try {
        targets.push(new Iptables(exec, await probeIptables(exec, family, variant)));
      } catch (error) {
        // Without the programs there can be no rules of them.
        if (!(error instanceof UnsupportedError)) throw error;
      }
    }
  }
  return targets;
}

/** Removes the chains of the wanted modes from all targets, as far as it gets. A second run finds nothing. */
export async function cleanupIptables(
  targets: readonly Iptables[],
  { modes = [IPTABLES_CLEANUP], nft, dryRun = false }: CleanupOptions = {},
): Promise<LeftoverReport> {
  const removed: Leftover[] = [];
  const kept: KeptLeftover[] = [];
  const failed: LeftoverFailure[] = [];
  for (const target of targets) {
    if (nft !== undefined && await hasNoChains(nft, target, modes)) continue;
    const tools: CleanupTools = { target, nft, modes, failed };
    const kind = `chains and jumps of ${placeOf(target)}`;
    for (const plan of await readTables(tools)) {
      const place = placeOf(target, plan.table);
      for (const [chain, usedBy] of plan.kept) {
        kept.push({ place, command: `-X ${chain}`, reason: `chain ${usedBy} leads there` });
      }
      const commands = commandsOf(plan);
      const left = dryRun || commands.length === 0 ? new Set() : await removeItems(tools, plan);
      for (const command of commands) if (!left.has(command)) removed.push({ place, command, kind });
    }
  }
  return { removed, kept, failed };
}

function placeOf({ family, variant }: Iptables, table?: IptablesTable): string {
  return [family, variant, ...table === undefined ? [] : [table]].join(" ");
}

function removedChains({ chains, kept }: TableCleanup): string[] {
  return chains.filter((chain) => !kept.has(chain));
}

/** The removals as commands. */
function commandsOf(plan: TableCleanup): readonly string[] {
  if (plan.native === undefined) {
    return [...plan.jumps, ...removedChains(plan).map((chain) => `-X ${chain}`)];
  }
  return [...plan.native.jumps, ...plan.native.deletions];
}

async function readTables(tools: CleanupTools): Promise<TableCleanup[]> {
  const { target, modes, failed } = tools;
  try {
    const text = await target.saveReadable();
    const named = unreadableTables(text);
    const unreadable = TABLES.filter((table) => named.has(table));
    if (unreadable.length === 0 && !mayHoldChains(text, modes)) return [];
    const saved = new Map(parseIptablesSave(text));
    const natives = await readNatives(tools, unreadable);
    for (const [table, native] of natives) saved.set(table, native.saved());
    return planCleanup(saved, modes).map((plan) => {
      const native = natives.get(plan.table)?.removal(plan.chains, plan.kept, MARK_MASQ_CHAIN);
      return native === undefined ? plan : { ...plan, native };
    });
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    if (!error.isMissing() && !NOT_AVAILABLE_REGEXP.test(error.stderr)) {
      failed.push({ place: placeOf(target), error });
    }
    return [];
  }
}

/** Reads with nft the tables that iptables cannot read. */
async function readNatives(
  { target, nft, failed }: CleanupTools,
  tables: readonly IptablesTable[],
): Promise<ReadonlyMap<IptablesTable, NativeTable>> {
  const natives = new Map<IptablesTable, NativeTable>();
  for (const table of tables) {
    try {
      if (nft === undefined) throw new ExecError(["nft"], -1, "");
      const native = await NativeTable.read(nft, nftFamily(target.family), table);
      if (native !== null) natives.set(table, native);
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      const reason = error.isMissing() ? "there is no program nft" : error.stderr;
      const problem = `iptables cannot read this table, because of rules that nft added to it, and ${reason}`;
      failed.push({
        place: placeOf(target, table),
        error: new ExecError(error.argv, 1, problem, { cause: error }),
      });
    }
  }
  return natives;
}

/**
 * True if the nft variant is known to hold no chain of these modes. Reading 5,000 Services only to find none of another mode
 * takes 2 s; this takes 20 ms.
 */
async function hasNoChains(
  nft: CleanupNft,
  { family, variant }: Iptables,
  modes: readonly ModeCleanup[],
): Promise<boolean> {
  // The names of iptables mode's chains are not all known.
  if (variant !== "nft" || modes.some(({ mode }) => mode === "iptables")) return false;
  const chains = Object.fromEntries(
    TABLES.map((table) => [table, modes.flatMap((mode) => mode.chains?.[table] ?? [])] as const)
      .filter(([, names]) => names.length > 0),
  );
  try {
    return await nft.hasNone(nftFamily(family), { chains });
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    // Such a node may lack the program nft; then the tables are read.
    return false;
  }
}

/** False if a text cannot hold leftovers of the modes: at every start this spares parsing the rules of large nodes. */
function mayHoldChains(text: string, modes: readonly ModeCleanup[]): boolean {
  return modes.some(({ mode, chains }) =>
    mode === "iptables" ||
    Object.values(chains ?? {}).flat().some((chain: string) => text.includes(`\n:${chain} `))
  );
}

/** Removes what the plan lists; resolves to the commands whose object is still there. */
async function removeItems(tools: CleanupTools, plan: TableCleanup): Promise<ReadonlySet<string>> {
  const { target, nft, failed } = tools;
  const { table, native } = plan;
  try {
    if (native === undefined) {
      await target.restore(cleanupText(plan, target.variant === "nft"), { counters: false });
    } else {
      const { jumps, flushes, deletions } = native;
      await nft?.apply([...jumps, ...flushes, ...deletions, ""].join("\n"));
    }
    return new Set();
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    failed.push({ place: placeOf(target, table), error });
    const after = (await readTables(tools)).find((candidate) => candidate.table === table);
    return new Set(after === undefined ? [] : commandsOf(after));
  }
}

/**
 * The iptables-restore text. The first transaction unhooks our chains: nothing reaches the rest. Chains that stay
 * are emptied, because their rules jump to those that go; KUBE-MARK-MASQ jumps nowhere and keeps marking for others.
 */
function cleanupText(plan: TableCleanup, staged: boolean): string {
  const { table, jumps, kept } = plan;
  const isWanted = (chain: string): boolean => chain !== MARK_MASQ_CHAIN || !kept.has(chain);
  const deletion = (chain: string): string[] => kept.has(chain) ? [] : [`-X ${chain}`];
  const chains = plan.chains.filter(isWanted);
  if (!staged || chains.length <= CHAINS_PER_TRANSACTION) {
    return tableBlock(table, [...jumps, ...chains.map(chainLine), ...chains.flatMap(deletion)]);
  }
  const dispatch = chains.filter((chain) => chain !== MARK_MASQ_CHAIN && !isServiceChain(chain));
  const others = chains.slice(dispatch.length);
  const blocks = [tableBlock(table, [...jumps, ...dispatch.map(chainLine), ...dispatch.flatMap(deletion)])];
  for (let at = 0; at < others.length; at += CHAINS_PER_TRANSACTION) {
    const portion = others.slice(at, at + CHAINS_PER_TRANSACTION);
    blocks.push(tableBlock(table, [...portion.map(chainLine), ...portion.flatMap(deletion)]));
  }
  return blocks.join("");
}

/** Chains and jumps of one table to remove, and chains that stay because others need them. */
interface TableCleanup {
  readonly table: IptablesTable;
  /** `-D` lines for the jumps from built-in chains. */
  readonly jumps: readonly string[];
  /** Callers before callees. */
  readonly chains: readonly string[];
  /** Chain that stays → foreign chain that jumps to it. */
  readonly kept: ReadonlyMap<string, string>;
  /** The same removal in nft, where only nft can read the table. */
  readonly native?: NativeRemoval;
}

const TABLES: readonly IptablesTable[] = ["nat", "filter", "mangle"];

/**
 * Chains that iptables mode and IPVS mode both fill; the mode that filled them last owns them. KUBE-MARK-MASQ
 * is one more, which comes after the chains of Services.
 */
const SHARED_CHAINS: OwnedChains = {
  nat: [SERVICES_CHAIN, POSTROUTING_CHAIN],
  filter: [FORWARD_CHAIN, PROXY_FIREWALL_CHAIN],
  mangle: [],
};
/** Target of KUBE-SERVICES of nat in IPVS mode, and never in iptables mode. */
const IPVS_NODE_PORT_CHAIN = "KUBE-NODE-PORT";

/** Chains by which kubelet marks the tables it writes to. */
const KUBELET_CHAINS = ["KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY", "KUBE-MARK-DROP"];

/** Plans the removal of these modes' chains from the saved rules, table by table. */
export function planCleanup(saved: IptablesRuleset, modes: readonly ModeCleanup[]): TableCleanup[] {
  const isWanted = (wanted: CleanupMode): boolean => modes.some(({ mode }) => mode === wanted);
  const withIptables = isWanted("iptables");
  const withShared = isWanted(sharedChainsMode(saved));
  const firewall = withIptables && isFirewallOurs(saved) ? [KUBELET_FIREWALL_CHAIN] : [];
  return TABLES.flatMap((table) => {
    const chains = saved.get(table);
    if (chains === undefined) return [];
    const statics = [
      ...(withShared ? SHARED_CHAINS[table] : []),
      ...modes.flatMap((mode) => mode.chains?.[table] ?? []),
      ...(table === "filter" ? firewall : []),
    ];
    const ofServices = withIptables && table === "nat" ? [...chains.keys()].filter(isServiceChain) : [];
    const marks = withShared && table === "nat" ? [MARK_MASQ_CHAIN] : [];
    const wanted = [...statics, ...serviceChainsInCallOrder(ofServices), ...marks];
    return [planTable(table, chains, wanted, modes.flatMap(({ jumpComments = [] }) => jumpComments))];
  });
}

/** The mode that filled the chains that two modes use. */
function sharedChainsMode(saved: IptablesRuleset): CleanupMode {
  const rules = saved.get("nat")?.get(SERVICES_CHAIN)?.rules ?? [];
  return rules.some((rule) => targetOf(rule) === IPVS_NODE_PORT_CHAIN) ? "ipvs" : "iptables";
}

/**
 * KUBE-FIREWALL is kubelet's, but a proxy makes it where it is missing. On a node without kubelet's own chains, holding
 * nothing but what a proxy writes, it can only be left over.
 */
function isFirewallOurs(saved: IptablesRuleset): boolean {
  const isKubeletThere = TABLES.some((table) => KUBELET_CHAINS.some((chain) => saved.get(table)?.has(chain)));
  const rules = saved.get("filter")?.get(KUBELET_FIREWALL_CHAIN)?.rules;
  return !isKubeletThere && rules !== undefined &&
    rules.every((rule) => rule.includes('"block incoming localnet connections"'));
}

/** @param comments of jumps that go although the chain stays */
function planTable(
  table: IptablesTable,
  saved: SavedTable,
  wanted: readonly string[],
  comments: readonly string[],
): TableCleanup {
  const chains = wanted.filter((chain) => saved.has(chain));
  const own = new Set(chains);
  const jumps: string[] = [];
  const kept = new Map<string, string>();
  for (const [name, { policy, rules }] of saved) {
    if (own.has(name)) continue;
    for (const rule of rules) {
      const target = targetOf(rule);
      if (target === null) continue;
      const isOwn = own.has(target);
      if (policy !== "-") {
        // Only a service proxy jumps from built-in chains to these, whatever its release wrote as comment.
        const isStale = SHARED_CHAINS[table].includes(target) &&
          comments.some((comment) => rule.includes(`--comment "${comment}"`));
        if (isOwn || isStale) jumps.push(`-D ${name} ${rule}`);
      } else if (isOwn) kept.set(target, name);
    }
  }
  return { table, jumps, chains, kept };
}

/** Target of a saved rule, a chain or an extension. */
function targetOf(rule: string): string | null {
  // Nearly all rules of others jump elsewhere, and splitting words is the costly part.
  if (!rule.includes("KUBE-")) return null;
  const words = splitWords(rule);
  const at = words.findLastIndex((word) => word === "-j" || word === "-g");
  return at < 0 ? null : words[at + 1] ?? null;
}

/** Commands of nft, to be taken in this order in one transaction. */
interface NativeRemoval {
  readonly jumps: readonly string[];
  readonly flushes: readonly string[];
  readonly deletions: readonly string[];
}

/** One table as nft sees it. */
class NativeTable {
  readonly #name: string;
  readonly #chains: ReadonlyMap<string, NftListedChain>;

  constructor(listed: ListedTable) {
    this.#name = listed.name;
    this.#chains = listedChains(listed);
  }

  /**
   * Null: the table is not there.
   *
   * @throws {ExecError} if it cannot be listed
   */
  static async read(
    nft: Pick<Nft, "listTable">,
    family: NftFamily,
    table: string,
  ): Promise<NativeTable | null> {
    const listed = await nft.listTable(family, table);
    return listed === null ? null : new NativeTable(listed);
  }

  /**
   * The table as iptables-save would print it, as far as targets matter; other rules are in nft's words. A
   * verdict map in a base chain counts as a chain of another program, because it may jump to more than one chain.
   */
  saved(): SavedTable {
    const saved = new Map<string, SavedChain>();
    for (const [name, { isHooked, rules }] of this.#chains) {
      const own = isHooked ? rules.filter((rule) => !isMap(rule)) : rules;
      saved.set(name, savedChain(isHooked ? "ACCEPT" : "-", own));
      for (const rule of rules) {
        if (!own.includes(rule)) saved.set(`${name} (handle ${rule.handle})`, savedChain("-", [rule]));
      }
    }
    return saved;
  }

  /**
   * Commands that remove these chains, and the jumps of base chains to them.
   *
   * @param kept chains that stay, because others jump to them
   * @param untouched the kept chain whose rules stay
   */
  removal(chains: readonly string[], kept: ReadonlyMap<string, string>, untouched: string): NativeRemoval {
    const own = new Set(chains);
    return {
      jumps: [...this.#chains].flatMap(([name, { isHooked, rules }]) =>
        !isHooked
          ? []
          : rules.filter((rule) => !isMap(rule) && rule.targets.some((target) => own.has(target)))
            .map(({ handle }) => `delete rule ${this.#name} ${name} handle ${handle}`)
      ),
      flushes: chains.filter((chain) => chain !== untouched || !kept.has(chain))
        .map((chain) => `flush chain ${this.#name} ${chain}`),
      deletions: chains.filter((chain) => !kept.has(chain))
        .map((chain) => `delete chain ${this.#name} ${chain}`),
    };
  }
}

function isMap({ text, targets }: NftListedRule): boolean {
  return targets.length > 1 || (targets.length === 1 && /\bvmap\b/.test(text));
}

function savedChain(policy: string, rules: readonly NftListedRule[]): SavedChain {
  return {
    policy,
    rules: rules.flatMap(({ text, targets }) =>
      targets.length === 0 ? [text] : targets.map((target) => `-j ${target}`)
    ),
  };
}
