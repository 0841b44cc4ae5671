/**
 * Removal of rules at the end of the process: they would lead to the program that has its ports next.
 *
 * @module
 */
import type { Exec } from "../../../kernel/exec.ts";
import type { Iptables } from "../../../kernel/iptables.ts";
import { chainLine, tableBlock } from "../../../netfilter/iptables_jumps.ts";
import { type IptablesRuleset, parseIptablesSave } from "../../../netfilter/iptables_save.ts";
import { errorText, type Logger } from "../../../observe/log.ts";
import { planCleanup, USERSPACE_CLEANUP } from "../../node/iptables_leftovers.ts";
import { movedUdp, portsLedTo, redirectsIn, type UdpDestination } from "../plan/port_rules.ts";
import { isTaken } from "./other_kproxy.ts";
import { ExecError } from "../../../errors.ts";
import { Conntrack } from "../../../kernel/conntrack.ts";
import type { IpFamily } from "../../../model/objects.ts";

/** Removes the rules of one family, step by step: while the ports are held no other program can get their packets. */
export class Withdrawal {
  readonly #iptables: Iptables;
  readonly #staleUdp: StaleUdp;
  readonly #log: Logger;
  /** The rules that were in force; null: they are not ours to remove. */
  #saved: IptablesRuleset | null = null;

  /** @param exec starts programs when those of the last proxy server have ended */
  constructor(iptables: Iptables, exec: Exec, log: Logger) {
    this.#iptables = iptables.with(exec);
    this.#staleUdp = new StaleUdp(exec, iptables.family, log);
    this.#log = log;
  }

  /**
   * Removes the rules that lead to this process. Those of another kproxy, started meanwhile, are left alone.
   *
   * @param own `IPv4 TCP 40001` of each port of this process
   */
  async redirects(own: ReadonlySet<string>): Promise<void> {
    const { family } = this.#iptables;
    await this.#attempt(async () => {
      const saved = parseIptablesSave(await this.#iptables.save());
      const led = portsLedTo(saved);
      if (![...led].some((one) => own.has(`${family} ${one}`))) {
        const taken = await Promise.all(Array.from(led, (one) => isTaken(family, one)));
        if (taken.some((one) => one !== false)) return;
      }
      if (await this.#empty(saved, ["nat"], false)) {
        this.#saved = saved;
        this.#log.info("Removed the rules that lead Services to this process", { family });
      }
    });
  }

  /** Deletes tracked UDP flows, which would go on to the ports. */
  async flows(): Promise<void> {
    if (this.#saved !== null) await this.#staleUdp.remove(movedUdp(redirectsIn(this.#saved), []));
  }

  /** Removes the firewall rules of the ports, once these are closed, and the empty chains. */
  async rest(): Promise<void> {
    const saved = this.#saved;
    if (saved !== null) await this.#attempt(() => this.#empty(saved, ["filter", "nat"], true));
  }

  /** Removes the jumps to the chains of some tables, and their rules. @returns false if there are none */
  async #empty(
    saved: IptablesRuleset,
    tables: readonly ("filter" | "nat")[],
    isLast: boolean,
  ): Promise<boolean> {
    const found = planCleanup(saved, [USERSPACE_CLEANUP]).filter(({ chains }) => chains.length > 0);
    const blocks = tables.flatMap((table) => found.filter((one) => one.table === table)).map(
      ({ table, jumps, chains }) => {
        const isGone = isLast && table === "nat";
        return tableBlock(table, [
          ...isGone ? [] : jumps,
          ...chains.map(chainLine),
          ...isLast ? chains.map((chain) => `-X ${chain}`) : [],
        ]);
      },
    );
    if (blocks.length > 0) await this.#iptables.restore(blocks.join(""));
    return found.length > 0;
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

/** Deletes tracked flows, so that they begin anew by the rules in force. */
export class StaleUdp {
  readonly #conntrack: Conntrack;
  readonly #family: IpFamily;
  readonly #log: Logger;
  #reportedProblem = "";

  constructor(exec: Exec, family: IpFamily, log: Logger) {
    this.#conntrack = new Conntrack(exec);
    this.#family = family;
    this.#log = log;
  }

  /** Deletes tracked flows. Never rejects: those that stay end by themselves once they are idle. */
  async remove(destinations: readonly UdpDestination[]): Promise<void> {
    if (destinations.length === 0) return;
    const [family, log] = [this.#family, this.#log];
    const of = family === "IPv4" ? "ipv4" : "ipv6";
    try {
      const deleted = await this.#conntrack.delete(destinations.map(({ ip, port }) => [
        ...["-f", of, "-p", "udp", "--orig-port-dst", `${port}`],
        ...(ip === null ? [] : ["--orig-dst", ip]),
      ]));
      if (deleted > 0) log.info("Removed tracked UDP flows that led elsewhere", { family, deleted }, 2);
      this.#reportedProblem = "";
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      const problem = errorText(error);
      if (problem !== this.#reportedProblem) {
        log.warn("Cannot remove tracked UDP flows that lead elsewhere; they end once they are idle", {
          family,
          problem,
        });
      }
      this.#reportedProblem = problem;
    }
  }
}
