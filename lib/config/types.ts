/**
 * `KubeProxyConfiguration` kubeproxy.config.k8s.io/v1alpha1, field by field, in the order of the API type, plus
 * kproxy's own fields under `kproxy`. All durations are milliseconds.
 *
 * @module
 */

export const CONFIG_API_VERSION = "kubeproxy.config.k8s.io/v1alpha1";
export const CONFIG_KIND = "KubeProxyConfiguration";

/** Milliseconds; written as a Go duration. */
export type DurationMs = number;

export type ProxyMode = "iptables" | "ipvs" | "nftables" | "userspace" | "auto";
/** The modes that leave something on a node; `userspace` is kube-proxy's of before 1.26. */
export const CLEANUP_MODES = ["iptables", "ipvs", "nftables", "userspace"] as const;

export type CleanupMode = typeof CLEANUP_MODES[number];
/** Who leaves something on a node. */
export const CLEANUP_PROXIES = ["kproxy", "kube-proxy"] as const;

export type CleanupProxy = typeof CLEANUP_PROXIES[number];
export type DetectLocalMode = "ClusterCIDR" | "NodeCIDR" | "BridgeInterface" | "InterfaceNamePrefix";

export interface ClientConnectionConfig {
  kubeconfig: string;
  acceptContentTypes: string;
  contentType: string;
  qps: number;
  burst: number;
}

export interface LoggingFormatOptions {
  splitStream: boolean;
  /** Quantity text, e.g. `"0"`. */
  infoBufferSize: string;
}

export interface LoggingConfig {
  format: string;
  flushFrequency: DurationMs;
  verbosity: number;
  vmodule: { filePattern: string; verbosity: number }[];
  options: { text: LoggingFormatOptions; json: LoggingFormatOptions };
}

export interface IptablesConfig {
  masqueradeBit: number;
  masqueradeAll: boolean;
  localhostNodePorts: boolean;
  /** Accepted with a warning if true; kproxy does not do it. Null: not given. */
  snatNodeInternalIP: boolean | null;
  syncPeriod: DurationMs;
  minSyncPeriod: DurationMs;
}

export interface IpvsConfig {
  syncPeriod: DurationMs;
  minSyncPeriod: DurationMs;
  scheduler: string;
  excludeCIDRs: string[] | null;
  strictARP: boolean;
  tcpTimeout: DurationMs;
  tcpFinTimeout: DurationMs;
  udpTimeout: DurationMs;
}

export interface NftablesConfig {
  masqueradeBit: number;
  masqueradeAll: boolean;
  syncPeriod: DurationMs;
  minSyncPeriod: DurationMs;
}

/** Accepted and written back, without effect on Linux. */
export interface WinkernelConfig {
  networkName: string;
  sourceVip: string;
  enableDSR: boolean;
  rootHnsEndpointName: string;
  forwardHealthCheckVip: boolean;
}

export interface ConntrackConfig {
  maxPerCore: number;
  min: number;
  tcpEstablishedTimeout: DurationMs;
  tcpCloseWaitTimeout: DurationMs;
  tcpBeLiberal: boolean;
  udpTimeout: DurationMs;
  udpStreamTimeout: DurationMs;
}

/** Where a Service's endpoints come from: EndpointSlices, v1 Endpoints, or (`auto`) Endpoints only where there are no slices. */
export type EndpointsSource = "auto" | "slices" | "endpoints";

/** `kproxy.externalIPPolicy`. */
export interface ExternalIpPolicyConfig {
  externalIPs: string[] | null;
  loadBalancerIPs: string[] | null;
  nodeAddresses: boolean | null;
}

