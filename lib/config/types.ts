/**
 * `KubeProxyConfiguration` kubeproxy.config.k8s.io/v1alpha1, complete: every field has its default. Its fields are those of the schema
 * (`schema.ts`). All durations are milliseconds.
 *
 * @module
 */
import type { SCHEMA } from "./schema.ts";
import type { ValueOf } from "./setting.ts";

export const CONFIG_API_VERSION = "kubeproxy.config.k8s.io/v1alpha1";
export const CONFIG_KIND = "KubeProxyConfiguration";

export interface KubeProxyConfiguration extends ValueOf<typeof SCHEMA> {}

export type LoggingConfig = KubeProxyConfiguration["logging"];
export type ConntrackConfig = KubeProxyConfiguration["conntrack"];
export type ExternalIpPolicyConfig = KubeProxyConfiguration["kproxy"]["externalIPPolicy"];
export type ServingConfig = KubeProxyConfiguration["kproxy"]["serving"];

export type ProxyMode = "iptables" | "ipvs" | "nftables" | "userspace" | "auto";
export const PROXY_MODES: readonly ProxyMode[] = ["iptables", "ipvs", "nftables", "userspace", "auto"];

/** Modes that leave rules or other state on a node; `userspace` is kube-proxy's of before 1.26. */
export const CLEANUP_MODES = ["iptables", "ipvs", "nftables", "userspace"] as const;
export type CleanupMode = typeof CLEANUP_MODES[number];

/** Proxies that leave rules or other state on a node. */
export const CLEANUP_PROXIES = ["kproxy", "kube-proxy"] as const;
export type CleanupProxy = typeof CLEANUP_PROXIES[number];

export type DetectLocalMode = "ClusterCIDR" | "NodeCIDR" | "BridgeInterface" | "InterfaceNamePrefix";
export const DETECT_LOCAL_MODES: readonly DetectLocalMode[] = [
  "ClusterCIDR",
  "NodeCIDR",
  "BridgeInterface",
  "InterfaceNamePrefix",
];

/** Oldest version of TLS, in the words of Kubernetes' `--tls-min-version`. */
export type TlsVersion = "VersionTLS12" | "VersionTLS13";
export const TLS_VERSIONS: readonly TlsVersion[] = ["VersionTLS12", "VersionTLS13"];

/** Default of mode userspace. Source: kube-proxy 1.25. */
export const UDP_IDLE_TIMEOUT_MS = 250;
export const HEALTHZ_PORT = 10256;
export const METRICS_PORT = 10249;

/** The part of a mode's configuration that paces syncs, whatever the mode. */
export interface SyncPeriods {
  readonly syncPeriod: number;
  readonly minSyncPeriod: number;
}
