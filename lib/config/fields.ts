/**
 * The table of fields, in the order of the API type.
 *
 * @module
 */
import { OWN_FIELDS } from "./own_fields.ts";
import {
  DETECT_LOCAL_MODES,
  field,
  type FieldSpec,
  HEALTHZ_PORT,
  METRICS_PORT,
  PROXY_MODES,
  UDP_IDLE_TIMEOUT_MS,
} from "./schema.ts";

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

const CLIENT_FIELDS: readonly FieldSpec[] = [
  field("clientConnection.kubeconfig", "string", "", "kubeconfig file; blank: the Pod's service account", {
    flag: "kubeconfig",
  }),
  field(
    "clientConnection.acceptContentTypes",
    "string",
    "",
    "forms in which the API server may answer, the best one first; counts before `contentType` unless blank",
  ),
  field(
    "clientConnection.contentType",
    "string",
    "application/vnd.kubernetes.protobuf",
    "form in which the API server is asked to answer: this one or `application/json`; what kproxy sends is JSON",
    { zeroIsUnset: true, flag: "kube-api-content-type" },
  ),
  field("clientConnection.qps", "float32", 5, "requests per second to the API server; negative: no limit", {
    zeroIsUnset: true,
    flag: "kube-api-qps",
  }),
  field("clientConnection.burst", "int32", 10, "requests that may exceed `qps` for a moment", {
    zeroIsUnset: true,
    flag: "kube-api-burst",
  }),
];

const ALPHA_LOGGING = "needs the gate LoggingAlphaOptions";
const LOGGING_FIELDS: readonly FieldSpec[] = [
  field("logging.format", "string", "text", "form of log lines: `text` or `json`", {
    zeroIsUnset: true,
    flag: "logging-format",
    allowed: ["text", "json"],
  }),
  field("logging.flushFrequency", "durationOrNanoseconds", 5 * SECOND, "log lines are never held back", {
    zeroIsUnset: true,
    flag: "log-flush-frequency",
    unused: true,
  }),
  field("logging.verbosity", "uint32", 0, "how much is logged: 0 is least, 4 is for debugging", {
    flag: "v",
  }),
  field("logging.vmodule", "vmodule", [], "verbosity for single source files (text format only)", {
    flag: "vmodule",
    omitDefault: true,
  }),
  field(
    "logging.options.text.splitStream",
    "boolean",
    false,
    `errors to stderr, the rest to stdout; ${ALPHA_LOGGING}`,
    {
      flag: "log-text-split-stream",
      omitDefault: true,
    },
  ),
  field("logging.options.text.infoBufferSize", "quantity", "0", `${ALPHA_LOGGING} unless \`0\``, {
    flag: "log-text-info-buffer-size",
    unused: true,
  }),
  field(
    "logging.options.json.splitStream",
    "boolean",
    false,
    `errors to stderr, the rest to stdout; ${ALPHA_LOGGING}`,
    {
      flag: "log-json-split-stream",
      omitDefault: true,
    },
  ),
  field("logging.options.json.infoBufferSize", "quantity", "0", `${ALPHA_LOGGING} unless \`0\``, {
    flag: "log-json-info-buffer-size",
    unused: true,
  }),
];

const SERVER_FIELDS: readonly FieldSpec[] = [
  field("hostnameOverride", "string", "", "name of the own Node; blank: the host name", {
    flag: "hostname-override",
  }),
  field(
    "bindAddress",
    "string",
    "0.0.0.0",
    "the node's primary IP, and so its primary family; no socket uses it",
    {
      zeroIsUnset: true,
      flag: "bind-address",
    },
  ),
  field(
    "healthzBindAddress",
    "string",
    `0.0.0.0:${HEALTHZ_PORT}`,
    `health server; a bare IP gets the port ${HEALTHZ_PORT}; \`[::]:${HEALTHZ_PORT}\` if bindAddress is IPv6`,
    { zeroIsUnset: true, flag: "healthz-bind-address" },
  ),
  field(
    "metricsBindAddress",
    "string",
    `127.0.0.1:${METRICS_PORT}`,
    `metrics server; a bare IP gets the port ${METRICS_PORT}; \`[::1]:${METRICS_PORT}\` if bindAddress is IPv6`,
    { zeroIsUnset: true, flag: "metrics-bind-address" },
  ),
  field("bindAddressHardFail", "boolean", false, "exit if a server cannot listen, instead of trying again", {
    flag: "bind-address-hard-fail",
  }),
  field("enableProfiling", "boolean", false, "debugging pages on the metrics server", { flag: "profiling" }),
  field(
    "showHiddenMetricsForVersion",
    "string",
    "",
    "previous minor version whose hidden metrics are shown",
    {
      flag: "show-hidden-metrics-for-version",
    },
  ),
];

