/**
 * Gets a node ready for iptables mode: which variant, which families, which sysctls; and makes the proxiers.
 *
 * @module
 */
import { IptablesProxier } from "../apply/proxier.ts";
import { usesLocalhostNodePorts } from "../plan/base_rules.ts";
import { ExecError } from "../../../errors.ts";
import { interfaceIps } from "../../../kernel/machine.ts";
import type { Iptables } from "../../../kernel/iptables.ts";
import { iptablesOfNode } from "../../../kernel/iptables_variant.ts";
import { NfacctCounters } from "../../../kernel/nfacct.ts";
import type { SysctlOutcome } from "../../../kernel/sysctl.ts";
import { nodeIps } from "../../../model/node.ts";
import type { Logger } from "../../../observe/log.ts";
import type { PacketCounts } from "../../../observe/metrics.ts";
import { BE_LIBERAL, ROUTE_LOCALNET } from "../../node/mode_sysctls.ts";
import type { ModeContext, PreparedMode } from "../../node/mode.ts";
import { logFamilies, loggedSettings, reconfigureProxiers } from "../../node/node_settings.ts";
import { FORWARD_CHAIN } from "../plan/chains.ts";
import { COUNTERS } from "../plan/ruleset.ts";
import { configuredIptables } from "../plan/plan.ts";

/**
 * Probes the node and prepares it.
 *
 * @throws {UnsupportedError} if iptables does not work for the primary family
 * @throws {ExecError} if a sysctl is refused for another reason than a read-only `/proc/sys`
 */
export async function prepareIptables(context: ModeContext): Promise<PreparedMode> {
  const { exec, config, log, sysctls } = context;
  const { primaryFamily } = nodeIps(null, config.bindAddress);
  const { families, refused } = await iptablesOfNode(exec, { primaryFamily, sysctls, log });
  logFamilies(families.keys(), log);

  // Read, not taken from the configuration: where it cannot be written, conntrack goes on calling packets INVALID.
  // Read late: probing iptables has loaded the module that has it.
  const settings = await sysctls.read([BE_LIBERAL, ROUTE_LOCALNET]);
  const beLiberal = settings.get(BE_LIBERAL) ?? null;
  const dropInvalid = beLiberal === null || beLiberal === "0";
  const settingsOf = loggedSettings(context, (family, node) => {
    const { options, problem } = configuredIptables(config, family, node);
    return { options: { ...options, dropInvalid }, problem };
  });
  if (families.has("IPv4") && usesLocalhostNodePorts(settingsOf("IPv4", null))) {
    const found = settings.get(ROUTE_LOCALNET) ?? null;
    const [outcome] = await sysctls.change([{ name: ROUTE_LOCALNET, found, value: "1" }]) ?? [];
    warnOfLocalhostNodePorts(outcome, log);
  }
  const counters = new NfacctCounters(exec, Object.values(COUNTERS));
  const proxiers = [...families].map(([family, iptables]) =>
    new IptablesProxier({ iptables, counters, settings: settingsOf(family, null), interfaceIps, logger: log })
  );
  return {
    proxiers,
    refused,
    reconfigure: (node) => reconfigureProxiers(proxiers, settingsOf, node),
    packetCounts: packetCounter(proxiers, [...families.values()], counters, log),
  };
}

/** `-A KUBE-FORWARD -m conntrack --ctstate INVALID -c PACKETS BYTES -j DROP`, as listings with counters have it. */
const INVALID_DROP_REGEXP = /^-A .*--ctstate INVALID .*-c (\d+) \d+ .*-j DROP$/m;

/** Packets that the rule against invalid ones has dropped since it was written; null if there is no such rule. */
export function invalidDropped(listing: string): number | null {
  const packets = INVALID_DROP_REGEXP.exec(listing)?.[1];
  return packets === undefined ? null : Number(packets);
}

/** A packet count that continues when the rule's own counter restarts at 0, because the rule was written again. */
export class LastingCount {
  #seen = 0;
  #before = 0;

  /** @param now the rule's own count */
  take(now: number): number {
    if (now < this.#seen) this.#before += this.#seen;
    this.#seen = now;
    return this.#before + now;
  }
}

/** Reads the nfacct counters that rules add to; without those, the own counter of the rule that drops INVALID. */
function packetCounter(
  proxiers: readonly IptablesProxier[],
  families: readonly Iptables[],
  counters: NfacctCounters,
  log: Logger,
): () => Promise<Partial<PacketCounts>> {
  const counts = new Map(families.map((iptables) => [iptables, new LastingCount()]));
  const readCounters = async (): Promise<Partial<PacketCounts>> => {
    const packets = await counters.read();
    return Object.fromEntries(
      Object.entries(COUNTERS).flatMap(([count, name]) => {
        const value = packets.get(name);
        return value === undefined ? [] : [[count, value]];
      }),
    );
  };
  const read = async (iptables: Iptables, count: LastingCount): Promise<number> => {
    const now = invalidDropped(await iptables.list("filter", FORWARD_CHAIN));
    return now === null ? Number.NaN : count.take(now);
  };
  return async () => {
    try {
      if (proxiers.some(({ addsToCounters }) => addsToCounters)) return await readCounters();
      const all = await Promise.all([...counts].map(([iptables, count]) => read(iptables, count)));
      const invalidCount = all.reduce((sum, one) => sum + one, 0);
      return Number.isNaN(invalidCount) ? {} : { invalidDropped: invalidCount };
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      // Before the first sync there is no such chain.
      log.info("Cannot read what rules have counted", { problem: error.message }, 2);
      return {};
    }
  };
}

/** Node ports on 127.0.0.1 need the kernel to route packets that leave loopback. */
function warnOfLocalhostNodePorts(outcome: SysctlOutcome | undefined, log: Logger): void {
  if (outcome === undefined) {
    log.warn("Node ports may not answer on 127.0.0.1: a sysctl cannot be read", {
      name: ROUTE_LOCALNET,
      wanted: "1",
      advice: "install procps, or set iptables.localhostNodePorts to false",
    });
  } else if (outcome.kind === "changed") {
    log.info("Set sysctl", { name: ROUTE_LOCALNET, value: "1", before: outcome.found });
  } else if (outcome.kind === "readOnly") {
    log.warn("Node ports will not answer on 127.0.0.1: a sysctl cannot be written", {
      name: ROUTE_LOCALNET,
      problem: outcome.error.stderr,
      advice: "run once with --init-only and enough rights, or set iptables.localhostNodePorts to false",
    });
  }
}
