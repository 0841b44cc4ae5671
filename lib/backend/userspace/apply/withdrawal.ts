/**
 * The end of the process: rules that lead to its ports would lead to whatever program has those ports next.
 *
 * @module
 */
import type { Exec } from "../../../kernel/exec.ts";
import type { Iptables } from "../../../kernel/iptables.ts";
import { chainLine, type Table, tableBlock } from "../../../netfilter/iptables_jumps.ts";
import { type IptablesRuleset, parseIptablesSave } from "../../../netfilter/iptables_save.ts";
import type { Logger } from "../../../observe/log.ts";
import { movedUdp, portsLedTo } from "../diff/held_rules.ts";
import { TABLES } from "../diff/rules.ts";
import { CHAINS, JUMPS } from "../plan/chains.ts";
import { isTaken } from "./other_kproxy.ts";
import { placeOf } from "./portals.ts";
import { StaleUdp } from "./stale_udp.ts";

/** Takes the rules of one family away, step by step: while the ports are held nobody else can have what is led there. */
export class Withdrawal {
  readonly #iptables: Iptables;
  readonly #staleUdp: StaleUdp;
  readonly #log: Logger;
  /** The rules that were in force; null: they are not ours to remove. */
  #saved: IptablesRuleset | null = null;

  /** @param exec starts programs when those of the last run have ended */
  constructor(iptables: Iptables, exec: Exec, log: Logger) {
    this.#iptables = iptables.with(exec);
    this.#staleUdp = new StaleUdp({ exec, family: iptables.family, log });
    this.#log = log;
  }

  /**
   * Leads nothing to this process any more. Rules that another kproxy, which was started meanwhile, leads to its own ports are left alone.
   *
   * @param isOwn takes a place, as {@linkcode placeOf} names it without an address
   */
  async redirects(isOwn: (place: string) => boolean): Promise<void> {
    const { family } = this.#iptables;
    await this.#attempt(async () => {
      const saved = parseIptablesSave(await this.#iptables.save());
      const hasChains = TABLES.some((table) => CHAINS[table].some((chain) => saved.get(table)?.has(chain)));
      if (!hasChains) return;
      const led = portsLedTo(saved);
      if (!led.some(({ protocol, port }) => isOwn(placeOf(family, protocol, "", port)))) {
        const taken = await Promise.all(led.map((one) => isTaken(family, one)));
        if (taken.some((one) => one !== false)) return;
      }
      await this.#iptables.restore(tableBlock("nat", this.#emptied(saved, "nat")));
      this.#saved = saved;
      this.#log.info("Removed the rules that lead Services to this process", { family });
    });
  }

  /** Tracked flows of UDP would go on to the port. */
  async flows(): Promise<void> {
    if (this.#saved !== null) await this.#staleUdp.remove(movedUdp(this.#saved, []));
  }

  /** Removes what kept direct packets from the ports, once these are closed, and the empty chains. */
  async rest(): Promise<void> {
    const saved = this.#saved;
    if (saved === null) return;
    const deleted = (table: Table): string[] => CHAINS[table].map((chain) => `-X ${chain}`);
    await this.#attempt(() =>
      this.#iptables.restore([
        tableBlock("filter", [...this.#emptied(saved, "filter"), ...deleted("filter")]),
        tableBlock("nat", [...CHAINS.nat.map(chainLine), ...deleted("nat")]),
      ].join(""))
    );
  }

  #emptied(saved: IptablesRuleset, table: Table): string[] {
    const jumps = JUMPS.filter((jump) => jump.table === table).flatMap(({ chain, args }) => {
      const there = saved.get(table)?.get(chain)?.rules.filter((rule) => rule === args) ?? [];
      return there.map(() => `-D ${chain} ${args}`);
    });
    return [...CHAINS[table].map(chainLine), ...jumps];
  }

  async #attempt(work: () => Promise<unknown>): Promise<void> {
    try {
      await work();
    } catch (error) {
      const { family } = this.#iptables;
      this.#log.error(
        "Cannot remove the rules that lead Services to this process: they stay, whatever has its ports next",
        error,
        { family },
      );
    }
  }
}
