/**
 * Another kproxy, or a former run of this one, whose ports are still open: one that is started before this one ends leads Services to
 * ports of its own, and its rules are left alone for as long as it listens there.
 *
 * @module
 */
import type { Iptables } from "../../../kernel/iptables.ts";
import { isPortTaken } from "../../../kernel/port_probe.ts";
import type { IpFamily } from "../../../model/objects.ts";
import { tableBlock } from "../../../netfilter/iptables_jumps.ts";
import type { IptablesRuleset } from "../../../netfilter/iptables_save.ts";
import type { Logger } from "../../../observe/log.ts";
import { type GuardedPort, type LedTo, otherPorts, othersGuarded } from "../diff/held_rules.ts";
import { PORTALS_FIREWALL } from "../plan/chains.ts";
import type { PortalRule } from "../plan/ruleset.ts";

/** True if somebody listens on the port; null: nobody can tell. */
export function isTaken(family: IpFamily, { protocol, port }: LedTo): Promise<boolean | null> {
  return isPortTaken(family, protocol === "TCP" ? "tcp" : "udp", port);
}

/** Of one family; `rules` are ours. */
export class OtherKproxy {
  readonly #iptables: Iptables;
  readonly #logger: Logger;
  #isTold = false;

  constructor(iptables: Iptables, logger: Logger) {
    this.#iptables = iptables;
    this.#logger = logger;
  }

  /** True if somebody listens on every port that rules lead to in the place of ours. */
  async leads(rules: readonly PortalRule[], saved: IptablesRuleset): Promise<boolean> {
    const { family } = this.#iptables;
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

  /** The rules that keep direct packets from ports on which somebody else listens. */
  async guards(rules: readonly PortalRule[], saved: IptablesRuleset): Promise<readonly string[]> {
    // Of a port that cannot be asked for, the rule stays.
    return (await this.#asked(rules, saved)).filter(([, taken]) => taken !== false).map(([{ rule }]) => rule);
  }

  /** Takes the others of those rules away. */
  async removeStaleGuards(rules: readonly PortalRule[], saved: IptablesRuleset): Promise<void> {
    const free = (await this.#asked(rules, saved)).filter(([, taken]) => taken === false);
    if (free.length === 0) return;
    const lines = free.map(([{ rule }]) => `-D ${PORTALS_FIREWALL} ${rule}`);
    await this.#iptables.restore(tableBlock("filter", lines));
  }

  #asked(
    rules: readonly PortalRule[],
    saved: IptablesRuleset,
  ): Promise<readonly (readonly [GuardedPort, boolean | null])[]> {
    return Promise.all(
      othersGuarded(rules, saved).map(async (guarded) =>
        [guarded, await isTaken(this.#iptables.family, guarded)] as const
      ),
    );
  }
}
