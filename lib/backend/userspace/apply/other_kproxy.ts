/**
 * Another kproxy, or a previous process of this one, whose ports are still open: one that is started before this one ends leads Services
 * to ports of its own, and its rules are left alone for as long as it listens there.
 *
 * @module
 */
import { isPortTaken } from "../../../kernel/machine.ts";
import type { IpFamily } from "../../../model/objects.ts";
import type { IptablesRuleset } from "../../../netfilter/iptables_save.ts";
import type { Logger } from "../../../observe/log.ts";
import type { DispatchRule } from "../../iptables/plan/ruleset.ts";
import { type Guards, guardsIn, type LedTo, otherPorts } from "../plan/port_rules.ts";

/** True if a process listens on the port; null: that cannot be found out. */
export function isTaken(family: IpFamily, led: LedTo): Promise<boolean | null> {
  const [protocol, port] = led.split(" ");
  return isPortTaken(family, protocol === "TCP" ? "tcp" : "udp", Number(port));
}

/** Detects another kproxy of one family. */
export class OtherKproxy {
  readonly #family: IpFamily;
  readonly #logger: Logger;
  #isReported = false;

  constructor(family: IpFamily, logger: Logger) {
    this.#family = family;
    this.#logger = logger;
  }

  /**
   * True if a process listens on every port that rules lead to in the place of ours. Some closed ports may be those of a Service that ends
   * there just now: then the rules of a moment later decide.
   *
   * @param read reads the rules anew
   */
  async leads(
    rules: readonly DispatchRule[],
    saved: IptablesRuleset,
    read: () => Promise<IptablesRuleset>,
  ): Promise<boolean> {
    const listens = (tables: IptablesRuleset): Promise<readonly (boolean | null)[]> =>
      Promise.all(Array.from(otherPorts(rules, tables), (led) => isTaken(this.#family, led)));
    const isAll = (ports: readonly (boolean | null)[]): boolean => ports.every((one) => one === true);
    let ports = await listens(saved);
    if (ports.includes(true) && !isAll(ports)) ports = await listens(await read());
    const leads = ports.length > 0 && isAll(ports);
    if (leads && !this.#isReported) {
      this.#logger.info("Another kproxy leads Services to its own ports, its rules are left alone", {
        family: this.#family,
        ports: ports.length,
      });
    }
    this.#isReported = leads;
    return leads;
  }

  /** Guards of others, which are not among our rules: those of ports that are not known to be free. */
  async guards(rules: readonly DispatchRule[], guards: Guards): Promise<readonly DispatchRule[]> {
    const own = new Map(guardsIn(rules));
    const others = guards.filter(([led]) => !own.has(led));
    const taken = await Promise.all(others.map(([led]) => isTaken(this.#family, led)));
    return others.filter((_, at) => taken[at] !== false).map(([, rule]) => rule);
  }
}
