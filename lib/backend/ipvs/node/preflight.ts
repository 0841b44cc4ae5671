/**
 * Gets a node ready for IPVS mode: modules, tools, sysctls, the device; and makes the proxiers. Which sets and matches the kernel has is
 * found out by trying.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../../config/types.ts";
import { ExecError, UnsupportedError } from "../../../errors.ts";
import { Mutex, systemClock } from "../../../kernel/clock.ts";
import type { Exec } from "../../../kernel/exec.ts";
import { deleteDevice, ensureDummy } from "../../../kernel/ip_address.ts";
import { destroySets, listSets, probeIpset, restoreSets } from "../../../kernel/ipset.ts";
import { iptablesOfNode } from "../../../kernel/iptables_variant.ts";
import { interfaceAddresses, kernelRelease } from "../../../kernel/machine.ts";
import { ipvsAbsence, Ipvsadm } from "../../../kernel/ipvsadm.ts";
import { nodeIps } from "../../../model/node.ts";
import type { Logger } from "../../../observe/log.ts";
import {
  CONN_REUSE_MODE,
  EXPIRE_NODEST_CONN,
  EXPIRE_QUIESCENT_TEMPLATE,
  IP_FORWARD,
  VS_CONNTRACK,
} from "../../node/mode_sysctls.ts";
import type { ModeContext, PreparedMode } from "../../node/mode.ts";
import { isolateRefused } from "../../quarantine.ts";
import { logFamilies, loggedSettings, reconfigureProxiers } from "../../node/node_settings.ts";
import { IpvsProxier, SchedulerProbe } from "../apply/proxier.ts";
import { GracefulTermination } from "../apply/graceful_termination.ts";
import { DEVICE } from "../plan/ruleset.ts";
import { configuredIpvs } from "../plan/plan.ts";
import { firstLine } from "../../../text/lines.ts";
import type { Iptables } from "../../../kernel/iptables.ts";
import { createSetLine, DEFAULT_MAX_ELEMENTS, SET_TYPES, type SetType } from "../../../netfilter/ipset.ts";
import { chainLine, tableBlock } from "../../../netfilter/iptables_jumps.ts";
import { PROBE_CHAIN, probeSetName } from "../plan/sets.ts";
import type { NodeSysctls } from "../../../kernel/sysctl.ts";

/**
 * Probes the node and prepares it. Where that fails, nothing of ours is left.
 *
 * @throws {UnsupportedError} naming the module, program, right or setting that is missing
 */
export async function prepareIpvs(context: ModeContext): Promise<PreparedMode> {
  const { exec, config, log } = context;
  const ipvs = new Ipvsadm(exec);
  const schedulers = await requireIpvs(ipvs, config);
  const isNew = await ensureDevice(exec);
  if (isNew) log.info("Made the device for addresses of Services", { device: DEVICE });
  try {
    return await prepareRules(context, ipvs, schedulers);
  } catch (error) {
    // Why the mode does not work here matters more than a device that stays.
    if (isNew) {
      await deleteDevice(exec, DEVICE).catch((failure) =>
        log.error("Cannot remove what was made for IPVS", failure)
      );
    }
    throw error;
  }
}

async function prepareRules(
  context: ModeContext,
  ipvs: Ipvsadm,
  schedulers: SchedulerProbe,
): Promise<PreparedMode> {
  const { exec, config, log, sysctls, clock = systemClock } = context;
  const { primaryFamily } = nodeIps(null, config.bindAddress);
  const { families, refused } = await iptablesOfNode(exec, { primaryFamily, sysctls, log });
  await requireSetsAndMatches(exec, [...families.values()]).catch(async (error) => {
    // A missing ipset explains more.
    await probeIpset(exec);
    throw error;
  });
  await setIpvsSysctls(config, { sysctls, release: kernelRelease(), log });
  await setTimeouts(ipvs, config, log);
  logFamilies(families.keys(), log);
  const mutex = new Mutex();
  const deadlineMs = config.kproxy.ipvsTerminationDeadline;
  const terminations = new GracefulTermination({ ipvs, clock, log, deadlineMs, mutex });
  const settingsOf = loggedSettings(context, (family, node) => configuredIpvs(config, family, node));
  const proxiers = [...families].map(([family, iptables]) =>
    new IpvsProxier({
      exec,
      ipvs,
      terminations,
      mutex,
      iptables,
      schedulers,
      settings: settingsOf(family, null),
      deviceAddresses: interfaceAddresses,
      log,
      nowMs: () => clock.nowMs(),
    })
  );
  return {
    proxiers,
    refused,
    reconfigure: (object) => reconfigureProxiers(proxiers, settingsOf, object),
    close: () => terminations.close(),
  };
}

async function requireIpvs(ipvs: Ipvsadm, config: KubeProxyConfiguration): Promise<SchedulerProbe> {
  const schedulers = new SchedulerProbe(ipvs, config.ipvs.scheduler === "" ? "rr" : config.ipvs.scheduler);
  try {
    await schedulers.require();
    return schedulers;
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    throw ipvsAbsence(error) ?? error;
  }
}

