/**
 * Gets a node ready for iptables mode: which variant, which families, which sysctls; and makes the proxiers.
 *
 * @module
 */
import { IptablesProxier, type IptablesSettings } from "./apply.ts";
import type { ApplyReport, FamilyProxier, SyncRequest } from "../backend.ts";
import { usesLocalhostNodePorts } from "./base_rules.ts";
import { ExecError, UnsupportedError } from "../../errors.ts";
import type { Exec } from "../../kernel/exec.ts";
import { Iptables } from "../../kernel/iptables.ts";
import {
  chooseIptablesVariant,
  isPermissionProblem,
  NEEDS_RIGHTS,
  probeIptables,
} from "../../kernel/iptables_variant.ts";
import { changeSysctl, readSysctl, readSysctls, type SysctlOutcome } from "../../kernel/sysctl.ts";
import { nodeIps } from "../../model/node.ts";
import type { IpFamily, NodeObject } from "../../model/objects.ts";
import type { Logger } from "../../observe/log.ts";
import type { PacketCounts } from "../../observe/metrics.ts";
import type { ModeContext, PreparedMode } from "../mode.ts";
import { FORWARD_CHAIN } from "./chains.ts";
import { invalidDropped, LastingCount } from "./packet_counts.ts";
import { configuredIptables } from "./settings.ts";

const FAMILIES: readonly IpFamily[] = ["IPv4", "IPv6"];
const BE_LIBERAL = "net.netfilter.nf_conntrack_tcp_be_liberal";
const DISABLE_IPV6 = "net.ipv6.conf.all.disable_ipv6";
const ROUTE_LOCALNET = "net.ipv4.conf.all.route_localnet";

/**
 * Probes the node and prepares it.
 *
 * @throws {UnsupportedError} if iptables does not work for the primary family
 * @throws {ExecError} if a sysctl is refused for another reason than a read-only `/proc/sys`
 */
export async function prepareIptables({ exec, config, log }: ModeContext): Promise<PreparedMode> {
  const choice = await chooseIptablesVariant(exec);
  const { variant } = choice;
  log.info("Using iptables", { variant, reason: choice.reason });
  const sysctls = await nodeSysctls(exec, log);
  const { families, refused } = await usableFamilies(exec, variant, sysctls, log);
  const { primaryFamily } = nodeIps(null, config.bindAddress);
  const reason = refused.get(primaryFamily);
  if (reason !== undefined) throw primaryFamilyError(primaryFamily, reason);
  log.info(families.size === 2 ? "Running in dual-stack mode" : "Running in single-stack mode", {
    families: [...families.keys()],
  });

  // Read, not taken from the configuration: where it cannot be written, conntrack goes on calling packets INVALID.
  // Read late: probing iptables has loaded the module that has it.
  const settings = await sysctls.read([BE_LIBERAL, ROUTE_LOCALNET]);
  const beLiberal = settings.get(BE_LIBERAL) ?? null;
  const dropInvalid = beLiberal === null || beLiberal === "0";
  const told = new Set<string>();
  const settingsOf = (family: IpFamily, node: NodeObject | null): IptablesSettings => {
    const { options, problem } = configuredIptables(config, family, node);
    // Before the Node is there, nobody knows its pod CIDRs.
    const tooEarly = node === null && config.detectLocalMode === "NodeCIDR";
    if (problem !== null && !tooEarly && !told.has(family + problem.message)) {
      told.add(family + problem.message);
      log.info("Local traffic is not told apart", { family, problem: problem.message });
    }
    return { ...options, dropInvalid };
  };
  if (families.has("IPv4") && usesLocalhost(settingsOf("IPv4", null))) {
    tellLocalhostNodePorts(await sysctls.change(ROUTE_LOCALNET, settings.get(ROUTE_LOCALNET), "1"), log);
  }
  const proxiers = [...families].map(([family, iptables]) =>
    new ReconfigurableProxier(iptables, settingsOf(family, null), log)
  );
  return {
    proxiers,
    reconfigure: (node) =>
      proxiers.filter((proxier) => proxier.configure(settingsOf(proxier.family, node))).map(({ family }) =>
        family
      ),
    ...(dropInvalid ? { packetCounts: packetCounter([...families.values()], log) } : {}),
  };
}

