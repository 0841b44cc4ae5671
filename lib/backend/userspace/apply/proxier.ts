/**
 * Proxier of userspace mode for one IP family: opens portals of Services, leads their packets there, and
 * closes unused portals. Its rules are written, compared and repaired as those of mode iptables.
 *
 * @module
 */
import type { Iptables } from "../../../kernel/iptables.ts";
import { isRuleRefusal } from "../../../kernel/tool_errors.ts";
import { inTurns, TURN_MS } from "../../../kernel/clock.ts";
import type { NodePortAddresses } from "../../../model/node.ts";
import type { NamespacedName } from "../../../model/objects.ts";
import type { Changed, ProxyState } from "../../../model/state.ts";
import { holdsAmongOthers, jumpRules, tableBlock } from "../../../netfilter/iptables_jumps.ts";
import type { IptablesRuleset } from "../../../netfilter/iptables_save.ts";
import type { Logger } from "../../../observe/log.ts";
import { refusedServices } from "../../apply/iptables_trial.ts";
import { addWritten, Proxier } from "../../apply/proxier.ts";
import type { ApplyReport, Damage, SyncRequest } from "../../backend.ts";
import type { RefusedService } from "../../quarantine.ts";
import { DriftCheck } from "../../iptables/apply/drift_check.ts";
import { type OwnRules, readTables } from "../../iptables/apply/table_reading.ts";
import type { DispatchRule, IptablesPlan } from "../../iptables/plan/ruleset.ts";
import { type IptablesStore, sharedRules } from "../../iptables/store/store.ts";
import { fullSyncInSteps } from "../../iptables/store/full_sync.ts";
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
  type UdpDestination,
} from "../plan/port_rules.ts";
import {
  planUserspaceInSteps,
  type PortalId,
  type ServicePortals,
  type UserspaceOptions,
  type UserspacePlan,
} from "../plan/plan.ts";
import { OtherKproxy } from "./other_kproxy.ts";
import type { Portals } from "./portals.ts";
import type { StaleUdp } from "./withdrawal.ts";

/** Settings that decide the rules and are known before the first sync. */
export type UserspaceSettings =
  & Omit<UserspaceOptions, "family" | "nodePortIps">
  & { readonly nodePortAddresses: NodePortAddresses };

/** Options of a {@linkcode UserspaceProxier}. */
export interface UserspaceProxierOptions {
  readonly iptables: Iptables;
  readonly settings: UserspaceSettings;
  readonly portals: Portals;
  /** Removes tracked UDP flows that rules redirect elsewhere now. */
  readonly staleUdp: StaleUdp;
  /** Addresses of all interfaces of the node, both families. */
  readonly interfaceIps: () => readonly string[];
  readonly logger: Logger;
  /** Milliseconds, monotonic. Default: since the process began. */
  readonly nowMs?: () => number;
}

/** Plan of a sync, and the transaction that leads to it. */
interface Planned {
  readonly plan: UserspacePlan;
  readonly transaction: IptablesTransaction;
  readonly moved: readonly UdpDestination[];
}

/** Proxier of userspace mode for one family. */
export class UserspaceProxier extends Proxier<UserspaceSettings, IptablesStore> {
  readonly #options: UserspaceProxierOptions;
  readonly #own: OwnRules;
  readonly #driftCheck: DriftCheck;
  readonly #other: OtherKproxy;
  /** Store that the full sync under way is to reach. */
  #wanted: IptablesStore | undefined;

  constructor(options: UserspaceProxierOptions) {
    const { iptables, settings, logger } = options;
    const { family } = iptables;
    super({ ...options, mode: "userspace", family, kinds: ["filter", "nat"], checksAlone: true });
    this.#options = options;
    this.#own = { chains: CHAINS, jumps: jumpsOf(settings.has) };
    this.#other = new OtherKproxy(family, logger);
    this.#driftCheck = new DriftCheck({ iptables, own: this.#own, logger, nowMs: this.nowMs });
  }

  /** Opens new portals, writes the rules that differ, then closes unused portals. */
  override sync(request: SyncRequest): Promise<ApplyReport> {
    this.#driftCheck.giveWay();
    return super.sync(request);
  }

