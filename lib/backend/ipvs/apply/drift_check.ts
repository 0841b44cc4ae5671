/**
 * Looks whether the kernel still holds what was written: at all of it where that is cheap, else at what packets cannot do without each time
 * and at everything once an hour.
 *
 * @module
 */
import type { Exec } from "../../../kernel/exec.ts";
import { deviceAddresses } from "../../../kernel/ip_address.ts";
import { saveSets, setSizes } from "../../../kernel/ipset.ts";
import type { Iptables } from "../../../kernel/iptables.ts";
import type { Ipvsadm } from "../../../kernel/ipvsadm.ts";
import { realServerKey, virtualServerKey } from "../../../netfilter/ipvs.ts";
import { FullLooks } from "../../apply/full_looks.ts";
import { type Damage, damageOf } from "../../damage.ts";
import { OUT_FILTER_CHAIN } from "../plan/base_rules.ts";
import { DEVICE } from "../plan/ruleset.ts";
import { setNames } from "../plan/sets.ts";
import { findDrift, type HeldObjects, type Ownership, type WantedObjects } from "../store/objects.ts";
import type { IpvsStore } from "../store/store.ts";
import type { IpvsTransaction } from "../store/transaction.ts";
import { listRules } from "./reading.ts";

/**
 * What is cheap to list, in entries of sets; a real server counts as two, a rule as ten. So much takes about 1 % of a CPU at the default
 * sync period of 30 s.
 */
export const CHEAP_TO_LIST = 60_000;

/** What a {@linkcode DriftCheck} needs. */
export interface DriftCheckOptions {
  readonly exec: Exec;
  readonly ipvs: Ipvsadm;
  /** Of the family that is of interest. */
  readonly iptables: Iptables;
  /** See {@linkcode CHEAP_TO_LIST}. */
  readonly cheapToList: number;
  /** Milliseconds, monotonic. */
  readonly nowMs: () => number;
}

/** Looks at one family. */
export class DriftCheck {
  readonly #options: DriftCheckOptions;
  readonly #fullLooks = new FullLooks();

  constructor(options: DriftCheckOptions) {
    this.#options = options;
  }

  /**
   * What is not as it was committed; false if all is, as far as was looked.
   *
   * @throws {ExecError} if something cannot be listed
   */
  async look(store: IpvsStore, ownership: Ownership): Promise<false | Damage> {
    const { cheapToList, nowMs } = this.#options;
    const { realServers, entries, filter } = store.counts;
    const isCheap = 2 * realServers + entries + 10 * filter <= cheapToList;
    const startMs = nowMs();
    const isAll = isCheap || this.#fullLooks.isDue(startMs);
    if (isAll) this.#fullLooks.putOff(startMs);
    const found = isAll ? await this.#all(store, ownership) : await this.#part(store, ownership);
    this.#fullLooks.ended({ isAll, isLarge: !isCheap, isDamaged: found.length > 0, startMs, endMs: nowMs() });
    return damageOf("all", found);
  }

  async #all(store: IpvsStore, ownership: Ownership): Promise<readonly string[]> {
    const { exec, ipvs, iptables } = this.#options;
    const rules = await listRules(iptables);
    const own = new Set(setNames(ownership.family));
    const sets = await saveSets(exec, (name) => own.has(name));
    const virtualServers = store.counts.virtualServers === 0 ? new Map() : (await ipvs.save()).virtualServers;
    const addresses = await deviceAddresses(exec, DEVICE);
    const wanted = rules === null ? withoutRules(store.objects) : store.objects;
    const held = { tables: new Map(), ...rules, sets, virtualServers, addresses };
    return driftNames(findDrift(wanted, held, ownership));
  }

  /** Base chains, how many entries the sets have, the addresses, and one virtual server: after a flush it is gone. */
  async #part(store: IpvsStore, ownership: Ownership): Promise<readonly string[]> {
    const { exec, ipvs, iptables } = this.#options;
    const rules = await listRules(iptables, OUT_FILTER_CHAIN);
    const damagedSets = setsOfOtherSize(await setSizes(exec), store, ownership);
    const [server] = store.servers();
    const reals = server === undefined ? null : await ipvs.listRealServers(server.server);
    const addresses = await deviceAddresses(exec, DEVICE);
    const objects = rules === null ? withoutRules(store.objects) : store.objects;
    const { chains } = objects;
    const wanted: WantedObjects = {
      ...objects,
      sets: [],
      servers: server === undefined ? [] : [server],
      chains: { ...chains, filter: chains.filter.filter((chain) => chain !== OUT_FILTER_CHAIN) },
    };
    const held: HeldObjects = {
      tables: new Map(),
      ...rules,
      sets: new Map(),
      // The listing of one server says nothing of how it was made.
      virtualServers: server === undefined || reals === null ? new Map() : new Map([[
        server.key,
        { server: server.server, realServers: new Map(reals.map((real) => [realServerKey(real), real])) },
      ]]),
      addresses,
    };
    return [...driftNames(findDrift(wanted, held, ownership)), ...damagedSets];
  }
}

function withoutRules(objects: WantedObjects): WantedObjects {
  return { ...objects, chains: { nat: [], filter: [] }, jumps: [] };
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

/** Chains, sets, virtual servers and addresses that differ. */
function driftNames(
  { chains, sets, servers, makesDevice, bound, unbound }: IpvsTransaction,
): readonly string[] {
  return [
    ...chains,
    ...sets.map(({ set }) => set),
    ...new Set(servers.map(({ server }) => virtualServerKey(server))),
    ...makesDevice ? [DEVICE] : [...bound, ...unbound].map((address) => `${DEVICE} ${address}`),
  ];
}
