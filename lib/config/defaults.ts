/**
 * Fills in the defaults of a configuration, and selects the settings of its mode.
 *
 * @module
 */
import { joinHostPort, parseIp } from "../model/ip.ts";
import { buildConfig, type Field } from "./fields.ts";
import type { FieldValue } from "./setting.ts";
import {
  HEALTHZ_PORT,
  type KubeProxyConfiguration,
  METRICS_PORT,
  type ProxyMode,
  type SyncPeriods,
} from "./types.ts";

/** The configuration of a proxy without a file and without flags. */
export function defaultConfig(): KubeProxyConfiguration {
  return applyDefaults(new Map());
}

/**
 * The complete configuration that the given values (by path) stand for.
 *
 * What counts as not given differs by field: where the API has a pointer, only an absent or null one; elsewhere zero
 * and blank too.
 */
export function applyDefaults(values: ReadonlyMap<string, FieldValue>): KubeProxyConfiguration {
  const config = buildConfig((field) => {
    const value = values.get(field.path);
    return value === undefined || isUnset(field, value) ? field.default : value;
  });
  const family = isIpv4(config.bindAddress) ? "IPv4" : "IPv6";
  config.healthzBindAddress = serverAddress(values.get("healthzBindAddress"), ANY[family], HEALTHZ_PORT);
  config.metricsBindAddress = serverAddress(values.get("metricsBindAddress"), LOOPBACK[family], METRICS_PORT);
  return applyModeDefaults(config);
}

/** Applies the defaults of the mode: nftables serves NodePorts on the node's primary IPs only, unless set. */
export function applyModeDefaults(config: KubeProxyConfiguration): KubeProxyConfiguration {
  const noAddresses = config.nodePortAddresses === null || config.nodePortAddresses.length === 0;
  return config.mode === "nftables" && noAddresses ? { ...config, nodePortAddresses: ["primary"] } : config;
}

/** The configuration of a node that runs `mode`, which may not be the one that was configured. */
export function configForMode(config: KubeProxyConfiguration, mode: ProxyMode): KubeProxyConfiguration {
  return config.mode === mode ? config : applyModeDefaults({ ...config, mode });
}

/** The address with a port added if it is a bare IP; anything else as it is. */
export function withPort(address: string, port: number): string {
  return parseIp(address) === null ? address : joinHostPort(address, port);
}

/** Sync periods of the mode that is really used (`mode` may have been chosen from `auto`). */
export function selectedPeriods(config: KubeProxyConfiguration, mode: ProxyMode = config.mode): SyncPeriods {
  const { syncPeriod, minSyncPeriod } = mode === "ipvs"
    ? config.ipvs
    : mode === "nftables"
    ? config.nftables
    : config.iptables;
  return { syncPeriod, minSyncPeriod };
}

/** Whether all traffic to cluster IPs is masqueraded in the mode that is really used. */
export function selectedMasqueradeAll(
  config: KubeProxyConfiguration,
  mode: ProxyMode = config.mode,
): boolean {
  return mode === "nftables" ? config.nftables.masqueradeAll : config.iptables.masqueradeAll;
}

/** The bit of the packet mark (0 to 31) that asks for masquerading in the mode that is really used. */
export function selectedMasqueradeBit(config: KubeProxyConfiguration, mode: ProxyMode = config.mode): number {
  return mode === "nftables" ? config.nftables.masqueradeBit : config.iptables.masqueradeBit;
}

function isUnset({ zeroIsUnset }: Field, value: FieldValue): boolean {
  return value === null || (zeroIsUnset === true && (value === 0 || value === ""));
}

const ANY = { IPv4: "0.0.0.0", IPv6: "::" } as const;
const LOOPBACK = { IPv4: "127.0.0.1", IPv6: "::1" } as const;

function serverAddress(given: FieldValue | undefined, host: string, port: number): string {
  return typeof given === "string" && given !== "" ? withPort(given, port) : joinHostPort(host, port);
}

/** Whatever is not an IPv4 address counts as IPv6 here, as in kube-proxy. */
function isIpv4(bindAddress: string): boolean {
  return parseIp(bindAddress)?.family === "IPv4";
}
