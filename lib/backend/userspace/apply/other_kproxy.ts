/**
 * Another kproxy, or a previous process of this one, whose ports are still open: one that is started before this one ends leads Services
 * to ports of its own, and its rules are left alone for as long as it listens there.
 *
 * @module
 */
import { isPortTaken } from "../../../kernel/port_probe.ts";
import type { IpFamily } from "../../../model/objects.ts";
import type { IptablesRuleset } from "../../../netfilter/iptables_save.ts";
import type { Logger } from "../../../observe/log.ts";
import type { DispatchRule } from "../../iptables/plan/ruleset.ts";
import { type Guard, guardsIn, type LedTo, otherPorts } from "../plan/port_rules.ts";

/** True if a process listens on the port; null: that cannot be found out. */
export function isTaken(family: IpFamily, { protocol, port }: LedTo): Promise<boolean | null> {
  return isPortTaken(family, protocol === "TCP" ? "tcp" : "udp", port);
}

/** Of one family. */
export class OtherKproxy {
  readonly #family: IpFamily;
  readonly #logger: Logger;
  #isTold = false;

  constructor(family: IpFamily, logger: Logger) {
    this.#family = family;
    this.#logger = logger;
  }

  /** True if a process listens on every port that rules lead to in the place of ours. */
  async leads(rules: readonly DispatchRule[], saved: IptablesRuleset): Promise<boolean> {
    const family = this.#family;
    const others = otherPorts(rules, saved);
    const taken = await Promise.all(others.map((led) => isTaken(family, led)));
    const leads = others.length > 0 && taken.every((one) => one === true);
    if (leads && !this.#isTold) {
      this.#logger.info("Another kproxy leads Services to its own ports, its rules are left alone", {
        family,
        ports: others.length,
      });
    }
    this.#isTold = leads;
    return leads;
  }

  /** Those of the guards that none of our rules stands for, and that keep direct packets from ports that are not free. */
  async guards(rules: readonly DispatchRule[], guards: readonly Guard[]): Promise<readonly DispatchRule[]> {
    const placeOf = ({ protocol, port }: LedTo): string => `${protocol} ${port}`;
    const own = new Set(guardsIn(rules).map(placeOf));
    const others = guards.filter((guard) => !own.has(placeOf(guard)));
    const taken = await Promise.all(others.map((guard) => isTaken(this.#family, guard)));
    return others.filter((_, at) => taken[at] !== false).map(({ table, chain, rule }) => ({
      table,
      chain,
      rule,
    }));
  }
}
