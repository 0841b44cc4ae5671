/**
 * The schema: every field of `KubeProxyConfiguration` kubeproxy.config.k8s.io/v1alpha1, in the order of the API type, and kproxy's own
 * under `kproxy`, with the flags of the same meaning. Everything about a field stands here.
 *
 * @module
 */
import * as check from "./checks.ts";
import { KPROXY } from "./schema_kproxy.ts";
import {
  address,
  bool,
  type Conditions,
  DAY,
  duration,
  float,
  gates,
  HOUR,
  int,
  ip,
  level,
  list,
  MINUTE,
  nanoseconds,
  quantity,
  SECOND,
  text,
  under,
  UNLESS_DEFAULT,
  UNSET,
  vmodule,
} from "./setting.ts";
import { DETECT_LOCAL_MODES, HEALTHZ_PORT, METRICS_PORT, PROXY_MODES, UDP_IDLE_TIMEOUT_MS } from "./types.ts";

const node = under("API server and node");
const servers = under("Servers");
const rules = under("Mode and rules");
const local = under("Local traffic");
const ipvs = under("IPVS");
const conntrack = under("Connection tracking");
const logging = <const Flag extends string>(flag: Flag) =>
  ({ ...under("Logging")(flag), also: ["cleanup"] }) as const;
/** Commands that ask a running kproxy, on the servers that are configured. */
const ASKED = { also: ["status", "sysdump"] } as const;
const WINDOWS = { unused: true } as const;

// A section whose mode is not used is not looked at, as in kube-proxy, but for the bit of `iptables`.
const inIpvs = { when: ({ mode }: Conditions) => mode === "ipvs" } as const;
const inNftables = { when: ({ mode }: Conditions) => mode === "nftables" || mode === "auto" } as const;
const inIptables = {
  when: ({ mode, kproxy }: Conditions) =>
    (mode !== "ipvs" && mode !== "nftables") || kproxy.proxyModeFallback,
} as const;
const inUserspace = {
  when: ({ mode, kproxy }: Conditions) => mode === "userspace" || kproxy.proxyModeFallback,
  related: ["mode"],
} as const;

function withLocalMode<const Mode extends string>(mode: Mode) {
  return {
    when: ({ detectLocalMode }: Conditions) => detectLocalMode === mode,
    related: ["detectLocalMode"],
  } as const;
}

const ALPHA_LOGGING = "needs the gate LoggingAlphaOptions";
const SPLIT_STREAM = `Errors to stderr, the rest to stdout; ${ALPHA_LOGGING}`;
const INFO_BUFFER = `Buffer of split streams; ${ALPHA_LOGGING} unless \`0\``;
const MASQUERADE_BIT = "Bit of the packet mark that asks for masquerading, from 0 to 31";
const MASQUERADE_ALL = "Masquerade everything sent to cluster IPs";
const SYNC_PERIOD = "How often the rules are checked and failures retried";
const MIN_SYNC_PERIOD = "Minimum time between two syncs";

