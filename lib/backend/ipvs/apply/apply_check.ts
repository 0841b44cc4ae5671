/**
 * Looks at what one family has in the kernel, with four starts of a program; where chains are missing or cannot be listed together, with a
 * few more.
 *
 * @module
 */
import { ExecError } from "../../../errors.ts";
import type { Exec } from "../../../kernel/exec.ts";
import { deviceAddresses } from "../../../kernel/ip_address.ts";
import { saveSets, setSizes } from "../../../kernel/ipset.ts";
import type { Iptables } from "../../../kernel/iptables.ts";
import { isLockBusy } from "../../../kernel/iptables_lock.ts";
import type { Ipvsadm } from "../../../kernel/ipvsadm.ts";
import type { Cidr } from "../../../model/ip.ts";
import { type Damage, damageOf } from "../../damage.ts";
import { damagedByName } from "./apply_by_name.ts";
import type { CommittedIpvs } from "../diff/committed.ts";
import {
  damagedAddresses,
  damagedChains,
  damagedServers,
  damagedSets,
  damagedSizes,
  holdsServer,
  rulesProbe,
} from "../diff/observe_damage.ts";
import { DEVICE, type WantedServer } from "../plan/ruleset.ts";
import { setNames } from "../plan/sets.ts";

/**
 * What a look may read of each kind, taken over the long run: with twice as many every second one reads them all, and so on. The looks
 * between read what costs little: one virtual server, how many entries the sets have.
 */
export interface CheckLimits {
  readonly realServers: number;
  /** Of all sets together. */
  readonly entries: number;
  /** In KUBE-IPVS-OUT-FILTER. */
  readonly outFilters: number;
}

/** A look takes about 1 % of a CPU at the default sync period of 30 s. */
export const CHECK_LIMITS: CheckLimits = { realServers: 20_000, entries: 40_000, outFilters: 4_000 };

/** What to look with. */
export interface LookTools {
  readonly exec: Exec;
  readonly ipvs: Ipvsadm;
  /** Of the family that is of interest. */
  readonly iptables: Iptables;
}

/** Looks at one family. */
export class IpvsLook {
  readonly #tools: LookTools;
  readonly #limits: CheckLimits;
  #looks = -1;
  /** The last look found damage: the next one tells whether the repair helped. */
  #again = false;
  /** What the samples come from, and those that had no turn yet. */
  #sampled: { readonly committed: CommittedIpvs; readonly rest: Iterator<WantedServer> } | undefined;

  constructor(tools: LookTools, limits: CheckLimits) {
    this.#tools = tools;
    this.#limits = limits;
  }

  /**
   * What is not as it was committed; false if all is.
   *
   * @param excludeCidrs addresses on which servers of others may stand
   * @throws {ExecError} if something cannot be listed
   */
  async look(committed: CommittedIpvs, excludeCidrs: readonly Cidr[]): Promise<false | Damage> {
    this.#looks++;
    const { exec } = this.#tools;
    const found = [
      ...await this.#rules(committed),
      ...await this.#sets(committed),
      ...await this.#servers(committed, excludeCidrs),
      ...damagedAddresses(await deviceAddresses(exec, DEVICE), committed),
    ];
    this.#again = found.length > 0;
    return damageOf("all", found);
  }

  #readsAll(kind: keyof CheckLimits, count: number): boolean {
    return this.#again || this.#looks % Math.max(1, Math.ceil(count / this.#limits[kind])) === 0;
  }

  async #rules(committed: CommittedIpvs): Promise<readonly string[]> {
    const probe = rulesProbe(committed, this.#readsAll("outFilters", committed.union.outFilterCount));
    try {
      return damagedChains(await this.#tools.iptables.restore(probe.text, { counters: false }), probe);
    } catch (error) {
      if (!(error instanceof ExecError) || error.isMissing()) throw error;
      // A lock that somebody holds says nothing about our rules.
      return isLockBusy(error) ? [] : await damagedByName(this.#tools.iptables, probe);
    }
  }

  async #sets(committed: CommittedIpvs): Promise<readonly string[]> {
    const { exec } = this.#tools;
    const own = new Set(setNames(committed.base.family));
    let entries = 0;
    for (const set of own) entries += committed.union.setSize(set);
    return this.#readsAll("entries", entries)
      ? damagedSets(await saveSets(exec, (name) => own.has(name)), committed)
      : damagedSizes(await setSizes(exec), committed);
  }

  async #servers(committed: CommittedIpvs, excludeCidrs: readonly Cidr[]): Promise<readonly string[]> {
    const { ipvs } = this.#tools;
    const { union } = committed;
    if (union.serverCount === 0) return [];
    if (this.#readsAll("realServers", union.realServerCount)) {
      return damagedServers(await ipvs.save(), committed, excludeCidrs);
    }
    const sample = this.#nextSample(committed);
    return holdsServer(sample, await ipvs.listRealServers(sample.server)) ? [] : [sample.key];
  }

  /** One after the other; those that come meanwhile have their turn as well. */
  #nextSample(committed: CommittedIpvs): WantedServer {
    if (this.#sampled?.committed !== committed) {
      this.#sampled = { committed, rest: committed.union.servers() };
    }
    const next = this.#sampled.rest.next();
    if (next.done !== true) return next.value;
    this.#sampled = undefined;
    return this.#nextSample(committed);
  }
}
