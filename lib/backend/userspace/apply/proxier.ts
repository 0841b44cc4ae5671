/**
 * Userspace mode for one IP family: opens the portals of Services, leads their packets there, and closes what nothing leads to any more.
 *
 * @module
 */
import { ExecError, SyncError } from "../../../errors.ts";
import type { Iptables } from "../../../kernel/iptables.ts";
import { isLockBusy } from "../../../kernel/iptables_lock.ts";
import { isRuleRefusal } from "../../../kernel/iptables_refusal.ts";
import { Mutex } from "../../../kernel/mutex.ts";
import { inTurns, TURN_MS } from "../../../kernel/turns.ts";
import type { NodePortAddresses } from "../../../model/node.ts";
import type { IpFamily, NamespacedName } from "../../../model/objects.ts";
import type { Changed, ProxyState } from "../../../model/state.ts";
import { chainHolds, jumpRules } from "../../../netfilter/iptables_chains.ts";
import { canonicalRuleText, readableRuleText } from "../../../netfilter/canonical_iptables_rule.ts";
import type { JumpRule, Table } from "../../../netfilter/iptables_jumps.ts";
import { type IptablesRuleset, parseIptablesSave } from "../../../netfilter/iptables_save.ts";
import type { Logger } from "../../../observe/log.ts";
import { NodePortIps } from "../../apply/node_port_ips.ts";
import { FamilySession, type Since } from "../../apply/family_session.ts";
import { refusedServices } from "../../apply/iptables_trial.ts";
import { writeChange } from "../../apply/refusals.ts";
import type { ApplyReport, FamilyProxier, SyncRequest } from "../../backend.ts";
import { type Damage, damageOf } from "../../damage.ts";
import type { Refused } from "../../isolate.ts";
import { adoptedPorts, movedUdp, udpDestinations } from "../diff/held_rules.ts";
import { type BuiltinRules, changeTexts, rulesOf, TABLES, tableText, wantedChains } from "../diff/rules.ts";
import { jumpsOf, PORTALS_FIREWALL, PORTALS_HOST } from "../plan/chains.ts";
import { planUserspaceInSteps, type UserspaceOptions } from "../plan/plan.ts";
import type { PortalId, PortalRule, ServicePortals, UserspacePlan } from "../plan/ruleset.ts";
import { OtherKproxy } from "./other_kproxy.ts";
import type { PortalKeeper } from "./portals.ts";
import type { StaleUdp } from "./stale_udp.ts";

/** What decides the rules, as far as it is known before the first sync. */
export type UserspaceSettings =
  & Omit<UserspaceOptions, "family" | "nodePortIps">
  & { readonly nodePortAddresses: NodePortAddresses };

/** What a {@linkcode UserspaceProxier} needs. */
export interface UserspaceProxierOptions {
  readonly iptables: Iptables;
  readonly settings: UserspaceSettings;
  readonly portals: PortalKeeper;
  /** Told which UDP flows are led elsewhere. */
  readonly staleUdp: StaleUdp;
  /** Addresses of all interfaces of the node, both families. */
  readonly interfaceIps: () => readonly string[];
  readonly logger: Logger;
  /** Milliseconds, monotonic. Default: since the process began. */
  readonly nowMs?: () => number;
}

/** What is in force of one Service. */
interface CommittedPortals {
  readonly rules: readonly PortalRule[];
  readonly portals: readonly PortalId[];
}

type Committed = Map<NamespacedName, CommittedPortals>;

/** What a sync came to. */
interface Reached {
  readonly committed: Committed;
  readonly commands: number;
  readonly bytes: number;
  readonly written: number;
}

const NOTHING: CommittedPortals = { rules: [], portals: [] };

/** One family. */
export class UserspaceProxier implements FamilyProxier {
  readonly family: IpFamily;
  readonly #options: UserspaceProxierOptions;
  readonly #session: FamilySession<UserspaceSettings, Committed>;
  readonly #oneAtATime = new Mutex();
  readonly #other: OtherKproxy;
  readonly #nodePortIps: NodePortIps;
  /** What this proxier has written last; null: nothing yet. */
  #written: Committed | null = null;

  constructor(options: UserspaceProxierOptions) {
    const { iptables: { family }, settings, logger, nowMs = () => performance.now() } = options;
    this.family = family;
    this.#other = new OtherKproxy(options.iptables, logger);
    this.#options = options;
    this.#nodePortIps = new NodePortIps(options.interfaceIps);
    this.#session = new FamilySession({ mode: "userspace", family, settings, nowMs });
  }