/** kproxy's own fields. The key is written only if a field differs from its default. */
export interface KproxyConfig {
  /** Files and folders to read objects from; `-` is standard input. Empty: the API server. */
  manifests: string[];
  endpointsSource: EndpointsSource;
  /** A mode that cannot run here, or is none, gives way to iptables, then userspace. */
  proxyModeFallback: boolean;
  /** File that keeps what the API server said, for a start without it; `""` for none. */
  snapshot: string;
  /** A snapshot older than this is not served at a start; 0: at any age. */
  snapshotMaxAge: DurationMs;
  /** How long a real server of IPVS that is no longer wanted keeps its connections; 0: as long as they last. */
  ipvsTerminationDeadline: DurationMs;
  /** Addresses and networks of the node, one of each IP family, on which mode userspace opens the Services, without any rule. */
  userspaceListen: string[];
  /** Which external IPs and load-balancer IPs Services may have. Nothing given: any, as with kube-proxy. */
  externalIPPolicy: ExternalIpPolicyConfig;
  /** Packets and bytes are counted for each Service port, in modes that can (nftables). */
  trafficCounters: boolean;
  /** Path of the Unix socket on which the proxy is asked and set; `""` for none. */
  socket: string;
  /** The socket tells how the proxy fares, what it is configured to, and what objects it holds. */
  statusApi: boolean;
  /** The metrics server shows browsers on the node a page about all of that, too. */
  statusPage: boolean;
  /** How the metrics server knows its clients, and is known by them. */
  serving: ServingConfig;
}

/** Oldest version of TLS, in the words of Kubernetes' `--tls-min-version`. */
export type TlsVersion = "VersionTLS12" | "VersionTLS13";

/** Metrics over TLS, named as other components of Kubernetes name their flags. Without a certificate it is plain HTTP. */
export interface ServingConfig {
  /** Certificate, followed by those between it and its authority; PEM. `""`: plain HTTP. */
  tlsCertFile: string;
  /** Its key, PEM. */
  tlsPrivateKeyFile: string;
  tlsMinVersion: TlsVersion;
  /** Authorities of which each client must have a certificate, PEM; `""`: clients need none. */
  clientCAFile: string;
  /** Tokens of which each request must bring one, one a line; `""`: none is needed. */
  bearerTokenFile: string;
  /** Each request must bring a token to which the API server grants to get the path. */
  delegatedAuthentication: boolean;
  /** The health server speaks TLS, too, with any client: a kubelet's probes can show neither certificate nor token. */
  healthz: boolean;
}

/** A complete configuration: every field has its default. */
export interface KubeProxyConfiguration {
  featureGates: Record<string, boolean>;
  clientConnection: ClientConnectionConfig;
  logging: LoggingConfig;
  hostnameOverride: string;
  bindAddress: string;
  /** `IP:port`; `""` if switched off by `--healthz-port=0`. */
  healthzBindAddress: string;
  /** `IP:port`; `""` if switched off by `--metrics-port=0`. */
  metricsBindAddress: string;
  bindAddressHardFail: boolean;
  enableProfiling: boolean;
  showHiddenMetricsForVersion: string;
  mode: ProxyMode;
  iptables: IptablesConfig;
  ipvs: IpvsConfig;
  nftables: NftablesConfig;
  winkernel: WinkernelConfig;
  detectLocalMode: DetectLocalMode;
  detectLocal: { bridgeInterface: string; interfaceNamePrefix: string };
  /** Comma separated, one or one per family. */
  clusterCIDR: string;
  nodePortAddresses: string[] | null;
  oomScoreAdj: number;
  conntrack: ConntrackConfig;
  configSyncPeriod: DurationMs;
  /** Mode userspace: how long a UDP client without packets is remembered. */
  udpIdleTimeout: DurationMs;
  /** Mode userspace: the ports that it may listen on; `""` for any. */
  portRange: string;
  windowsRunAsService: boolean | null;
  kproxy: KproxyConfig;
}

/** The part of a mode's configuration that paces syncs, whatever the mode. */
export interface SyncPeriods {
  readonly syncPeriod: DurationMs;
  readonly minSyncPeriod: DurationMs;
}
