/**
 * Userspace mode for one IP family: opens the portals of Services, leads their packets there, and closes what nothing leads to any more.
 * Its rules are written, compared and repaired as those of mode iptables.
 *
 * @module
 */
import { type ExecError, SyncError } from "../../../errors.ts";
import type { Iptables } from "../../../kernel/iptables.ts";
import { isRuleRefusal } from "../../../kernel/tool_errors.ts";
import { inTurns, Mutex, TURN_MS } from "../../../kernel/clock.ts";
import type { NodePortAddresses } from "../../../model/node.ts";
import type { IpFamily, NamespacedName } from "../../../model/objects.ts";
import type { Changed, ProxyState } from "../../../model/state.ts";
import { chainHolds, jumpRules } from "../../../netfilter/iptables_chains.ts";
import { tableBlock } from "../../../netfilter/iptables_jumps.ts";
import type { IptablesRuleset } from "../../../netfilter/iptables_save.ts";
import type { Logger } from "../../../observe/log.ts";
import { FamilySession, type Since } from "../../apply/family_session.ts";
import { refusedServices } from "../../apply/iptables_trial.ts";
import { NodePortIps } from "../../apply/node_port_ips.ts";
import { writeAll, writeChange } from "../../apply/refusals.ts";
import type { ApplyReport, FamilyProxier, SyncRequest } from "../../backend.ts";
import type { Damage } from "../../damage.ts";
import type { Refused } from "../../isolate.ts";
import { DriftCheck } from "../../iptables/apply/drift_check.ts";
import { type OwnRules, readTables } from "../../iptables/apply/table_reading.ts";
import type { DispatchRule, IptablesPlan } from "../../iptables/plan/ruleset.ts";
import { fullSyncInSteps } from "../../iptables/store/full_sync.ts";
import type { IptablesStore } from "../../iptables/store/store.ts";
import type { IptablesTransaction } from "../../iptables/store/transaction.ts";
import { CHAINS, jumpsOf, PORTALS_HOST } from "../plan/chains.ts";
import {
  adoptedPorts,
  GUARDS_OF_OTHERS,
  guardsIn,
  type LedTo,
  movedUdp,
  planRules,
  redirectsIn,
  savedGuards,
  sharedRules,
  type UdpDestination,
} from "../plan/port_rules.ts";
import { planUserspaceInSteps, type UserspaceOptions } from "../plan/plan.ts";
import type { PortalId, ServicePortals, UserspacePlan } from "../plan/ruleset.ts";
import { OtherKproxy } from "./other_kproxy.ts";
import type { Portals } from "./portals.ts";
import type { StaleUdp } from "./stale_udp.ts";

/** What decides the rules, as far as it is known before the first sync. */
export type UserspaceSettings =
  & Omit<UserspaceOptions, "family" | "nodePortIps">
  & { readonly nodePortAddresses: NodePortAddresses };

/** What a {@linkcode UserspaceProxier} needs. */
export interface UserspaceProxierOptions {
  readonly iptables: Iptables;
  readonly settings: UserspaceSettings;
  readonly portals: Portals;
  /** Told which UDP flows are led elsewhere. */
  readonly staleUdp: StaleUdp;
  /** Addresses of all interfaces of the node, both families. */
  readonly interfaceIps: () => readonly string[];
  readonly logger: Logger;
  /** Milliseconds, monotonic. Default: since the process began. */
  readonly nowMs?: () => number;
}

type Report = Required<Pick<ApplyReport, "commands" | "bytes" | "written">>;

/** What a sync came to. */
interface Reached {
  readonly committed: IptablesStore;
  readonly report: Report;
}

/** What a sync wants, and what leads there. */
interface Planned {
  readonly plan: UserspacePlan;
  readonly transaction: IptablesTransaction;
  readonly moved: readonly UdpDestination[];
}

/** Likewise of a full sync. */
interface FullPlan extends Planned {
  readonly store: IptablesStore;
  /** Why Services lack portals. */
  readonly problems: ReadonlyMap<NamespacedName, string>;
  /** Another kproxy leads Services to its ports: nothing is written. */
  readonly isLeft: boolean;
}

