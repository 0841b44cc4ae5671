/**
 * Rules about the sections of the modes. A section whose mode is not used is not looked at, as in kube-proxy, but for the
 * bit of `iptables`.
 *
 * @module
 */
import { parseCidr } from "../model/ip.ts";
import { formatDuration } from "./duration.ts";
import type { KubeProxyConfiguration } from "./types.ts";
import { type Finding, invalidValue } from "./finding.ts";

/** What is wrong with the sections `iptables`, `ipvs` and `nftables`. */
export function checkModes(config: KubeProxyConfiguration): Finding[] {
  const { mode, kproxy: { proxyModeFallback } } = config;
  const findings = checkMasqueradeBit("iptables", config.iptables.masqueradeBit);
  if (mode === "ipvs") findings.push(...checkIpvs(config));
  if (mode === "nftables" || mode === "auto") {
    findings.push(...checkMasqueradeBit("nftables", config.nftables.masqueradeBit));
    findings.push(...checkPeriods("nftables", config.nftables));
  }
  if (mode === "ipvs") findings.push(...checkPeriods("ipvs", config.ipvs));
  if ((mode !== "ipvs" && mode !== "nftables") || proxyModeFallback) {
    findings.push(...checkPeriods("iptables", config.iptables));
  }
  return findings;
}

function checkMasqueradeBit(section: string, bit: number): Finding[] {
  if (bit >= 0 && bit <= 31) return [];
  return [invalidValue(`${section}.masqueradeBit`, bit, "must be within the range [0, 31]")];
}

function checkIpvs({ ipvs }: KubeProxyConfiguration): Finding[] {
  const timeouts = (["tcpTimeout", "tcpFinTimeout", "udpTimeout"] as const).filter((name) => ipvs[name] < 0)
    .map((name) =>
      invalidValue(`ipvs.${name}`, formatDuration(ipvs[name]), "must be greater than or equal to 0")
    );
  const excluded = (ipvs.excludeCIDRs ?? []).flatMap((entry, index) =>
    parseCidr(entry) === null
      ? [invalidValue(`ipvs.excludeCIDRs[${index}]`, entry, "must be a valid CIDR", ["ipvs.excludeCIDRs"])]
      : []
  );
  return [...timeouts, ...excluded];
}

function checkPeriods(section: string, periods: { syncPeriod: number; minSyncPeriod: number }): Finding[] {
  const findings: Finding[] = [];
  const [syncPath, minPath] = [`${section}.syncPeriod`, `${section}.minSyncPeriod`];
  const [sync, min] = [formatDuration(periods.syncPeriod), formatDuration(periods.minSyncPeriod)];
  if (periods.syncPeriod <= 0) findings.push(invalidValue(syncPath, sync, "must be greater than 0"));
  if (periods.minSyncPeriod < 0) {
    findings.push(invalidValue(minPath, min, "must be greater than or equal to 0"));
  }
  if (periods.syncPeriod < periods.minSyncPeriod) {
    const detail = `must be greater than or equal to ${minPath}, which is ${JSON.stringify(min)}`;
    findings.push(invalidValue(syncPath, sync, detail, [minPath]));
  }
  return findings;
}