  /** Takes new settings over. @returns true if they differ, so that everything must be written again */
  configure(settings: UserspaceSettings): boolean {
    return this.#session.configure(settings);
  }

  /**
   * Opens what is new, writes the rules with one program, then closes what nothing leads to any more.
   *
   * @throws {SyncError} if a program failed; its cause is the {@linkcode ExecError}
   */
  sync(request: SyncRequest): Promise<ApplyReport> {
    return this.#oneAtATime.run(() => this.#sync(request));
  }

  /** True if the addresses that serve node ports are others than those of the last sync. */
  isOutdated(): boolean {
    return this.#nodePortIps.isOutdated(this.#session.settings.nodePortAddresses);
  }

  checkCanary(): Promise<false | null | Damage> {
    return this.#oneAtATime.run(() =>
      this.#session.look(async (committed) => {
        try {
          const saved = await this.#readRules();
          await this.#other.removeStaleGuards(rulesIn(committed), saved);
          const damage = findDamage(committed, saved, jumpsOf(this.#session.settings.has));
          const isOurs = damage === false || !await this.#other.leads(rulesIn(committed), saved);
          return isOurs && damage;
        } catch (error) {
          if (error instanceof ExecError && isLockBusy(error)) return null;
          throw error;
        }
      })
    );
  }

  async #sync({ state, changed }: SyncRequest): Promise<ApplyReport> {
    const { committed, commands, bytes, written } = await this.#session.sync(
      changed,
      (since) =>
        since === null ? this.#syncAll(state) : writeChange({
          change: () => this.#syncChanged(state, since),
          problem: (error) =>
            error instanceof SyncError && isRuleRefusal(error.cause) ? error.cause.message : null,
          all: () => this.#syncAll(state),
        }, { logger: this.#options.logger, family: this.family }),
    );
    return this.#session.report({
      commands,
      bytes,
      written: { nat: written },
      total: { nat: [...committed.values()].reduce((sum, { rules }) => sum + rules.length, 0) },
    });
  }

  async #syncAll(state: ProxyState): Promise<Reached> {
    const { staleUdp } = this.#options;
    const saved = await this.#session.run("read", () => this.#readRules());
    const plan = await this.#session.run("plan", () => this.#plan(state, "all"));
    const isLeft = this.#written !== null && await this.#other.leads(rulesIn(this.#written), saved);
    const doorways = [...plan.values()].flatMap((service) => service?.doorways ?? []);
    const inForce = rulesInForce(saved, jumpsOf(this.#session.settings.has));
    const problems = await this.#session.run(
      "apply",
      () => this.#open(plan, adoptedPorts(doorways, saved), inForce),
    );
    const committed = this.#committedOf(plan);
    if (isLeft) {
      await this.#closeUnused(committed);
      this.#session.quarantine.replace([...problems].map(([service, problem]) => ({ service, problem })));
      return { committed, commands: 1, bytes: 0, written: 0 };
    }
    const { refused, ...written } = await this.#session.run(
      "apply",
      () => this.#writeAll(plan, committed, saved),
    );
    for (const { item, problem } of refused) problems.set(item, problem);
    this.#session.quarantine.replace([...problems].map(([service, problem]) => ({ service, problem })));
    this.#written = committed;
    await staleUdp.remove(movedUdp(saved, rulesIn(committed)));
    await this.#closeUnused(committed);
    await this.#session.run("apply", () => this.#other.removeStaleGuards(rulesIn(committed), saved));
    return { committed, ...written, written: countRules(committed) };
  }

  /** Writes the rules of all Services, without those that are refused, which are taken out of `committed`. */
  async #writeAll(
    plan: UserspacePlan,
    committed: Committed,
    saved: IptablesRuleset,
  ): Promise<Pick<Reached, "commands" | "bytes"> & { readonly refused: readonly Refused<NamespacedName>[] }> {
    const { iptables } = this.#options;
    try {
      return { ...await this.#restoreAll(plan, committed, saved), refused: [] };
    } catch (error) {
      if (!isRuleRefusal(error)) throw error;
      const candidates = [...rulesByService(committed)].map(([name, shared]) => ({
        name,
        shared,
        chains: [],
        rules: [],
      }));
      const refused = await refusedServices(iptables, candidates, candidates.length);
      if (refused.length === 0) throw error;
      for (const { item } of refused) committed.delete(item);
      return { ...await this.#restoreAll(plan, committed, saved), refused };
    }
  }

  /** Who may come to the portals is said before they lead anywhere, and that before packets are led there. */
  async #restoreAll(
    plan: UserspacePlan,
    committed: Committed,
    saved: IptablesRuleset,
  ): Promise<Pick<Reached, "commands" | "bytes">> {
    const { iptables } = this.#options;
    const [services, builtin] = [rulesByService(committed), builtinRules(saved)];
    const jumps = jumpsOf(this.#session.settings.has);
    // Ports of another kproxy, or of a former life, stay closed for as long as somebody listens there.
    const others = await this.#other.guards(rulesIn(committed), saved);
    const filter = tableText("filter", services, builtin, jumps, others);
    const isThere = findDamage(committed, saved, jumps, ["filter"]) === false;
    if (!isThere) await iptables.restore(filter);
    this.#lead(plan);
    const nat = tableText("nat", services, builtin, jumps);
    await iptables.restore(nat);
    return isThere ? { commands: 2, bytes: nat.length } : { commands: 3, bytes: filter.length + nat.length };
  }

  /** Lets portals lead to their endpoints. */
  #lead(plan: UserspacePlan): void {
    for (const service of plan.values()) {
      for (const portal of service?.portals ?? []) this.#options.portals.lead(portal);
    }
  }

  async #syncChanged(state: ProxyState, { changed, committed }: Since<Committed>): Promise<Reached> {
    const { iptables, staleUdp } = this.#options;
    const { quarantine } = this.#session;
    const names = changed.union(new Set(quarantine.due(changed)));
    const plan = await this.#session.run("plan", () => this.#plan(state, names));
    const problems = await this.#session.run("apply", () => this.#open(plan, new Map(), new Set()));
    const now = this.#committedOf(plan);
    const before = new Map([...names].map((name) => [name, committed.get(name) ?? NOTHING]));
    const texts = changeTexts(rulesByService(before), rulesByService(now), witnessOf(committed));
    const { filterBefore, nat, filterAfter } = texts;
    const restore = async (text: string | null): Promise<void> => {
      if (text !== null) await this.#session.run("apply", () => iptables.restore(text));
    };
    await restore(filterBefore);
    this.#lead(plan);
    await restore(nat);
    for (const name of names) {
      const service = now.get(name);
      if (service === undefined) committed.delete(name);
      else committed.set(name, service);
      const problem = problems.get(name);
      if (problem === undefined) quarantine.release(name);
      else quarantine.refused({ service: name, problem });
    }
    this.#written = committed;
    const former = new Set([...before.values()].flatMap(({ rules }) => rules.map(({ rule }) => rule)));
    const newer = new Set([...now.values()].flatMap(({ rules }) => rules.map(({ rule }) => rule)));
    await staleUdp.remove([
      ...udpDestinations(
        [...now.values()].flatMap(({ rules }) => rules).filter(({ rule }) => !former.has(rule)),
      ),
      ...udpDestinations(
        [...before.values()].flatMap(({ rules }) => rules).filter(({ rule }) => !newer.has(rule)),
      ),
    ]);
    await this.#closeUnused(committed);
    await restore(filterAfter);
    const written = [filterBefore, nat, filterAfter].filter((text) => text !== null);
    const bytes = written.reduce((sum, { length }) => sum + length, 0);
    return { committed, commands: written.length, bytes, written: countRules(now) };
  }

  async #plan(state: ProxyState, changed: Changed): Promise<UserspacePlan> {
    const { nodePortAddresses, ...settings } = this.#session.settings;
    const nodePortIps = this.#nodePortIps.take(nodePortAddresses);
    const steps = planUserspaceInSteps(state, changed, {
      ...settings,
      family: this.family,
      nodePortIps: nodePortAddresses.matchAll ? null : nodePortIps,
    });
    return await inTurns(steps, { turnMs: TURN_MS });
  }

  /**
   * Opens the portals of a plan; those that nobody reaches but by rules lead on at once.
   *
   * @param guards canonical rules of the firewall that are in force
   * @returns why Services lack some
   */
  async #open(
    plan: UserspacePlan,
    ports: ReadonlyMap<PortalId, number>,
    guards: ReadonlySet<string>,
  ): Promise<Map<NamespacedName, string>> {
    const { portals } = this.#options;
    const problems = new Map<NamespacedName, string>();
    for (const [name, service] of plan) {
      for (const { text, reason } of service?.unserved ?? []) problems.set(name, `${text}: ${reason}`);
      for (const portal of service?.portals ?? []) {
        try {
          await portals.ensure(portal, ports.get(portal.id) ?? null);
          const own = service?.doorways.filter((one) =>
            one.chain === PORTALS_FIREWALL && one.portal === portal.id
          );
          const rules = rulesOf(own ?? [], (id) => portals.portOf(id));
          if (rules.every(({ rule }) => guards.has(canonicalRuleText(rule)))) portals.lead(portal);
        } catch (error) {
          problems.set(name, `${portal.text}: ${error instanceof Error ? error.message : String(error)}`);
        }
      }
    }
    return problems;
  }

  /** What a plan comes to with the ports that are open. */
  #committedOf(plan: UserspacePlan): Committed {
    const { portals } = this.#options;
    const present = [...plan].filter((entry): entry is [string, ServicePortals] => entry[1] !== null);
    return new Map(present.map(([name, service]) => [name, {
      rules: rulesOf(service.doorways, (id) => portals.portOf(id)),
      portals: service.portals.map(({ id }) => id),
    }]));
  }

  async #closeUnused(committed: Committed): Promise<void> {
    const { portals } = this.#options;
    const used = new Set([...committed.values()].flatMap(({ portals }) => portals));
    await portals.close([...portals.ids].filter((id) => !used.has(id)));
  }

  async #readRules(): Promise<IptablesRuleset> {
    return parseIptablesSave(await this.#options.iptables.save());
  }
}

