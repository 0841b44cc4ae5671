/**
 * What the configuration says of the source that is an API server.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../config/types.ts";
import type { KubeSourceOptions } from "../source/kube/kube.ts";
import { USER_AGENT } from "./version.ts";

/** Of `KubeSourceOptions` what does not depend on who asks. */
export type KubeSettings = Pick<
  KubeSourceOptions,
  "configSyncPeriodMs" | "qps" | "burst" | "contentTypes" | "userAgent"
>;

/** How an API server is asked for objects by this configuration. */
export function kubeSettings(
  { configSyncPeriod, clientConnection }: KubeProxyConfiguration,
): KubeSettings {
  return {
    configSyncPeriodMs: configSyncPeriod,
    qps: clientConnection.qps,
    burst: clientConnection.burst,
    contentTypes: clientConnection,
    userAgent: USER_AGENT,
  };
}
