/**
 * Drift check: compares the kernel with the written objects: all of them where that is cheap, else those that
 * packets cannot do without each time, and everything once an hour.
 *
 * @module
 */
import { deviceAddresses } from "../../../kernel/ip_address.ts";
import { saveSets, setSizes } from "../../../kernel/ipset.ts";
import { realServerKey, type SavedVirtualServer, virtualServerKey } from "../../../netfilter/ipvs.ts";
import { DriftSchedule } from "../../apply/drift_schedule.ts";
import { type Damage, damageOf } from "../../backend.ts";
import { DriftCheck as RuleDriftCheck } from "../../iptables/apply/drift_check.ts";
import { OWN_RULES } from "../plan/base_rules.ts";
import { DEVICE } from "../plan/ruleset.ts";
import { setNames } from "../plan/sets.ts";
import { findDrift, type Ownership } from "../store/objects.ts";
import type { IpvsStore } from "../store/store.ts";
import type { IpvsTransaction } from "../store/transaction.ts";
import type { IpvsProxierOptions } from "./proxier.ts";

/**
 * Size that is cheap to list, in entries of sets; a real server counts as two. So much takes about 1 % of a
 * CPU at the default sync period of 30 s.
 */
const CHEAP_TO_LIST = 60_000;

/** Drift check of one family. */
export class DriftCheck {
  readonly #options: IpvsProxierOptions;
  readonly #schedule = new DriftSchedule();
  /** Drift check of the rules alone, which are few. */
  readonly #rules: RuleDriftCheck;

  constructor(options: IpvsProxierOptions) {
    const { iptables, log: logger, nowMs } = options;
    this.#options = options;
    // There are no chains of Services that only a list of all would show.
    this.#rules = new RuleDriftCheck({ iptables, own: OWN_RULES, logger, nowMs, largeChains: -1 });
  }

  /** Notes a full sync: it compared everything, and wrote the differences. */
  fullySynced(): void {
    this.#rules.fullySynced();
  }

  /**
   * Finds what differs from the committed objects; false if nothing does, as far as was checked.
   *
   * @throws {ExecError} if something cannot be listed
   */
  async look(store: IpvsStore, ownership: Ownership): Promise<false | Damage> {
    const { cheapToList = CHEAP_TO_LIST, nowMs } = this.#options;
    const { realServers, entries } = store.counts;
    const isLarge = 2 * realServers + entries > cheapToList;
    const startMs = nowMs();
    const isAll = this.#schedule.begin(startMs) || !isLarge;
    const found = await this.#find(store, ownership, isAll);
    this.#schedule.ended({ isAll, isLarge, isDamaged: found.length > 0, startMs, endMs: nowMs() });
    return damageOf(found);
  }

  /** Names damaged rules (none if unknown) and addresses, and damaged sets and servers as far as is asked for. */
  async #find(store: IpvsStore, ownership: Ownership, isAll: boolean): Promise<readonly string[]> {
    const { exec, ipvs } = this.#options;
    const { family } = ownership;
    const looked = await this.#rules.look(store.rules, { family, canaries: [] });
    const rules = looked === null || looked.damage === false ? [] : looked.damage;
    const addresses = await deviceAddresses(exec, DEVICE);
    if (isAll) {
      const own = new Set(setNames(family));
      const sets = await saveSets(exec, (name) => own.has(name));
      const { virtualServers } = store.counts.virtualServers === 0
        ? { virtualServers: new Map() }
        : await ipvs.save();
      return [
        ...rules,
        ...driftNames(findDrift(store.objects, { addresses, sets, virtualServers }, ownership)),
      ];
    }
    // Numbers of entries of the sets, and one virtual server: after a flush it is gone.
    const damagedSets = setsOfOtherSize(await setSizes(exec), store, ownership);
    const servers = [...store.servers().take(1)];
    const virtualServers = new Map<string, SavedVirtualServer>();
    for (const { key, server } of servers) {
      const reals = await ipvs.listRealServers(server);
      // The listing of one server does not show its own options.
      const realServers = new Map(reals?.map((real) => [realServerKey(real), real]));
      if (reals !== null) virtualServers.set(key, { server, realServers });
    }
    const part = { ...store.objects, sets: [], servers };
    const drift = findDrift(part, { addresses, sets: new Map(), virtualServers }, ownership);
    return [...rules, ...driftNames(drift), ...damagedSets];
  }
}

/** Sets that are gone or have more or fewer entries than they had, where that is known. */
function setsOfOtherSize(
  sizes: ReadonlyMap<string, number | null>,
  store: IpvsStore,
  { family }: Ownership,
): readonly string[] {
  return setNames(family).filter((set) => {
    const found = sizes.get(set);
    return found === undefined || (found !== null && found !== store.setSize(set));
  });
}

/** Sets, virtual servers and addresses that differ. */
function driftNames(
  { sets, servers, makesDevice, bound, unbound }: IpvsTransaction,
): readonly string[] {
  return [
    ...sets.map(({ set }) => set),
    ...new Set(servers.map(({ server }) => virtualServerKey(server))),
    ...makesDevice ? [DEVICE] : [...bound, ...unbound].map((address) => `${DEVICE} ${address}`),
  ];
}