/** @returns true if the device was missing */
async function ensureDevice(exec: Exec): Promise<boolean> {
  try {
    return await ensureDummy(exec, DEVICE);
  } catch (error) {
    if (!(error instanceof ExecError && error.isMissing())) throw error;
    throw new UnsupportedError("IPVS", "the program ip (package iproute2)", "none on the PATH", {
      cause: error,
    });
  }
}

/** Sets idle timeouts of IPVS; a refusal is no reason to be without Services. */
async function setTimeouts(
  ipvs: Ipvsadm,
  { ipvs: config }: KubeProxyConfiguration,
  log: Logger,
): Promise<void> {
  const [tcpSeconds, tcpFinSeconds, udpSeconds] = [config.tcpTimeout, config.tcpFinTimeout, config.udpTimeout]
    .map((ms) => Math.floor(ms / 1000)) as [number, number, number];
  if (tcpSeconds + tcpFinSeconds + udpSeconds === 0) return;
  try {
    await ipvs.setTimeouts({ tcpSeconds, tcpFinSeconds, udpSeconds });
    log.info("Set timeouts of IPVS, 0 leaves one", { tcpSeconds, tcpFinSeconds, udpSeconds });
  } catch (error) {
    log.error("Cannot set timeouts of IPVS", error, { tcpSeconds, tcpFinSeconds, udpSeconds });
  }
}

/** Type of set → module of the kernel. */
const SET_MODULES: Readonly<Record<SetType, string>> = {
  "hash:ip": "ip_set_hash_ip",
  "hash:ip,port": "ip_set_hash_ipport",
  "hash:ip,port,ip": "ip_set_hash_ipportip",
  "hash:ip,port,net": "ip_set_hash_ipportnet",
  "bitmap:port": "ip_set_bitmap_port",
};

/** Module of the kernel → a use of it. */
function matches(set: string): ReadonlyMap<string, string> {
  return new Map([
    ["xt_set", `-m set --match-set ${set} dst,dst`],
    ["xt_ipvs", "-m ipvs --vproto 6 --vport 1"],
    ["xt_physdev", "-m physdev ! --physdev-is-in"],
    ["xt_addrtype", "-m addrtype --dst-type LOCAL"],
    ["xt_conntrack", "-m conntrack --ctstate NEW"],
    ["xt_mark", "-m mark --mark 0x1/0x1"],
    ["xt_comment", "-m comment --comment probe"],
  ]);
}

/** Uses of features that the kernel may lack, each with the module that has it. */
type Uses = readonly (readonly [module: string, line: string])[];

/**
 * Makes sure that the kernel has the sets and matches of some families; nothing is left behind.
 *
 * @throws {UnsupportedError} naming the modules that are missing
 * @throws {ExecError} if a tool fails without an answer
 */
export async function requireSetsAndMatches(exec: Exec, families: readonly Iptables[]): Promise<void> {
  const sets = families.flatMap(({ family }) =>
    SET_TYPES.map((type) => {
      return { name: probeSetName(type, family), type, family, maxElements: DEFAULT_MAX_ELEMENTS };
    })
  );
  try {
    await requireAll(
      "Sets",
      sets.map((set) => [SET_MODULES[set.type], createSetLine(set)]),
      (lines) => restoreSets(exec, lines.map((line) => `${line}\n`).join("")),
    );
    for (const iptables of families) await requireMatches(iptables);
  } finally {
    await removeSets(exec, sets.map(({ name }) => name));
  }
}

async function removeSets(exec: Exec, names: readonly string[]): Promise<void> {
  try {
    await destroySets(exec, names);
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    // Not all of them were made.
    const left = (await listSets(exec)).filter((name) => names.includes(name));
    if (left.length > 0) await destroySets(exec, left);
  }
}

async function requireMatches(iptables: Iptables): Promise<void> {
  const { family } = iptables;
  const uses = [...matches(probeSetName("hash:ip,port", family))].map(([module, match]) =>
    [module, `-A ${PROBE_CHAIN} ${match}`] as const
  );
  const removal = (["filter", "nat"] as const).map((table) =>
    tableBlock(table, [chainLine(PROBE_CHAIN), `-X ${PROBE_CHAIN}`])
  );
  await requireAll(
    `Rules of ${family}`,
    uses,
    (rules) => iptables.restore(tableBlock("filter", [chainLine(PROBE_CHAIN), ...rules]) + removal.join("")),
  );
}