  protected override async checkDrift(store: IptablesStore): Promise<false | null | Damage> {
    const plan = (): Pick<IptablesPlan, "services"> => ({ services: new Map() });
    const found = await this.#driftCheck.look(store, { family: this.family, canaries: [], plan });
    if (found === null) return null;
    const { damage, held } = found;
    if (damage === false) await this.#dropStaleGuards(store);
    return damage !== false && !await this.#isLeft(store, held.tables) && damage;
  }

  protected override total(store: IptablesStore): Readonly<Record<string, number>> {
    return { ...store.ruleCounts };
  }

  protected override describeRefusal(error: unknown): string | null {
    return isRuleRefusal(error) ? error.message : null;
  }

  protected override async writeAll(
    state: ProxyState,
    refused: ReadonlySet<NamespacedName>,
  ): Promise<IptablesStore> {
    const { iptables, portals } = this.#options;
    const held = await this.run("read", () => readTables(iptables, this.#own));
    this.progress.commands++;
    const { tables } = held;
    const plan = await this.run("plan", () => this.#plan(state, "all"));
    for (const name of refused) plan.set(name, null);
    const { known } = this;
    const isLeft = known !== undefined && await this.run("read", () => this.#isLeft(known, tables));
    const adopted = adoptedPorts([...plan.values()].flatMap((service) => service?.rules ?? []), tables);
    const guarded = this.#guardedPorts(tables);
    const problems = await this.run("apply", () => this.#open(plan, adopted, guarded));
    const rules = this.#rulesOf(plan);
    const moved = movedUdp(redirectsIn(tables), dispatchOf(rules));
    // Ports of another kproxy, or of a previous process, stay closed for as long as a process listens there.
    const others = await this.#other.guards(dispatchOf(rules), savedGuards(tables));
    rules.services.set(GUARDS_OF_OTHERS, sharedRules(others));
    const steps = fullSyncInSteps({ ...rules, all: true }, held, { family: this.family });
    const { transaction, store } = await inTurns(steps, { turnMs: TURN_MS });
    this.#wanted = store;
    // The rules of the other kproxy stay.
    if (isLeft) await portals.closeUnused(plan, true);
    else {
      await this.#write({ plan, transaction, moved }, true);
      await this.run("apply", () => this.#dropStaleGuards(store));
      this.#driftCheck.fullySynced();
    }
    for (const [service, problem] of problems) this.quarantine.refused({ service, problem });
    return store;
  }

  /** True if another kproxy serves, so that its rules are left alone. */
  #isLeft(known: IptablesStore, tables: IptablesRuleset): Promise<boolean> {
    const read = async (): Promise<IptablesRuleset> =>
      (await readTables(this.#options.iptables, this.#own)).tables;
    return this.#other.leads(dispatchIn(known), tables, read);
  }

  protected override findRefused(): Promise<readonly RefusedService[]> {
    const store = this.#wanted!;
    const candidates = [...store.serviceNames].filter((name) => name !== GUARDS_OF_OTHERS)
      .map((name) => [name, sharedRules(store.service(name)!.dispatch)] as const);
    return this.run("apply", () => refusedServices(this.#options.iptables, candidates, candidates.length));
  }

  protected override async writeChange(
    state: ProxyState,
    changed: ReadonlySet<NamespacedName>,
    store: IptablesStore,
  ): Promise<void> {
    const names = changed.union(new Set(this.quarantine.due(changed)));
    const plan = await this.run("plan", () => this.#plan(state, names));
    const problems = await this.run("apply", () => this.#open(plan, new Map(), new Set()));
    const rules = this.#rulesOf(plan);
    const before = [...names].flatMap((name) => store.service(name)?.dispatch ?? []);
    const { transaction, commit } = store.change(rules);
    const moved = movedUdp(before, dispatchOf(rules));
    await this.#write({ plan, transaction, moved }, false, lastHostRule(store));
    commit();
    this.quarantine.settle(names, problems);
  }

  /**
   * Writes in an order in which no client reaches a portal but by rules: first the firewall rules of its port, then its
   * endpoints, then rules that lead packets to it; once those are gone it is closed, and then its firewall rules go.
   *
   * @param witness a rule of nat that must be there: where another kproxy has put its own in the place of ours, iptables refuses all of it
   */
  async #write(
    { plan, transaction, moved }: Planned,
    isAll: boolean,
    witness: DispatchRule | null = null,
  ): Promise<void> {
    const { iptables, portals, staleUdp } = this.#options;
    addWritten(this.progress, transaction.counts);
    let seen = witness === null ? "" : insisting(witness);
    const restore = async (text: string | undefined): Promise<void> => {
      if (text === undefined) return;
      await this.run("apply", () => iptables.restore(seen + text));
      seen = "";
      this.progress.commands++;
      this.progress.bytes += text.length;
    };
    const closed = transaction.edits.filter.removed.splice(0);
    const blocks = [...transaction.blocks(Infinity)];
    await restore(blocks.find((block) => block.startsWith("*filter")));
    const led = [...plan.values()].flatMap((service) => service?.portals ?? []);
    await Promise.all(led.map((portal) => portals.lead(portal)));
    await restore(blocks.find((block) => block.startsWith("*nat")));
    await staleUdp.remove(moved);
    await portals.closeUnused(plan, isAll);
    await restore(closed.length === 0 ? undefined : tableBlock("filter", closed));
  }

  async #plan(state: ProxyState, changed: Changed): Promise<Map<NamespacedName, ServicePortals | null>> {
    const { nodePortAddresses, ...settings } = this.settings;
    const nodePortIps = this.takeNodePortIps(nodePortAddresses);
    const steps = planUserspaceInSteps(state, changed, {
      ...settings,
      family: this.family,
      nodePortIps: nodePortAddresses.matchAll ? null : nodePortIps,
    });
    return new Map(await inTurns(steps, { turnMs: TURN_MS }));
  }

  #rulesOf(plan: UserspacePlan): ReturnType<typeof planRules> {
    return planRules(plan, (id) => this.#options.portals.portOf(id), this.settings.has);
  }

  /**
   * Opens the portals of a plan; those that clients reach by rules only get their endpoints at once.
   *
   * @param adopted preferred ports of portals, to which rules lead already
   * @param guarded the ports that the firewall keeps direct packets from
   * @returns problems of Services that lack portals
   */
  async #open(
    plan: UserspacePlan,
    adopted: ReadonlyMap<PortalId, number>,
    guarded: ReadonlySet<LedTo>,
  ): Promise<ReadonlyMap<NamespacedName, string>> {
    const { portals } = this.#options;
    const { firewall } = this.settings.has;
    return await portals.openAll(plan, async (portal, port) => {
      if (!firewall || guarded.has(`${portal.protocol} ${port}`)) await portals.lead(portal);
    }, { requestedOf: ({ id }) => adopted.get(id) ?? null });
  }

  #guardedPorts(saved: IptablesRuleset): ReadonlySet<LedTo> {
    const filter = saved.get("filter");
    const isReached = [...jumpRules(this.#own.jumps, "filter")].every(([chain, rules]) =>
      holdsAmongOthers(filter?.get(chain)?.rules ?? [], rules)
    );
    return new Set(isReached ? savedGuards(saved).map(([led]) => led) : []);
  }

  /** Deletes firewall rules for ports of other processes that are closed now. */
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

function dispatchOf({ services }: Pick<IptablesPlan, "services">): readonly DispatchRule[] {
  return [...services.values()].flatMap((service) => service?.dispatch ?? []);
}

/** The rules of all Services. */
function dispatchIn(store: IptablesStore): readonly DispatchRule[] {
  return [...store.serviceNames].flatMap((name) => store.service(name)!.dispatch);
}

/** The last rule of a Service in `KUBE-PORTALS-HOST`, for the node's own packets. */
function lastHostRule(store: IptablesStore): DispatchRule | null {
  for (const name of store.serviceNames) {
    const last = store.service(name)!.dispatch.findLast(({ chain }) => chain === PORTALS_HOST);
    if (last !== undefined) return last;
  }
  return null;
}

/** Restore text that changes nothing, and is refused where the rule is missing. */
function insisting({ chain, rule }: DispatchRule): string {
  return tableBlock("nat", [`-D ${chain} ${rule}`, `-A ${chain} ${rule}`]);
}
