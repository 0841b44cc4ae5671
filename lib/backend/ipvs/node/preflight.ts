/**
 * Gets a node ready for IPVS mode: modules, tools, sysctls, the device; and makes the proxiers.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../../config/types.ts";
import { ExecError, UnsupportedError } from "../../../errors.ts";
import { Mutex, systemClock } from "../../../kernel/clock.ts";
import type { Exec } from "../../../kernel/exec.ts";
import { deleteDevice, ensureDummy } from "../../../kernel/ip_address.ts";
import { probeIpset } from "../../../kernel/ipset.ts";
import { iptablesOfNode } from "../../../kernel/iptables_variant.ts";
import { interfaceAddresses, kernelRelease } from "../../../kernel/machine.ts";
import { ipvsAbsence, Ipvsadm } from "../../../kernel/ipvsadm.ts";
import { nodeIps } from "../../../model/node.ts";
import type { Logger } from "../../../observe/log.ts";
import type { ModeContext, PreparedMode } from "../../node/mode.ts";
import { logFamilies, loggedSettings, reconfigureProxiers } from "../../node/node_settings.ts";
import { IpvsProxier } from "../apply/proxier.ts";
import { GracefulTermination } from "../apply/graceful_termination.ts";
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
    // That there is no ipset at all says more.
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