export const SCHEMA = {
  featureGates: gates(
    {},
    "Feature gates, as A=true,B=false; few change anything, and the others are a warning",
    { ...node("feature-gates"), ...UNLESS_DEFAULT },
  ),
  clientConnection: {
    kubeconfig: text(
      "",
      "Kubeconfig that names the API server and the credentials; blank: the Pod's service account",
      { ...node("kubeconfig"), files: [] },
    ),
    acceptContentTypes: text(
      "",
      "Content types that the API server may answer in, the best first; replaces `contentType` unless blank",
    ),
    contentType: text(
      "application/vnd.kubernetes.protobuf",
      "Content type that the API server is asked for: this one or `application/json`; kproxy sends JSON",
      { ...node("kube-api-content-type"), ...UNSET },
    ),
    qps: float(5, "Requests per second to the API server; negative: no limit", {
      ...node("kube-api-qps"),
      ...UNSET,
    }),
    burst: int(10, "Requests to the API server that may exceed `qps` at once", {
      ...node("kube-api-burst"),
      ...UNSET,
      check: check.notNegative,
    }),
  },
  logging: {
    format: text("text", "Format of log lines", {
      ...logging("logging-format"),
      ...UNSET,
      values: ["text", "json"],
    }),
    flushFrequency: nanoseconds(
      5 * SECOND,
      "Accepted as in kube-proxy; kproxy writes each log line at once",
      { ...logging("log-flush-frequency"), ...UNSET, unused: true, check: check.positive },
    ),
    verbosity: level(0, "How much is logged: 0 is least, 4 is for debugging", {
      ...logging("v"),
      short: "v",
      live: true,
      check: check.verbosity,
    }),
    vmodule: vmodule([], "Verbosity for single source files, as pattern=N,…; text format only", {
      ...logging("vmodule"),
      ...UNLESS_DEFAULT,
      check: check.vmodule,
    }),
    options: {
      text: {
        splitStream: bool(false, SPLIT_STREAM, { ...logging("log-text-split-stream"), ...UNLESS_DEFAULT }),
        infoBufferSize: quantity("0", INFO_BUFFER, { ...logging("log-text-info-buffer-size"), unused: true }),
      },
      json: {
        splitStream: bool(false, SPLIT_STREAM, { ...logging("log-json-split-stream"), ...UNLESS_DEFAULT }),
        infoBufferSize: quantity("0", INFO_BUFFER, { ...logging("log-json-info-buffer-size"), unused: true }),
      },
    },
  },
  hostnameOverride: text("", "Name of the own Node; blank: the host name", node("hostname-override")),
  bindAddress: ip("0.0.0.0", "The node's primary IP, and so its primary family; nothing listens on it", {
    ...servers("bind-address"),
    ...UNSET,
    check: check.ip,
  }),
  healthzBindAddress: address(
    `0.0.0.0:${HEALTHZ_PORT}`,
    `Health server; a bare IP gets the port ${HEALTHZ_PORT}; \`[::]:${HEALTHZ_PORT}\` if bindAddress is IPv6`,
    { ...servers("healthz-bind-address"), ...ASKED, ...UNSET, check: check.hostPort },
  ),
  metricsBindAddress: address(
    `127.0.0.1:${METRICS_PORT}`,
    `Metrics server; a bare IP gets the port ${METRICS_PORT}; \`[::1]:${METRICS_PORT}\` if bindAddress is IPv6`,
    { ...servers("metrics-bind-address"), ...ASKED, ...UNSET, check: check.hostPort },
  ),
  bindAddressHardFail: bool(
    false,
    "Exit if a server cannot listen, instead of trying again",
    servers("bind-address-hard-fail"),
  ),
  enableProfiling: bool(
    false,
    "Serve /debug/pprof (heap snapshots) and /debug/flags (log verbosity) on the socket",
    servers("profiling"),
  ),
  showHiddenMetricsForVersion: text("", "Previous minor version whose hidden metrics are shown", {
    ...servers("show-hidden-metrics-for-version"),
    check: check.previousVersion,
  }),
  mode: text(
    "iptables",
    "Proxy mode; `auto` takes nftables if it works here, else iptables; kube-proxy has neither `auto` nor `userspace`",
    {
      ...rules("proxy-mode"),
      ...UNSET,
      values: PROXY_MODES,
      when: ({ kproxy }: Conditions) => !kproxy.proxyModeFallback,
      isOpen: true,
      also: ["selftest"],
      // Userspace writes hardly any rule that could be tried.
      valuesIn: { selftest: ["iptables", "ipvs", "nftables", "auto"] },
    },
  ),
  iptables: {
    masqueradeBit: int(14, `${MASQUERADE_BIT} (also ipvs)`, {
      ...rules("iptables-masquerade-bit"),
      check: check.within(0, 31),
    }),
    masqueradeAll: bool(false, `${MASQUERADE_ALL} (also ipvs)`, {
      ...rules("masquerade-all"),
      flagDoc: MASQUERADE_ALL,
    }),
    localhostNodePorts: bool(
      true,
      "NodePorts on 127.0.0.1 too, in iptables mode and IPv4",
      rules("iptables-localhost-nodeports"),
    ),
    /** Accepted with a warning if true; kproxy does not do it. */
    snatNodeInternalIP: bool(null, "Not done by kproxy: a warning if true", {
      ...UNLESS_DEFAULT,
      unused: true,
    }),
    syncPeriod: duration(30 * SECOND, SYNC_PERIOD, {
      ...rules("iptables-sync-period"),
      ...UNSET,
      ...inIptables,
      flagDoc: `${SYNC_PERIOD}, in every mode but ipvs`,
      check: check.positive,
    }),
    minSyncPeriod: duration(SECOND, MIN_SYNC_PERIOD, {
      ...rules("iptables-min-sync-period"),
      ...UNSET,
      ...inIptables,
      flagDoc: `${MIN_SYNC_PERIOD}, in every mode but ipvs`,
      check: check.notNegative,
    }),
  },
  ipvs: {
    syncPeriod: duration(30 * SECOND, SYNC_PERIOD, {
      ...ipvs("ipvs-sync-period"),
      ...UNSET,
      ...inIpvs,
      check: check.positive,
    }),
    minSyncPeriod: duration(0, `${MIN_SYNC_PERIOD} (1s if there is no file)`, {
      ...ipvs("ipvs-min-sync-period"),
      ...inIpvs,
      flagDefault: "1s",
      check: check.notNegative,
    }),
    scheduler: text("", "IPVS scheduler; blank: `rr`", ipvs("ipvs-scheduler")),
    excludeCIDRs: list(null, "Virtual servers in these ranges are not touched", {
      ...ipvs("ipvs-exclude-cidrs"),
      ...inIpvs,
      check: check.each(check.cidr),
    }),
    strictARP: bool(false, "Set arp_ignore to 1 and arp_announce to 2", ipvs("ipvs-strict-arp")),
    tcpTimeout: duration(0, "Timeout of idle TCP sessions; 0 leaves it as it is", {
      ...ipvs("ipvs-tcp-timeout"),
      ...inIpvs,
      check: check.notNegative,
    }),
    tcpFinTimeout: duration(0, "Timeout of TCP sessions after a FIN; 0 leaves it as it is", {
      ...ipvs("ipvs-tcpfin-timeout"),
      ...inIpvs,
      check: check.notNegative,
    }),
    udpTimeout: duration(0, "Timeout of UDP packets; 0 leaves it as it is", {
      ...ipvs("ipvs-udp-timeout"),
      ...inIpvs,
      check: check.notNegative,
    }),
  },
  nftables: {
    masqueradeBit: int(14, MASQUERADE_BIT, { ...inNftables, check: check.within(0, 31) }),
    masqueradeAll: bool(false, MASQUERADE_ALL),
    syncPeriod: duration(30 * SECOND, SYNC_PERIOD, { ...UNSET, ...inNftables, check: check.positive }),
    minSyncPeriod: duration(SECOND, MIN_SYNC_PERIOD, { ...UNSET, ...inNftables, check: check.notNegative }),
  },
  winkernel: {
    networkName: text("", "Windows only", WINDOWS),
    sourceVip: text("", "Windows only", WINDOWS),
    enableDSR: bool(false, "Windows only", WINDOWS),
    rootHnsEndpointName: text("", "Windows only", WINDOWS),
    forwardHealthCheckVip: bool(false, "Windows only", WINDOWS),
  },
  detectLocalMode: text("ClusterCIDR", "How traffic of the node's own Pods is detected", {
    ...local("detect-local-mode"),
    ...UNSET,
    values: DETECT_LOCAL_MODES,
  }),
  detectLocal: {
    bridgeInterface: text("", "The Pods' bridge, for `BridgeInterface`", {
      ...local("pod-bridge-interface"),
      ...withLocalMode("BridgeInterface"),
      check: check.interfaceName(15),
    }),
    interfaceNamePrefix: text("", "Prefix of the Pods' interfaces, for `InterfaceNamePrefix`", {
      ...local("pod-interface-name-prefix"),
      ...withLocalMode("InterfaceNamePrefix"),
      // One character is left for the "+" that iptables writes after a prefix.
      check: check.interfaceName(14),
    }),
  },
  clusterCIDR: text(
    "",
    "Range of the Pods, or one per family separated by a comma; traffic from elsewhere to cluster IPs is masqueraded",
    { ...local("cluster-cidr"), ...withLocalMode("ClusterCIDR"), check: check.clusterCidrs },
  ),
  nodePortAddresses: list(
    null,
    "Node IPs that serve NodePorts: ranges and the words `primary`, `localhost`, `all`; empty: all (nftables: `primary`)",
    { ...rules("nodeport-addresses"), check: check.each(check.nodePortAddress) },
  ),
  oomScoreAdj: int(-999, "OOM score adjustment of the process, from -1000 to 1000", {
    ...node("oom-score-adj"),
    check: check.within(-1000, 1000),
  }),
  conntrack: {
    maxPerCore: int(32_768, "Tracked connections per CPU; 0 leaves the limit as it is", {
      ...conntrack("conntrack-max-per-core"),
      check: check.notNegative,
    }),
    min: int(131_072, "Tracked connections at least, whatever the number of CPUs", {
      ...conntrack("conntrack-min"),
      check: check.notNegative,
    }),
    tcpEstablishedTimeout: duration(DAY, "Timeout of idle TCP connections; 0 leaves it as it is", {
      ...conntrack("conntrack-tcp-timeout-established"),
      check: check.notNegative,
    }),
    tcpCloseWaitTimeout: duration(HOUR, "Timeout of TCP connections in CLOSE_WAIT; 0 leaves it as it is", {
      ...conntrack("conntrack-tcp-timeout-close-wait"),
      check: check.notNegative,
    }),
    tcpBeLiberal: bool(
      false,
      "Packets outside the TCP window are not invalid, but for resets",
      conntrack("conntrack-tcp-be-liberal"),
    ),
    udpTimeout: duration(0, "Timeout of UDP flows without a reply; 0 leaves it as it is", {
      ...conntrack("conntrack-udp-timeout"),
      check: check.notNegative,
    }),
    udpStreamTimeout: duration(0, "Timeout of UDP flows with replies; 0 leaves it as it is", {
      ...conntrack("conntrack-udp-timeout-stream"),
      check: check.notNegative,
    }),
  },
  configSyncPeriod: duration(
    15 * MINUTE,
    "No effect: how often kube-proxy processes unchanged objects again",
    {
      ...node("config-sync-period"),
      ...UNSET,
      check: check.positive,
    },
  ),
  // kube-proxy takes any text for a range, and any timeout, where another mode runs.
  udpIdleTimeout: duration(
    UDP_IDLE_TIMEOUT_MS,
    "Mode userspace: how long a UDP client without packets is remembered",
    { ...rules("udp-timeout"), ...UNLESS_DEFAULT, ...inUserspace, check: check.positive },
  ),
  portRange: text("", "Mode userspace: `N`, `N-M` or `N+K`, the ports that it may listen on; empty: any", {
    ...rules("proxy-port-range"),
    ...inUserspace,
    check: check.portRange,
  }),
  windowsRunAsService: bool(null, "Windows only", {
    ...under("Deprecated")("windows-service"),
    ...UNLESS_DEFAULT,
    unused: true,
    flagDoc: "Run as a Windows service",
    also: ["cleanup"],
    obsolete: "it belongs to kube-proxy on Windows",
  }),
  kproxy: KPROXY,
} as const;

/** A field of earlier versions: accepted with one warning, never "unknown". */
export interface ObsoleteField {
  readonly path: string;
  /** The field that replaced it, or the reason why it has no effect. */
  readonly note: string;
  /** Its value is used for this field, if that one is not given. */
  readonly renamedTo?: string;
}

export const OBSOLETE_FIELDS: readonly ObsoleteField[] = [
  { path: "udpTimeoutMilliseconds", note: "udpIdleTimeout has taken its place" },
  { path: "resourceContainer", note: "newer versions do not move themselves into a cgroup" },
  {
    path: "conntrack.max",
    note: "it is read as conntrack.maxPerCore: 1 and conntrack.min of that value, which gives the same limit",
  },
  { path: "clientConnection.kubeConfigFile", note: "", renamedTo: "clientConnection.kubeconfig" },
  { path: "clientConnection.kubeconfigFile", note: "", renamedTo: "clientConnection.kubeconfig" },
];