const MODE_FIELDS: readonly FieldSpec[] = [
  field("mode", "string", "iptables", "how the rules are made; `userspace` and `auto` are kproxy's own", {
    zeroIsUnset: true,
    flag: "proxy-mode",
    allowed: PROXY_MODES,
  }),
  field(
    "iptables.masqueradeBit",
    "int32",
    14,
    "bit of the packet mark that asks for masquerading (also ipvs)",
    {
      flag: "iptables-masquerade-bit",
    },
  ),
  field("iptables.masqueradeAll", "boolean", false, "masquerade everything sent to cluster IPs (also ipvs)", {
    flag: "masquerade-all",
  }),
  field("iptables.localhostNodePorts", "boolean", true, "NodePorts on 127.0.0.1 too", {
    flag: "iptables-localhost-nodeports",
  }),
  field("iptables.snatNodeInternalIP", "boolean", null, "not done by kproxy: a warning if true", {
    omitDefault: true,
    unused: true,
  }),
  field(
    "iptables.syncPeriod",
    "duration",
    30 * SECOND,
    "how often the rules are checked and failures retried",
    {
      zeroIsUnset: true,
      flag: "iptables-sync-period",
    },
  ),
  field("iptables.minSyncPeriod", "duration", SECOND, "least pause between two syncs", {
    zeroIsUnset: true,
    flag: "iptables-min-sync-period",
  }),
  field("ipvs.syncPeriod", "duration", 30 * SECOND, "how often everything is synced again", {
    zeroIsUnset: true,
    flag: "ipvs-sync-period",
  }),
  field("ipvs.minSyncPeriod", "duration", 0, "least pause between two syncs (1s if there is no file)", {
    flag: "ipvs-min-sync-period",
  }),
  field("ipvs.scheduler", "string", "", "IPVS scheduler; blank: `rr`", { flag: "ipvs-scheduler" }),
  field("ipvs.excludeCIDRs", "strings", null, "virtual servers in these ranges are not touched", {
    flag: "ipvs-exclude-cidrs",
  }),
  field("ipvs.strictARP", "boolean", false, "set arp_ignore and arp_announce", { flag: "ipvs-strict-arp" }),
  field("ipvs.tcpTimeout", "duration", 0, "idle TCP sessions; 0: leave", { flag: "ipvs-tcp-timeout" }),
  field("ipvs.tcpFinTimeout", "duration", 0, "TCP sessions after a FIN; 0: leave", {
    flag: "ipvs-tcpfin-timeout",
  }),
  field("ipvs.udpTimeout", "duration", 0, "UDP packets; 0: leave", { flag: "ipvs-udp-timeout" }),
  field("nftables.masqueradeBit", "int32", 14, "bit of the packet mark that asks for masquerading"),
  field("nftables.masqueradeAll", "boolean", false, "masquerade everything sent to cluster IPs"),
  field(
    "nftables.syncPeriod",
    "duration",
    30 * SECOND,
    "how often the rules are checked and failures retried",
    {
      zeroIsUnset: true,
    },
  ),
  field("nftables.minSyncPeriod", "duration", SECOND, "least pause between two syncs", { zeroIsUnset: true }),
  field("winkernel.networkName", "string", "", "Windows only", { unused: true }),
  field("winkernel.sourceVip", "string", "", "Windows only", { unused: true }),
  field("winkernel.enableDSR", "boolean", false, "Windows only", { unused: true }),
  field("winkernel.rootHnsEndpointName", "string", "", "Windows only", { unused: true }),
  field("winkernel.forwardHealthCheckVip", "boolean", false, "Windows only", { unused: true }),
];