/** Tries all uses at once, and where that fails as many as possible, which shows missing modules. */
async function requireAll(
  feature: string,
  uses: Uses,
  use: (lines: readonly string[]) => Promise<unknown>,
): Promise<void> {
  const causes: ExecError[] = [];
  const refused = await isolateRefused(uses, async (some) => {
    try {
      await use(some.map(([, line]) => line));
      return null;
    } catch (error) {
      if (!(error instanceof ExecError) || error.isInconclusive()) throw error;
      causes.push(error);
      return { problem: firstLine(error.stderr), named: [] };
    }
  });
  const [cause] = causes;
  if (cause === undefined) return;
  const [first] = refused;
  // If the rules fail only together, no module is missing.
  if (first === undefined) throw cause;
  const modules = new Set(refused.map(({ item: [module] }) => module));
  const needs = `the kernel ${modules.size === 1 ? "module" : "modules"} ${[...modules].join(", ")}`;
  throw new UnsupportedError(feature, needs, first.problem, { cause });
}

/** A setting and why it is needed. */
export interface NeededSysctl {
  readonly name: string;
  readonly value: string;
  readonly why: string;
}

/** The settings without which the mode does not start, with this configuration. */
export function neededIpvsSysctls({ ipvs: { strictARP } }: KubeProxyConfiguration): readonly NeededSysctl[] {
  const always: readonly (readonly [name: string, why: string])[] = [
    [VS_CONNTRACK, "connections through IPVS could not be masqueraded"],
    [EXPIRE_NODEST_CONN, "clients of a deleted endpoint would wait for it"],
    [EXPIRE_QUIESCENT_TEMPLATE, "clients with session affinity would stay with an endpoint that leaves"],
    [IP_FORWARD, "packets to pods would not be forwarded"],
  ];
  const arp = { arp_ignore: "1", arp_announce: "2" };
  return [
    ...always.map(([name, why]) => ({ name, value: "1", why })),
    ...Object.entries(strictARP ? arp : {}).map(([name, value]) => {
      return { name: `net.ipv4.conf.all.${name}`, value, why: "strictARP" };
    }),
  ];
}

/** Dependencies of setting sysctls. */
interface SysctlTools {
  readonly sysctls: NodeSysctls;
  /** Output of `uname -r`; null if unknown. */
  readonly release: string | null;
  readonly log: Logger;
}

/**
 * Writes the settings where they differ.
 *
 * @throws {UnsupportedError} if one is not as needed and cannot be written
 */
async function setIpvsSysctls(config: KubeProxyConfiguration, tools: SysctlTools): Promise<void> {
  const { sysctls, log } = tools;
  const always = neededIpvsSysctls(config);
  const values = await sysctls.read([...always.map(({ name }) => name), CONN_REUSE_MODE]);
  const needed = [...always, ...neededConnReuse(values.get(CONN_REUSE_MODE) ?? null, tools)];
  const outcomes = await sysctls.change(
    needed.map(({ name, value }) => ({ name, value, found: values.get(name) ?? null })),
  );
  for (const [index, { name, value, why }] of needed.entries()) {
    const outcome = outcomes?.[index] ?? null;
    if (outcome === null) {
      log.warn("A kernel setting cannot be read", {
        name,
        wanted: value,
        otherwise: why,
        advice: "install procps",
      });
    } else if (outcome.kind === "changed") {
      log.info("Set sysctl", { name, value, before: outcome.found });
    } else if (outcome.kind !== "unchanged") {
      const found = outcome.kind === "missing" ? "no such setting in this kernel" : outcome.found;
      throw new UnsupportedError("IPVS", `${name} = ${value}`, found, {
        message: `IPVS needs ${name} = ${value} (otherwise ${why}), found ${found}: ` +
          "set it, or run once with --init-only and enough rights",
      });
    }
  }
}

/** How `conn_reuse_mode` must be set for a kernel. */
type ConnReuse =
  /** The kernel delays a new connection from a port used before by a second unless the setting is off. */
  | "off"
  /** The kernel does the right thing by itself. */
  | "leave"
  /** The kernel always sends such a connection to the former endpoint, which may be gone. */
  | "too old";

/**
 * Linux 5.9 dropped the delay; 4.1 brought the setting.
 *
 * @param release what `uname -r` prints
 * @returns null if that is no version
 */
export function connReuse(release: string): ConnReuse | null {
  const [, major, minor] = (/^(\d+)\.(\d+)/.exec(release.trim()) ?? []).map(Number);
  if (major === undefined || minor === undefined) return null;
  if (major > 5 || (major === 5 && minor >= 9)) return "leave";
  return major === 5 || (major === 4 && minor >= 1) ? "off" : "too old";
}

/** Change of `conn_reuse_mode`, if needed: another value than the kernel's own is an administrator's, and stays. */
function neededConnReuse(found: string | null, { log, release }: SysctlTools): readonly NeededSysctl[] {
  const name = CONN_REUSE_MODE;
  const choice = release === null ? null : connReuse(release);
  if (choice === null || choice === "leave" || (found !== "1" && found !== "0" && found !== null)) {
    log.info("Left sysctl as it is", { name, value: found, kernel: release });
  } else if (choice === "too old" || found === null) {
    log.warn("Connections from a port used before may go to an endpoint that is gone", {
      kernel: release,
      advice: "use Linux 5.9 or newer",
    });
  } else {
    return [{ name, value: "0", why: "new connections from a port used before wait a second" }];
  }
  return [];
}
