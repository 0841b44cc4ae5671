/**
 * Gets a node ready for IPVS mode: modules, tools, sysctls, the device; and makes the proxiers.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../../config/types.ts";
import { ExecError, UnsupportedError } from "../../../errors.ts";
import { systemClock } from "../../../kernel/clock.ts";
import type { Exec } from "../../../kernel/exec.ts";
import { deleteDevice, ensureDummy } from "../../../kernel/ip_address.ts";
import { destroySets, probeIpset } from "../../../kernel/ipset.ts";
import { type RefusedFamily, usableFamilies } from "../../../kernel/iptables_families.ts";
import type { Iptables } from "../../../kernel/iptables.ts";
import { chooseIptablesVariant, type VariantChoice } from "../../../kernel/iptables_variant.ts";
import { interfaceAddresses } from "../../../kernel/interfaces.ts";
import { ipvsAbsence, Ipvsadm } from "../../../kernel/ipvsadm.ts";
import { kernelRelease } from "../../../kernel/kernel_release.ts";
import { Runner } from "../../../kernel/runner.ts";
import { nodeIps } from "../../../model/node.ts";
import type { IpFamily } from "../../../model/objects.ts";
import type { SetDefinition } from "../../../netfilter/ipset.ts";
import type { Logger } from "../../../observe/log.ts";
import type { ModeContext, PreparedMode } from "../../node/mode.ts";
import { reconfigureProxiers, tellFamilies, tellingSettings } from "../../node/node_settings.ts";
import { IpvsProxier } from "../apply/proxier.ts";
import { IpvsNode } from "../apply/ipvs_node.ts";
import { SchedulerProbe } from "../apply/schedulers.ts";
import { requireSetsAndMatches } from "./preflight_probe.ts";
import { setIpvsSysctls } from "./preflight_sysctls.ts";
import { DEVICE } from "../plan/ruleset.ts";
import { configuredIpvs } from "../plan/settings.ts";

/**
 * Probes the node and prepares it. Where that fails, nothing of ours is left.
 *
 * @throws {UnsupportedError} naming the module, program, right or setting that is missing
 */
export async function prepareIpvs(context: ModeContext): Promise<PreparedMode> {
  const made: (() => Promise<void>)[] = [];
  try {
    return await prepare(context, made);
  } catch (error) {
    for (const undo of made.toReversed()) {
      // Why the mode does not work here matters more.
      await undo().catch((failure) => context.log.error("Cannot remove what was made for IPVS", failure));
    }
    throw error;
  }
}

/** @param made gets what undoes each thing that was made */
async function prepare(context: ModeContext, made: (() => Promise<void>)[]): Promise<PreparedMode> {
  const { exec, config, log, sysctls, clock = systemClock } = context;
  const ipvs = new Ipvsadm(exec);
  const schedulers = await requireIpvs(ipvs, config);
  // The device tells whether the mode begins on this node.
  const isNew = await ensureDevice(exec);
  if (isNew) made.push(() => deleteDevice(exec, DEVICE));
  const { variant, reason, sets, families, refused } = await requireRules(context, isNew);
  if (sets.length > 0) made.push(() => destroySets(exec, sets.map(({ name }) => name)));
  log.info("Using IPVS", { iptables: variant, reason });
  for (const { family, reason } of refused) log.info("IP family cannot be served", { family, reason });
  await setIpvsSysctls(config, { sysctls, release: kernelRelease(), log });
  await setTimeouts(ipvs, config, log);
  if (isNew) log.info("Made the device for addresses of Services", { device: DEVICE });
  tellFamilies(families.keys(), log);
  const node = new IpvsNode({
    ipvs,
    clock,
    log,
    terminationDeadlineMs: config.kproxy.ipvsTerminationDeadline,
    madeSets: sets,
  });
  const settingsOf = tellingSettings(context, (family, node) => configuredIpvs(config, family, node));
  const proxiers = [...families].map(([family, iptables]) =>
    new IpvsProxier({
      exec,
      node,
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
    close: () => node.close(),
  };
}

/** How rules are written here. */
interface NodeRules extends VariantChoice {
  readonly families: ReadonlyMap<IpFamily, Iptables>;
  readonly refused: readonly RefusedFamily[];
  /** Our own sets, if they were made here. */
  readonly sets: readonly SetDefinition[];
}

/**
 * Makes sure of ipset and iptables, and of what the rules need of them. Where all is well, as mostly, trying the rules says so;
 * where it is not, kproxy looks at one thing after the other to say what is missing, or to do without the other IP family.
 *
 * @throws {UnsupportedError} naming what is missing
 */
async function requireRules(
  { exec, config, sysctls }: ModeContext,
  isFresh: boolean,
): Promise<NodeRules> {
  const probing = new Runner(exec, { caches: true });
  const { primaryFamily } = nodeIps(null, config.bindAddress);
  const find = async (tries: boolean): Promise<NodeRules> => {
    const choice = await chooseIptablesVariant(probing, { triesDefault: tries, primaryFamily });
    const { variant, version } = choice;
    const refused: RefusedFamily[] = [];
    const onRefused = (family: RefusedFamily): void => void refused.push(family);
    const options = { variant, version, primaryFamily, sysctls, onRefused, probing, tries };
    const families = await usableFamilies(exec, options);
    const sets = await requireSetsAndMatches(exec, [...families.values()], {
      searches: tries,
      isFresh: isFresh && !tries,
    });
    return { ...choice, families, refused, sets };
  };
  try {
    return await find(false);
  } catch (error) {
    if (!(error instanceof UnsupportedError || error instanceof ExecError)) throw error;
  }
  await probeIpset(exec);
  return await find(true);
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

/** @returns true if it was not there */
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

/** Idle times of IPVS; what cannot be set is no reason to be without Services. */
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