/** One family. */
export class UserspaceProxier implements FamilyProxier {
  readonly family: IpFamily;
  readonly #options: UserspaceProxierOptions;
  readonly #own: OwnRules;
  readonly #session: FamilySession<UserspaceSettings, IptablesStore>;
  readonly #oneAtATime = new Mutex();
  readonly #driftCheck: DriftCheck;
  readonly #other: OtherKproxy;
  readonly #nodePortIps: NodePortIps;
  /** What this proxier has written last; null: nothing yet. */
  #known: IptablesStore | null = null;

  constructor(options: UserspaceProxierOptions) {
    const { iptables, settings, logger, nowMs = () => performance.now() } = options;
    const { family } = iptables;
    this.family = family;
    this.#options = options;
    this.#own = { chains: CHAINS, jumps: jumpsOf(settings.has) };
    this.#other = new OtherKproxy(family, logger);
    this.#nodePortIps = new NodePortIps(options.interfaceIps);
    this.#session = new FamilySession({ mode: "userspace", family, settings, nowMs });
    this.#driftCheck = new DriftCheck({ iptables, own: this.#own, logger, nowMs });
  }

  /** Takes new settings over. @returns true if they differ, so that everything must be written again */
  configure(settings: UserspaceSettings): boolean {
    return this.#session.configure(settings);
  }

  /**
   * Opens what is new, writes the rules that differ, then closes what nothing leads to any more.
   *
   * @throws {SyncError} if a program failed; its cause is the {@linkcode ExecError}
   */
  sync(request: SyncRequest): Promise<ApplyReport> {
    this.#driftCheck.giveWay();
    return this.#oneAtATime.run(() => this.#sync(request));
  }

  /** True if the addresses that serve node ports are others than those of the last sync. */
  isOutdated(): boolean {
    return this.#nodePortIps.isOutdated(this.#session.settings.nodePortAddresses);
  }

