import { assertEquals } from "@std/assert";
import { defaultConfig } from "./defaults.ts";
import { fieldOf, withFields } from "./fields.ts";
import type { FieldValue } from "./setting.ts";
import { findProblems } from "./validate.ts";

const PURE = { permissions: "none" } as const;
const AT_LEAST_0 = "must be greater than or equal to 0";
const RANGE_31 = "must be within the range [0, 31]";

function problemsOf(fields: Record<string, FieldValue>): string[] {
  for (const path of Object.keys(fields)) {
    if (fieldOf(path) === undefined) throw new TypeError(`No field ${path}`);
  }
  const config = withFields(defaultConfig(), new Map(Object.entries(fields)));
  return findProblems(config).map(({ path, message }) => `${path}: ${message}`);
}

const VALID: Record<string, FieldValue>[] = [
  {},
  { "iptables.masqueradeBit": 0 },
  { "iptables.masqueradeBit": 31 },
  { "iptables.minSyncPeriod": 0 },
  { "iptables.minSyncPeriod": 30_000 },
  { "ipvs.syncPeriod": -1 },
  { "nftables.masqueradeBit": 99, "nftables.syncPeriod": -1 },
  { mode: "nftables", "iptables.syncPeriod": -1 },
  { mode: "ipvs", "ipvs.excludeCIDRs": ["10.0.0.1/8", "fd00::/64", "010.0.0.0/8"] },
  { mode: "userspace" },
  { mode: "auto" },
  { oomScoreAdj: -1000 },
  { oomScoreAdj: 1000 },
  { "clientConnection.qps": -1, "clientConnection.burst": 0 },
  { healthzBindAddress: "", metricsBindAddress: "" },
  { healthzBindAddress: "[::]:1", metricsBindAddress: "010.0.0.1:65535" },
  { nodePortAddresses: ["primary", "localhost", "all", "10.0.0.0/8", "::/0"] },
  { showHiddenMetricsForVersion: "1.35" },
  { detectLocalMode: "BridgeInterface", "detectLocal.bridgeInterface": "br0", clusterCIDR: "foo" },
  { detectLocalMode: "InterfaceNamePrefix", "detectLocal.interfaceNamePrefix": "veth" },
  { detectLocalMode: "NodeCIDR", clusterCIDR: "foo" },
  { clusterCIDR: "10.0.0.0/8" },
  { clusterCIDR: "fd00::/64,10.0.0.0/8" },
  { "logging.format": "json" },
  { "logging.verbosity": 2 ** 31 - 1 },
  { "logging.options.text.infoBufferSize": "0Ki" },
  {
    featureGates: { LoggingAlphaOptions: true },
    "logging.options.text.infoBufferSize": "1Ki",
    "logging.options.json.splitStream": true,
  },
  { featureGates: { Unknown: true, NFTablesProxyMode: true } },
  { portRange: "nonsense" },
];