/** Reads what the rule against invalid packets has dropped in all families. */
function packetCounter(families: readonly Iptables[], log: Logger): () => Promise<Partial<PacketCounts>> {
  const counts = new Map(families.map((iptables) => [iptables, new LastingCount()]));
  const read = async (iptables: Iptables, count: LastingCount): Promise<number> => {
    const now = invalidDropped(await iptables.list("filter", FORWARD_CHAIN));
    return now === null ? Number.NaN : count.take(now);
  };
  return async () => {
    try {
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

/** The kernel settings of this node, as far as they can be read. */
interface NodeSysctls {
  /** False if there is no program to ask. */
  readonly known: boolean;
  /** 1 if IPv6 is switched off; null if the kernel does not have it, or nobody can tell. */
  readonly ipv6Disabled: string | null;
  /** Null for settings that this kernel does not have; nothing if nobody can tell. */
  read(names: readonly string[]): Promise<ReadonlyMap<string, string | null>>;
  /** `found` is what was read. Null if nobody can tell. */
  change(name: string, found: string | null | undefined, value: string): Promise<SysctlOutcome | null>;
}

async function nodeSysctls(exec: Exec, log: Logger): Promise<NodeSysctls> {
  try {
    return {
      known: true,
      ipv6Disabled: await readSysctl(exec, DISABLE_IPV6),
      read: (names) => readSysctls(exec, names),
      change: (name, found = null, value) => changeSysctl(exec, name, { found, value }),
    };
  } catch (error) {
    if (!(error instanceof ExecError && error.isMissing())) throw error;
  }
  log.warn("Kernel settings cannot be read: install procps, there is no program sysctl on PATH", {
    assumed: "IPv6 is on if ip6tables works, and INVALID packets must be dropped",
  });
  return {
    known: false,
    ipv6Disabled: null,
    read: () => Promise.resolve(new Map()),
    change: () => Promise.resolve(null),
  };
}

interface UsableFamilies {
  readonly families: ReadonlyMap<IpFamily, Iptables>;
  /** Why the others cannot be served. */
  readonly refused: ReadonlyMap<IpFamily, string>;
}

async function usableFamilies(
  exec: Exec,
  variant: Iptables["variant"],
  sysctls: NodeSysctls,
  log: Logger,
): Promise<UsableFamilies> {
  const families = new Map<IpFamily, Iptables>();
  const refused = new Map<IpFamily, string>();
  for (const family of FAMILIES) {
    try {
      if (family === "IPv6") requireIpv6(sysctls);
      const iptables = new Iptables(exec, await probeIptables(exec, family, variant));
      const problem = await iptables.absence();
      if (problem !== null) throw new UnsupportedError(family, "a nat table that iptables can list", problem);
      families.set(family, iptables);
    } catch (error) {
      if (!(error instanceof UnsupportedError)) throw error;
      refused.set(family, error.message);
      log.info("IP family cannot be served", { family, reason: error.message });
    }
  }
  return { families, refused };
}

function primaryFamilyError(family: IpFamily, reason: string): UnsupportedError {
  const tool = family === "IPv4" ? "iptables" : "ip6tables";
  return new UnsupportedError(`Primary IP family ${family}`, `a working ${tool}`, reason, {
    message: isPermissionProblem(reason)
      ? NEEDS_RIGHTS
      : `the primary IP family ${family} cannot be served: ${reason}`,
  });
}

function requireIpv6({ known, ipv6Disabled }: NodeSysctls): void {
  if (!known || ipv6Disabled === "0") return;
  throw new UnsupportedError("IPv6", `${DISABLE_IPV6} = 0`, ipv6Disabled ?? "a kernel without IPv6");
}

function usesLocalhost(settings: IptablesSettings): boolean {
  return usesLocalhostNodePorts({ ...settings, family: "IPv4", nodePortIps: [], randomFully: true });
}

/** Node ports on 127.0.0.1 need the kernel to route packets that leave loopback. */
function tellLocalhostNodePorts(outcome: SysctlOutcome | null, log: Logger): void {
  if (outcome === null) {
    log.warn("Node ports may not answer on 127.0.0.1: nobody can tell a sysctl", {
      name: ROUTE_LOCALNET,
      wanted: "1",
      advice: "install procps, or set iptables.localhostNodePorts to false",
    });
  } else if (outcome.kind === "changed") {
    log.info("Set sysctl", { name: ROUTE_LOCALNET, value: "1", before: outcome.found });
  } else if (outcome.kind === "readOnly") {
    log.warn("Node ports will not answer on 127.0.0.1: a sysctl cannot be written", {
      name: ROUTE_LOCALNET,
      problem: outcome.message,
      advice: "run once with --init-only and enough rights, or set iptables.localhostNodePorts to false",
    });
  }
}

/** An iptables proxier whose settings follow the Node: a change starts afresh, with a full sync. */
export class ReconfigurableProxier implements FamilyProxier {
  readonly family: IpFamily;
  readonly #iptables: Iptables;
  readonly #log: Logger;
  #settings: IptablesSettings;
  #current: IptablesProxier;

  constructor(iptables: Iptables, settings: IptablesSettings, log: Logger) {
    this.family = iptables.family;
    this.#iptables = iptables;
    this.#settings = settings;
    this.#log = log;
    this.#current = this.#make();
  }

  /** Takes new settings over. @returns true if they differ, so that everything must be written again */
  configure(settings: IptablesSettings): boolean {
    if (JSON.stringify(settings) === JSON.stringify(this.#settings)) return false;
    this.#settings = settings;
    this.#current = this.#make();
    return true;
  }

  sync(request: SyncRequest): Promise<ApplyReport> {
    return this.#current.sync(request);
  }

  checkCanary(): Promise<boolean> {
    return this.#current.checkCanary();
  }

  #make(): IptablesProxier {
    return new IptablesProxier({
      iptables: this.#iptables,
      settings: this.#settings,
      interfaceIps: () => Deno.networkInterfaces().map(({ address }) => address),
      logger: this.#log,
    });
  }
}
