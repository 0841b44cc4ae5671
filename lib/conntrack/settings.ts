/**
 * From `conntrack` of the configuration to the kernel settings it asks for.
 *
 * @module
 */
import type { ConntrackConfig } from "../config/types.ts";

/** One kernel setting, as `sysctl` names it. */
export interface ConntrackSetting {
  readonly name: string;
  readonly value: number;
  /** True: a higher value that is already there stays. */
  readonly atLeast: boolean;
}

/** What the number of CPUs can raise the size of the table to; from there on `min` is not looked at (kube-proxy 1.36). */
const MAX_SCALED_ENTRIES = 1_048_576;
/** Entries per hash bucket that kube-proxy allows for. */
const ENTRIES_PER_BUCKET = 4;
const PREFIX = "net.netfilter.nf_conntrack_";

/**
 * The settings to make sure of, in order: the hash size follows the table's. Those that the configuration leaves at 0 stay as they are.
 *
 * Source: kube-proxy 1.36; differs: a fraction of a second is rounded up, because 0 would end every flow at once, and
 * limits are raised, never lowered.
 */
export function conntrackSettings(config: ConntrackConfig, cpuCount: number): readonly ConntrackSetting[] {
  const settings: ConntrackSetting[] = [];
  const entries = maxEntries(config, cpuCount);
  if (entries > 0) {
    settings.push(
      { name: `${PREFIX}max`, value: entries, atLeast: true },
      { name: `${PREFIX}buckets`, value: Math.floor(entries / ENTRIES_PER_BUCKET), atLeast: true },
    );
  }
  const timeoutsMs = {
    tcp_timeout_established: config.tcpEstablishedTimeout,
    tcp_timeout_close_wait: config.tcpCloseWaitTimeout,
    udp_timeout: config.udpTimeout,
    udp_timeout_stream: config.udpStreamTimeout,
  };
  for (const [name, ms] of Object.entries(timeoutsMs)) {
    if (ms > 0) settings.push({ name: `${PREFIX}${name}`, value: Math.ceil(ms / 1000), atLeast: false });
  }
  if (config.tcpBeLiberal) settings.push({ name: `${PREFIX}tcp_be_liberal`, value: 1, atLeast: false });
  return settings;
}

/** Names of {@linkcode conntrackSettings}: how many CPUs there are decides only values. */
export function conntrackNames(config: ConntrackConfig): readonly string[] {
  return conntrackSettings(config, 1).map(({ name }) => name);
}

/** Entries the table should hold; 0 if that is not ours to say. */
function maxEntries({ maxPerCore, min }: ConntrackConfig, cpuCount: number): number {
  if (maxPerCore <= 0) return 0;
  const scaled = maxPerCore * cpuCount;
  return scaled > MAX_SCALED_ENTRIES ? MAX_SCALED_ENTRIES : Math.max(scaled, min);
}