const TRAFFIC_FIELDS: readonly FieldSpec[] = [
  field(
    "detectLocalMode",
    "string",
    "ClusterCIDR",
    "how traffic of the node's own Pods is told from other traffic",
    {
      zeroIsUnset: true,
      flag: "detect-local-mode",
      allowed: DETECT_LOCAL_MODES,
    },
  ),
  field("detectLocal.bridgeInterface", "string", "", "the Pods' bridge, for `BridgeInterface`", {
    flag: "pod-bridge-interface",
  }),
  field(
    "detectLocal.interfaceNamePrefix",
    "string",
    "",
    "how the Pods' interfaces begin, for `InterfaceNamePrefix`",
    {
      flag: "pod-interface-name-prefix",
    },
  ),
  field("clusterCIDR", "string", "", "range of the Pods, or one per family separated by a comma", {
    flag: "cluster-cidr",
  }),
  field(
    "nodePortAddresses",
    "strings",
    null,
    "node IPs that serve NodePorts: ranges and the words `primary`, `localhost`, `all`; empty: all (nftables: `primary`)",
    { flag: "nodeport-addresses" },
  ),
];

const SYSTEM_FIELDS: readonly FieldSpec[] = [
  field("oomScoreAdj", "int32", -999, "oom_score_adj of the process", { flag: "oom-score-adj" }),
  field("conntrack.maxPerCore", "int32", 32_768, "tracked connections per CPU; 0: leave the limit", {
    flag: "conntrack-max-per-core",
  }),
  field("conntrack.min", "int32", 131_072, "tracked connections at least", { flag: "conntrack-min" }),
  field("conntrack.tcpEstablishedTimeout", "duration", 24 * HOUR, "idle TCP connections; 0: leave", {
    flag: "conntrack-tcp-timeout-established",
  }),
  field("conntrack.tcpCloseWaitTimeout", "duration", HOUR, "TCP connections in CLOSE_WAIT; 0: leave", {
    flag: "conntrack-tcp-timeout-close-wait",
  }),
  field("conntrack.tcpBeLiberal", "boolean", false, "packets outside the TCP window are not invalid", {
    flag: "conntrack-tcp-be-liberal",
  }),
  field("conntrack.udpTimeout", "duration", 0, "UDP flows without a reply; 0: leave", {
    flag: "conntrack-udp-timeout",
  }),
  field("conntrack.udpStreamTimeout", "duration", 0, "UDP flows with replies; 0: leave", {
    flag: "conntrack-udp-timeout-stream",
  }),
  field("configSyncPeriod", "duration", 15 * MINUTE, "how often known objects are looked at again", {
    zeroIsUnset: true,
    flag: "config-sync-period",
  }),
  field(
    "udpIdleTimeout",
    "duration",
    UDP_IDLE_TIMEOUT_MS,
    "mode userspace: how long a UDP client without packets is remembered",
    { flag: "udp-timeout", omitDefault: true },
  ),
  field(
    "portRange",
    "string",
    "",
    "mode userspace: `N`, `N-M` or `N+K`, the ports that it may use; empty: any",
    { flag: "proxy-port-range" },
  ),
  field("windowsRunAsService", "boolean", null, "Windows only", {
    flag: "windows-service",
    omitDefault: true,
    unused: true,
  }),
];

/** Every field, in the order of the API type, kproxy's own last. */
export const FIELDS: readonly FieldSpec[] = [
  field("featureGates", "featureGates", {}, "known names are accepted; few change anything (see below)", {
    flag: "feature-gates",
    omitDefault: true,
  }),
  ...CLIENT_FIELDS,
  ...LOGGING_FIELDS,
  ...SERVER_FIELDS,
  ...MODE_FIELDS,
  ...TRAFFIC_FIELDS,
  ...SYSTEM_FIELDS,
  ...OWN_FIELDS,
];

const FIELDS_BY_PATH: ReadonlyMap<string, FieldSpec> = new Map(FIELDS.map((spec) => [spec.path, spec]));

/** The entry of a path, or undefined if there is no such field. */
export function fieldOf(path: string): FieldSpec | undefined {
  return FIELDS_BY_PATH.get(path);
}