  findDamage(): Promise<false | null | Damage> {
    return this.#oneAtATime.run(() =>
      this.#session.look(async (committed) => {
        const plan = (): Pick<IptablesPlan, "services"> => ({ services: new Map() });
        const found = await this.#driftCheck.look(committed, { family: this.family, canaries: [], plan });
        if (found === null) return null;
        const { damage, held } = found;
        if (damage === false) await this.#dropStaleGuards(committed);
        return damage !== false && !await this.#other.leads(dispatchIn(committed), held.tables) && damage;
      })
    );
  }

  async #sync({ state, changed }: SyncRequest): Promise<ApplyReport> {
    const { committed, report } = await this.#session.sync(
      changed,
      (since) =>
        since === null ? this.#syncAll(state) : writeChange({
          change: () => this.#syncChanged(state, since),
          problem: (error) => refusalOf(error)?.message ?? null,
          all: () => this.#syncAll(state),
        }, { logger: this.#options.logger, family: this.family }),
    );
    this.#known = committed;
    return this.#session.report({ ...report, total: committed.ruleCounts });
  }

  async #syncAll(state: ProxyState): Promise<Reached> {
    const { quarantine } = this.#session;
    let full: FullPlan | undefined;
    const reached = await writeAll(this.#session, {
      write: async (refused) => {
        full = await this.#planAll(state, refused);
        return { committed: full.store, report: await this.#writeAll(full) };
      },
      isRefusal: (error) => refusalOf(error) !== null,
      find: (error) => this.#session.run("apply", () => this.#findRefused(full!.store, refusalOf(error))),
    });
    for (const [service, problem] of full!.problems) quarantine.refused({ service, problem });
    return reached;
  }

  async #planAll(state: ProxyState, refused: ReadonlySet<NamespacedName>): Promise<FullPlan> {
    const { iptables } = this.#options;
    const held = await this.#session.run("read", () => readTables(iptables, this.#own));
    const { tables } = held;
    const plan = await this.#session.run("plan", () => this.#plan(state, "all"));
    for (const name of refused) plan.set(name, null);
    const isLeft = this.#known !== null && await this.#other.leads(dispatchIn(this.#known), tables);
    const adopted = adoptedPorts([...plan.values()].flatMap((service) => service?.rules ?? []), tables);
    const guarded = this.#guardedPorts(tables);
    const problems = await this.#session.run("apply", () => this.#open(plan, adopted, guarded));
    const rules = this.#rulesOf(plan);
    const moved = movedUdp(redirectsIn(tables), dispatchOf(rules));
    // Ports of another kproxy, or of a previous process, stay closed for as long as a process listens there.
    const others = await this.#other.guards(dispatchOf(rules), savedGuards(tables));
    rules.services.set(GUARDS_OF_OTHERS, sharedRules(others));
    const steps = fullSyncInSteps({ ...rules, all: true }, held, { family: this.family });
    return { plan, moved, problems, isLeft, ...await inTurns(steps, { turnMs: TURN_MS }) };
  }

  async #writeAll(full: FullPlan): Promise<Report> {
    if (full.isLeft) {
      await this.#options.portals.closeUnused(full.plan, true);
      return { commands: 1, bytes: 0, written: { filter: 0, nat: 0 } };
    }
    const report = await this.#write(full, true);
    await this.#session.run("apply", () => this.#dropStaleGuards(full.store));
    this.#driftCheck.fullySynced();
    // One has read the tables.
    return { ...report, commands: report.commands + 1 };
  }

  /** @throws `reason` if it is the fault of none */
  async #findRefused(
    store: IptablesStore,
    reason: ExecError | null,
  ): Promise<readonly Refused<NamespacedName>[]> {
    const candidates = [...store.serviceNames].filter((name) => name !== GUARDS_OF_OTHERS).map((name) => ({
      name,
      chains: [],
      rules: [],
      shared: store.service(name)!.dispatch,
    }));
    const refused = await refusedServices(this.#options.iptables, candidates, candidates.length);
    if (refused.length === 0) throw reason;
    return refused;
  }

  async #syncChanged(state: ProxyState, { changed, committed }: Since<IptablesStore>): Promise<Reached> {
    const { quarantine } = this.#session;
    const names = changed.union(new Set(quarantine.due(changed)));
    const plan = await this.#session.run("plan", () => this.#plan(state, names));
    const problems = await this.#session.run("apply", () => this.#open(plan, new Map(), new Set()));
    const rules = this.#rulesOf(plan);
    const before = [...names].flatMap((name) => committed.service(name)?.dispatch ?? []);
    const { transaction, commit } = committed.change(rules);
    const moved = movedUdp(before, dispatchOf(rules));
    const report = await this.#write({ plan, transaction, moved }, false, lastHostRule(committed));
    commit();
    quarantine.settle(names, problems);
    return { committed, report };
  }

  /**
   * Writes in an order in which nobody reaches a portal but by rules: who may come to it, then it leads somewhere, then packets are led
   * there; and when no packets are led there any more it is closed before others may come to its port.
   *
   * @param witness a rule of nat that must be there: where another kproxy has put its own in the place of ours, iptables refuses all of it
   */
  async #write(
    { plan, transaction, moved }: Planned,
    isAll: boolean,
    witness: DispatchRule | null = null,
  ): Promise<Report> {
    const { iptables, portals, staleUdp } = this.#options;
    const report = { commands: 0, bytes: 0, written: transaction.counts };
    const restore = async (text: string | undefined): Promise<void> => {
      if (text === undefined) return;
      const isFirst = report.commands === 0;
      const seen = isFirst && witness !== null ? insisting(witness) : "";
      await this.#session.run("apply", () => iptables.restore(seen + text));
      report.commands++;
      report.bytes += text.length;
    };
    const closed = transaction.edits.filter.removed.splice(0);
    const blocks = [...transaction.blocks(Infinity)];
    await restore(blocks.find((block) => block.startsWith("*filter")));
    for (const service of plan.values()) for (const portal of service?.portals ?? []) portals.lead(portal);
    await restore(blocks.find((block) => block.startsWith("*nat")));
    await staleUdp.remove(moved);
    await portals.closeUnused(plan, isAll);
    await restore(closed.length === 0 ? undefined : tableBlock("filter", closed));
    return report;
  }

  async #plan(state: ProxyState, changed: Changed): Promise<Map<NamespacedName, ServicePortals | null>> {
    const { nodePortAddresses, ...settings } = this.#session.settings;
    const nodePortIps = this.#nodePortIps.take(nodePortAddresses);
    const steps = planUserspaceInSteps(state, changed, {
      ...settings,
      family: this.family,
      nodePortIps: nodePortAddresses.matchAll ? null : nodePortIps,
    });
    return new Map(await inTurns(steps, { turnMs: TURN_MS }));
  }

  #rulesOf(plan: UserspacePlan): ReturnType<typeof planRules> {
    return planRules(plan, (id) => this.#options.portals.portOf(id), this.#session.settings.has);
  }

  /**
   * Opens the portals of a plan; those that nobody reaches but by rules lead on at once.
   *
   * @param adopted the ports on which portals had better listen
   * @param guarded the ports that the firewall keeps direct packets from
   * @returns why Services lack some
   */
  async #open(
    plan: UserspacePlan,
    adopted: ReadonlyMap<PortalId, number>,
    guarded: ReadonlySet<LedTo>,
  ): Promise<ReadonlyMap<NamespacedName, string>> {
    const { portals } = this.#options;
    const { firewall } = this.#session.settings.has;
    return await portals.openAll(plan, (portal, port) => {
      if (!firewall || guarded.has(`${portal.protocol} ${port}`)) portals.lead(portal);
    }, { requestedOf: ({ id }) => adopted.get(id) ?? null });
  }

  #guardedPorts(saved: IptablesRuleset): ReadonlySet<LedTo> {
    const filter = saved.get("filter");
    const isReached = [...jumpRules(this.#own.jumps, "filter")].every(([chain, rules]) =>
      chainHolds(filter?.get(chain)?.rules ?? [], { rules, comparison: "among" })
    );
    return new Set(isReached ? savedGuards(saved).map(([led]) => led) : []);
  }

  /** Takes away what kept direct packets from ports of others that are closed now. */
  async #dropStaleGuards(committed: IptablesStore): Promise<void> {
    const kept = guardsIn(committed.service(GUARDS_OF_OTHERS)?.dispatch ?? []);
    const left = await this.#other.guards([], kept);
    if (left.length === kept.length) return;
    const services = new Map([[GUARDS_OF_OTHERS, sharedRules(left)]]);
    const { transaction, commit } = committed.change({ base: committed.base, services });
    await this.#options.iptables.restore([...transaction.blocks(Infinity)].join(""));
    commit();
  }
}

/** What iptables said of rules that it refuses; null: it is another error. */
function refusalOf(error: unknown): ExecError | null {
  const isOfWrite = error instanceof SyncError && error.phase === "apply";
  return isOfWrite && isRuleRefusal(error.cause) ? error.cause : null;
}

function dispatchOf({ services }: Pick<IptablesPlan, "services">): readonly DispatchRule[] {
  return [...services.values()].flatMap((service) => service?.dispatch ?? []);
}

/** The rules of all Services. */
function dispatchIn(store: IptablesStore): readonly DispatchRule[] {
  return [...store.serviceNames].flatMap((name) => store.service(name)!.dispatch);
}

/** A rule that leads the node's own packets, the last one of its Service there. */
function lastHostRule(store: IptablesStore): DispatchRule | null {
  for (const name of store.serviceNames) {
    const last = store.service(name)!.dispatch.findLast(({ chain }) => chain === PORTALS_HOST);
    if (last !== undefined) return last;
  }
  return null;
}

/** Text that changes nothing, and is refused where the rule is not there. */
function insisting({ chain, rule }: DispatchRule): string {
  return tableBlock("nat", [`-D ${chain} ${rule}`, `-A ${chain} ${rule}`]);
}