/** The canonical rules of the firewall that are in force. */
function rulesInForce(saved: IptablesRuleset, jumps: readonly JumpRule[]): ReadonlySet<string> {
  const filter = saved.get("filter");
  const isReached = [...jumpRules(jumps, "filter")].every(([chain, rules]) =>
    chainHolds(filter?.get(chain)?.rules ?? [], { rules, comparison: "among" })
  );
  const rules = isReached ? filter?.get(PORTALS_FIREWALL)?.rules ?? [] : [];
  return new Set(rules.map((rule) => readableRuleText(rule) ?? ""));
}

function rulesByService(committed: Committed): Map<NamespacedName, readonly PortalRule[]> {
  return new Map([...committed].map(([name, { rules }]) => [name, rules]));
}

function rulesIn(committed: Committed): readonly PortalRule[] {
  return [...committed.values()].flatMap(({ rules }) => rules);
}

/** See {@linkcode changeText}. */
function witnessOf(committed: Committed): PortalRule | null {
  for (const { rules } of committed.values()) {
    const last = rules.findLast(({ chain }) => chain === PORTALS_HOST);
    if (last !== undefined) return last;
  }
  return null;
}

function countRules(committed: Committed): number {
  return [...committed.values()].reduce((sum, { rules }) => sum + rules.length, 0);
}

