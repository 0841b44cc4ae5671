/**
 * The page that shows the configuration in force.
 *
 * @module
 */
import type { FieldValue } from "../config/setting.ts";
import { withFields } from "../config/fields.ts";
import type { KubeProxyConfiguration, ProxyMode } from "../config/types.ts";
import { configInApiOrder } from "../config/write.ts";

const PACED_MODES = ["iptables", "ipvs", "nftables"] as const;

/**
 * Compact JSON in the form of kube-proxy 1.36: the API object, with the periods of the modes not in use as `0s`.
 *
 * @param mode the one really in use
 */
export function configzBody(config: KubeProxyConfiguration, mode: ProxyMode): string {
  const idle = PACED_MODES.filter((candidate) => candidate !== mode);
  const zeroed = new Map<string, FieldValue>(
    idle.flatMap((name) => [[`${name}.syncPeriod`, 0], [`${name}.minSyncPeriod`, 0]]),
  );
  return JSON.stringify({ "kubeproxy.config.k8s.io": configInApiOrder(withFields(config, zeroed)) });
}
