/**
 * A kproxy that is started before this one ends leads Services to ports of its own: as long as it listens there, its rules are left alone.
 *
 * @module
 */
import { isPortTaken } from "../../../kernel/port_probe.ts";
import type { IpFamily } from "../../../model/objects.ts";
import type { IptablesRuleset } from "../../../netfilter/iptables_save.ts";
import type { Logger } from "../../../observe/log.ts";
import { otherPorts } from "../diff/other_ports.ts";
import type { PortalRule } from "../plan/ruleset.ts";

/** Looks for it, of one family. */
export class Takeover {
  readonly #family: IpFamily;
  readonly #logger: Logger;
  #isTold = false;

  constructor(family: IpFamily, logger: Logger) {
    this.#family = family;
    this.#logger = logger;
  }

  /**
   * True if somebody listens on every port that rules lead to in the place of ours.
   *
   * @param rules those that this process has written
   */
  async isBy(rules: readonly PortalRule[], saved: IptablesRuleset): Promise<boolean> {
    const others = otherPorts(rules, saved);
    const taken = await Promise.all(
      others.map(({ protocol, port }) => isPortTaken(this.#family, protocol === "TCP" ? "tcp" : "udp", port)),
    );
    const isTaken = others.length > 0 && taken.every((one) => one === true);
    if (isTaken && !this.#isTold) {
      this.#logger.info("Another kproxy leads Services to its own ports, its rules are left alone", {
        family: this.#family,
        ports: others.length,
      });
    }
    this.#isTold = isTaken;
    return isTaken;
  }
}