function builtinRules(saved: IptablesRuleset): BuiltinRules {
  const of = (table: string): Map<string, readonly string[]> =>
    new Map([...saved.get(table) ?? []].map(([chain, { rules }]) => [chain, rules]));
  return { filter: of("filter"), nat: of("nat") };
}

/** Which of our chains and jumps are not as they were written. */
function findDamage(
  committed: Committed,
  saved: IptablesRuleset,
  jumps: readonly JumpRule[],
  tables: readonly Table[] = TABLES,
): false | Damage {
  const found: string[] = [];
  for (const [table, chains] of wantedChains(rulesByService(committed))) {
    if (!tables.includes(table)) continue;
    const there = saved.get(table);
    for (const [chain, rules] of chains) {
      const isWhole = there?.has(chain) === true &&
        // The firewall may have rules about ports of others besides.
        chainHolds(there.get(chain)!.rules, {
          rules,
          comparison: chain === PORTALS_FIREWALL ? "among" : "sameInAnyOrder",
        });
      if (!isWhole) found.push(`${table} ${chain}`);
    }
    for (const [chain, rules] of jumpRules(jumps, table)) {
      const isThere = chainHolds(there?.get(chain)?.rules ?? [], { rules, comparison: "among" });
      if (!isThere) found.push(`${table} ${chain}`);
    }
  }
  return damageOf("all", found);
}