/** Beside those of `tests/cli/configs/broken`. */
const INVALID: [Record<string, FieldValue>, string[]][] = [
  [{ mode: "nftables", "iptables.masqueradeBit": 32 }, [
    `iptables.masqueradeBit: Invalid value: 32: ${RANGE_31}`,
  ]],
  [{ mode: "auto", "nftables.masqueradeBit": -1 }, [
    `nftables.masqueradeBit: Invalid value: -1: ${RANGE_31}`,
  ]],
  [{ "iptables.syncPeriod": 1_000, "iptables.minSyncPeriod": 2_000 }, [
    'iptables.syncPeriod: Invalid value: "1s": must be greater than or equal to iptables.minSyncPeriod, which is "2s"',
  ]],
  [{ mode: "userspace", "iptables.minSyncPeriod": -1 }, [
    `iptables.minSyncPeriod: Invalid value: "-1ms": ${AT_LEAST_0}`,
  ]],
  [{ mode: "ipvs", "ipvs.syncPeriod": 0 }, ['ipvs.syncPeriod: Invalid value: "0s": must be greater than 0']],
  [{ mode: "nftables", "nftables.minSyncPeriod": 60_000 }, [
    'nftables.syncPeriod: Invalid value: "30s": must be greater than or equal to nftables.minSyncPeriod, which is "1m0s"',
  ]],
  [{ mode: "ipvs", "ipvs.tcpTimeout": -1, "ipvs.tcpFinTimeout": -1, "ipvs.udpTimeout": -1 }, [
    `ipvs.tcpTimeout: Invalid value: "-1ms": ${AT_LEAST_0}`,
    `ipvs.tcpFinTimeout: Invalid value: "-1ms": ${AT_LEAST_0}`,
    `ipvs.udpTimeout: Invalid value: "-1ms": ${AT_LEAST_0}`,
  ]],
  [{ mode: "ipvs", "ipvs.excludeCIDRs": ["10.0.0.0/8", "x", "1.2.3.4"] }, [
    'ipvs.excludeCIDRs[1]: Invalid value: "x": must be a valid CIDR',
    'ipvs.excludeCIDRs[2]: Invalid value: "1.2.3.4": must be a valid CIDR',
  ]],
  [{
    "conntrack.tcpEstablishedTimeout": -1,
    "conntrack.tcpCloseWaitTimeout": -1,
    "conntrack.udpStreamTimeout": -1,
  }, [
    `conntrack.tcpEstablishedTimeout: Invalid value: "-1ms": ${AT_LEAST_0}`,
    `conntrack.tcpCloseWaitTimeout: Invalid value: "-1ms": ${AT_LEAST_0}`,
    `conntrack.udpStreamTimeout: Invalid value: "-1ms": ${AT_LEAST_0}`,
  ]],
  [{ oomScoreAdj: 1001 }, ["oomScoreAdj: Invalid value: 1001: must be within the range [-1000, 1000]"]],
  [{ oomScoreAdj: -1001 }, ["oomScoreAdj: Invalid value: -1001: must be within the range [-1000, 1000]"]],
  [{
    "kproxy.externalIPPolicy.externalIPs": ["0.0.0.0/0", "fd00:5::/64", "203.0.113.9", "10.0.0.5/8", "lan"],
  }, [
    'kproxy.externalIPPolicy.externalIPs[2]: Invalid value: "203.0.113.9": must be a network in CIDR form: 203.0.113.9/32 for this address alone',
    'kproxy.externalIPPolicy.externalIPs[3]: Invalid value: "10.0.0.5/8": must have no bits set behind its prefix: 10.0.0.0/8',
    'kproxy.externalIPPolicy.externalIPs[4]: Invalid value: "lan": must be a network in CIDR form (e.g. 203.0.113.0/24 or fd00:5::/64)',
  ]],
  [{
    "kproxy.externalIPPolicy.loadBalancerIPs": [],
    "kproxy.externalIPPolicy.externalIPs": ["FD00:0:5::/64"],
  }, []],
  [{ "kproxy.externalIPPolicy.loadBalancerIPs": ["fd00:5::1/64", "::ffff:10.0.0.0/104"] }, [
    'kproxy.externalIPPolicy.loadBalancerIPs[0]: Invalid value: "fd00:5::1/64": must have no bits set behind its prefix: fd00:5::/64',
    'kproxy.externalIPPolicy.loadBalancerIPs[1]: Invalid value: "::ffff:10.0.0.0/104": must be a network in CIDR form (e.g. 203.0.113.0/24 or fd00:5::/64)',
  ]],
  [{ mode: "userspace", "kproxy.userspaceListen": ["127.0.0.0/8", "10.0.0.1", "here", "::1"] }, [
    'kproxy.userspaceListen[1]: Invalid value: "10.0.0.1": must be the only one of IPv4',
    'kproxy.userspaceListen[2]: Invalid value: "here": must be an address or a network of this node (e.g. 127.0.0.1 or 127.0.0.0/8)',
  ]],
  [{ configSyncPeriod: 0 }, ['configSyncPeriod: Invalid value: "0s": must be greater than 0']],
  [{ healthzBindAddress: "1.2.3.4" }, ['healthzBindAddress: Invalid value: "1.2.3.4": must be IP:port']],
  [{ healthzBindAddress: "::1:80" }, ['healthzBindAddress: Invalid value: "::1:80": must be IP:port']],
  [{ healthzBindAddress: "[::1]x:80" }, ['healthzBindAddress: Invalid value: "[::1]x:80": must be IP:port']],
  [{ metricsBindAddress: "1.2.3.4:0" }, ['metricsBindAddress: Invalid value: "0": must be a valid port']],
  [{ metricsBindAddress: "1.2.3.4:" }, ['metricsBindAddress: Invalid value: "": must be a valid port']],
  [{ metricsBindAddress: "1.2.3.4:http" }, [
    'metricsBindAddress: Invalid value: "http": must be a valid port',
  ]],
  [{ metricsBindAddress: "localhost:80" }, [
    'metricsBindAddress: Invalid value: "localhost": must be a valid IP',
  ]],
  [{ nodePortAddresses: ["all", "10.0.0.1", ""] }, [
    'nodePortAddresses[1]: Invalid value: "10.0.0.1": must be a valid CIDR, primary, localhost or all',
    'nodePortAddresses[2]: Invalid value: "": must be a valid CIDR, primary, localhost or all',
  ]],
  [{ showHiddenMetricsForVersion: "1.36" }, [
    'showHiddenMetricsForVersion: Invalid value: "1.36": must be omitted or "1.35", the previous minor version',
  ]],
  [{ detectLocalMode: "nodeCIDR" }, [
    'detectLocalMode: Invalid value: "nodeCIDR": must be ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix or ' +
    'blank (blank means ClusterCIDR); did you mean "NodeCIDR"?',
  ]],
  [{ clusterCIDR: "10.0.0.0/8,10.1.0.0/16" }, [
    'clusterCIDR: Invalid value: ["10.0.0.0/8","10.1.0.0/16"]: must be either a single CIDR or dual-stack pair of CIDRs ' +
    "(e.g. [10.100.0.0/16, fde4:8dba:82e1::/48])",
  ]],
  [{ "logging.flushFrequency": 0 }, [
    'logging.flushFrequency: Invalid value: "0s": must be greater than 0',
  ]],
  [{ "logging.vmodule": [{ filePattern: "", verbosity: 1 }, { filePattern: "a,b", verbosity: 2 ** 31 }] }, [
    'logging.vmodule[0].filePattern: Invalid value: "": must be a pattern without equal sign and comma',
    'logging.vmodule[1].filePattern: Invalid value: "a,b": must be a pattern without equal sign and comma',
    "logging.vmodule[1].verbosity: Invalid value: 2147483648: must be at most 2147483647",
  ]],
  [{ "logging.options.text.splitStream": true, "logging.options.json.infoBufferSize": "1" }, [
    "logging.options.text.splitStream: Forbidden: it needs the feature gate LoggingAlphaOptions, which is disabled",
    "logging.options.json.infoBufferSize: Forbidden: it needs the feature gate LoggingAlphaOptions, which is disabled",
  ]],
  [{ "logging.options.json.splitStream": true, "logging.options.text.infoBufferSize": "64Ki" }, [
    "logging.options.text.infoBufferSize: Forbidden: it needs the feature gate LoggingAlphaOptions, which is disabled",
    "logging.options.json.splitStream: Forbidden: it needs the feature gate LoggingAlphaOptions, which is disabled",
  ]],
  [{ "kproxy.manifests": ["a", " "] }, [
    'kproxy.manifests[1]: Invalid value: " ": must name a file or a folder',
  ]],
  [{ "kproxy.snapshot": "snapshot" }, [
    'kproxy.snapshot: Invalid value: "snapshot": must be the absolute path of a file, or blank for none',
  ]],
  [{ "kproxy.snapshot": "/var/lib/kproxy/" }, [
    'kproxy.snapshot: Invalid value: "/var/lib/kproxy/": must be the absolute path of a file, or blank for none',
  ]],
  ...["kproxy.sock", "/kproxy.sock", "/run/", "/run/../kproxy.sock", `/run/${"x".repeat(92)}`].map(
    (path): [Record<string, FieldValue>, string[]] => [{ "kproxy.socket": path }, [
      `kproxy.socket: Invalid value: "${path}": must be an absolute path below a folder, without . and .., of at most 96 ` +
      "characters, or blank",
    ]],
  ),
  [{ "kproxy.snapshotMaxAge": 59_999 }, [
    'kproxy.snapshotMaxAge: Invalid value: "59.999s": must be 0, for no limit, or at least 1m',
  ]],
  [{ "kproxy.snapshotMaxAge": -1 }, [
    'kproxy.snapshotMaxAge: Invalid value: "-1ms": must be 0, for no limit, or at least 1m',
  ]],
  [{ "kproxy.ipvsTerminationDeadline": -1000 }, [
    'kproxy.ipvsTerminationDeadline: Invalid value: "-1s": must be greater than or equal to 0',
  ]],
  [{ "kproxy.serving.tlsCertFile": "/crt" }, [
    'kproxy.serving.tlsPrivateKeyFile: Invalid value: "": must name a file, as kproxy.serving.tlsCertFile does',
  ]],
  [{ "kproxy.serving.tlsPrivateKeyFile": "/key" }, [
    'kproxy.serving.tlsCertFile: Invalid value: "": must name a file, as kproxy.serving.tlsPrivateKeyFile does',
  ]],
  [{
    "kproxy.serving.clientCAFile": "/ca",
    "kproxy.serving.bearerTokenFile": "/token",
    "kproxy.serving.healthz": true,
  }, [
    'kproxy.serving.clientCAFile: Invalid value: "/ca": needs TLS: kproxy.serving.tlsCertFile must name a file',
    'kproxy.serving.bearerTokenFile: Invalid value: "/token": needs TLS: kproxy.serving.tlsCertFile must name a file',
    "kproxy.serving.healthz: Invalid value: true: needs TLS: kproxy.serving.tlsCertFile must name a file",
  ]],
  [{
    "kproxy.serving.tlsCertFile": "/crt",
    "kproxy.serving.tlsPrivateKeyFile": "/key",
    "kproxy.serving.tlsMinVersion": "1.2",
    "kproxy.serving.bearerTokenFile": "/token",
    "kproxy.serving.delegatedAuthentication": true,
  }, [
    'kproxy.serving.tlsMinVersion: Invalid value: "1.2": must be VersionTLS12, VersionTLS13 or blank (blank means VersionTLS12)',
    "kproxy.serving.delegatedAuthentication: Invalid value: true: must be false where kproxy.serving.bearerTokenFile says which tokens count",
  ]],
  // All at once, in the order of the schema.
  [{ oomScoreAdj: 5000, "conntrack.maxPerCore": -1, configSyncPeriod: -1 }, [
    "oomScoreAdj: Invalid value: 5000: must be within the range [-1000, 1000]",
    `conntrack.maxPerCore: Invalid value: -1: ${AT_LEAST_0}`,
    'configSyncPeriod: Invalid value: "-1ms": must be greater than 0',
  ]],
];

Deno.test("what kube-proxy accepts is accepted", PURE, () => {
  for (const fields of VALID) assertEquals(problemsOf(fields), [], JSON.stringify(fields));
});

Deno.test("every rule finds what breaks it, and only that", PURE, () => {
  for (const [fields, expected] of INVALID) {
    assertEquals(problemsOf(fields), expected, JSON.stringify(fields));
  }
});
