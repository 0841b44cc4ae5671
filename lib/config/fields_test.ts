/**
 * Every field of the configuration's type, held against the table of fields, its defaults, its decoding and its writing.
 */
import { assert, assertEquals, assertNotEquals, assertThrows } from "@std/assert";
import { ConfigError } from "../errors.ts";
import { defaultConfig } from "./defaults.ts";
import { changedFields, fieldOf, FIELDS, getField, withFields } from "./fields.ts";
import { parseConfig } from "./parse.ts";
import type { KindName } from "./kinds.ts";
import type { FieldValue } from "./setting.ts";
import { CONFIG_API_VERSION, CONFIG_KIND, type KubeProxyConfiguration } from "./types.ts";
import { configToObject } from "./write.ts";

/** Environment variables that npm's `yaml` reads. */
const YAML_ENV = { permissions: { env: ["LOG_TOKENS", "LOG_STREAM"] } };

/** A valid value for every field, none of them its default. The compiler refuses to leave one out. */
const OTHER: KubeProxyConfiguration = {
  featureGates: { LoggingAlphaOptions: true },
  clientConnection: { kubeconfig: "/k", acceptContentTypes: "a/b", contentType: "c/d", qps: -1, burst: 7 },
  logging: {
    format: "json",
    flushFrequency: 1_500,
    verbosity: 2,
    vmodule: [{ filePattern: "a*", verbosity: 3 }],
    options: {
      text: { splitStream: true, infoBufferSize: "64Ki" },
      json: { splitStream: true, infoBufferSize: "1M" },
    },
  },
  hostnameOverride: "node-1",
  bindAddress: "192.0.2.1",
  healthzBindAddress: "192.0.2.2:1",
  metricsBindAddress: "[fd00::1]:65535",
  bindAddressHardFail: true,
  enableProfiling: true,
  showHiddenMetricsForVersion: "1.35",
  mode: "ipvs",
  iptables: {
    masqueradeBit: 0,
    masqueradeAll: true,
    localhostNodePorts: false,
    snatNodeInternalIP: true,
    syncPeriod: 10_000,
    minSyncPeriod: 2_000,
  },
  ipvs: {
    syncPeriod: 20_000,
    minSyncPeriod: 3_000,
    scheduler: "sh",
    excludeCIDRs: ["192.0.2.0/24"],
    strictARP: true,
    tcpTimeout: 1,
    tcpFinTimeout: 0.5,
    udpTimeout: 3,
  },
  nftables: { masqueradeBit: 31, masqueradeAll: true, syncPeriod: 40_000, minSyncPeriod: 4_000 },
  winkernel: {
    networkName: "n",
    sourceVip: "10.0.0.1",
    enableDSR: true,
    rootHnsEndpointName: "r",
    forwardHealthCheckVip: true,
  },
  detectLocalMode: "BridgeInterface",
  detectLocal: { bridgeInterface: "br0", interfaceNamePrefix: "veth" },
  clusterCIDR: "10.0.0.0/8,fd00::/64",
  nodePortAddresses: ["127.0.0.0/8"],
  oomScoreAdj: 0,
  conntrack: {
    maxPerCore: 0,
    min: 0,
    tcpEstablishedTimeout: 0,
    tcpCloseWaitTimeout: 0,
    tcpBeLiberal: true,
    udpTimeout: 30_000,
    udpStreamTimeout: 180_000,
  },
  configSyncPeriod: 60_000,
  udpIdleTimeout: 500,
  portRange: "1-2",
  windowsRunAsService: true,
  kproxy: {
    manifests: ["/m"],
    proxyModeFallback: true,
    userspaceListen: ["127.0.0.1"],
    snapshot: "/var/lib/kproxy/snapshot",
    snapshotMaxAge: 3_600_000,
    ipvsTerminationDeadline: 60_000,
    externalIPPolicy: {
      externalIPs: [],
      loadBalancerIPs: ["203.0.113.0/24", "fd00:5::/64"],
      nodeAddresses: true,
    },
    trafficCounters: true,
    socket: "/run/other/kproxy.sock",
    statusApi: false,
    statusPage: true,
    serving: {
      tlsCertFile: "/tls.crt",
      tlsPrivateKeyFile: "/tls.key",
      tlsMinVersion: "VersionTLS13",
      clientCAFile: "/ca.crt",
      bearerTokenFile: "/token",
      delegatedAuthentication: true,
      healthz: true,
    },
  },
};

/** Paths of a value's leaves: lists, and maps whose keys the user chooses, count as leaves. */
function leafPaths(value: unknown, path = ""): string[] {
  const isSection = typeof value === "object" && value !== null && !Array.isArray(value);
  if (!isSection || path === "featureGates") return [path];
  return Object.entries(value).flatMap(([name, inner]) =>
    leafPaths(inner, path === "" ? name : `${path}.${name}`)
  );
}

/** A file that says one thing (as JSON, which is YAML). */
function fileWith(path: string, value: unknown): string {
  const inner = path.split(".").reverse().reduce<unknown>((nested, name) => ({ [name]: nested }), value);
  return JSON.stringify({ apiVersion: CONFIG_API_VERSION, kind: CONFIG_KIND, ...inner as object });
}

function problemsOf(text: string): readonly { path: string; message: string }[] {
  return assertThrows(() => parseConfig(text), ConfigError).problems;
}

Deno.test("the table holds exactly the fields of the type", { permissions: "none" }, () => {
  assertEquals(FIELDS.map(({ path }) => path).sort(), leafPaths(OTHER).sort());
  assertEquals(new Set(FIELDS.map(({ path }) => path)).size, FIELDS.length);
});

Deno.test("the default of every field is the table's", { permissions: "none" }, () => {
  const config = defaultConfig();
  for (const { path, default: expected } of FIELDS) assertEquals(getField(config, path), expected, path);
  assertEquals(leafPaths(config).sort(), leafPaths(OTHER).sort());
});

Deno.test("every field of a file arrives, and the rest keeps its default", YAML_ENV, () => {
  for (const { path } of FIELDS) {
    const value = getField(OTHER, path);
    assertNotEquals(value, fieldOf(path)?.default, path);
    // What the field needs to be valid, beside itself.
    const companions = new Map<string, FieldValue>();
    if (path.startsWith("logging.options")) companions.set("featureGates", OTHER.featureGates);
    if (path === "detectLocalMode") companions.set("detectLocal.bridgeInterface", "br0");
    if (path.startsWith("kproxy.serving.")) {
      companions.set("kproxy.serving.tlsCertFile", "/crt").set("kproxy.serving.tlsPrivateKeyFile", "/key");
    }
    const wanted = withFields(withFields(defaultConfig(), companions), new Map([[path, value]]));
    const { config } = parseConfig(JSON.stringify(configToObject(wanted)));
    assertEquals(config, wanted, path);
  }
});

Deno.test("null stands for the default in every field", YAML_ENV, () => {
  for (const { path } of FIELDS) {
    assertEquals(parseConfig(fileWith(path, null)).config, defaultConfig(), path);
  }
});

Deno.test("zero or blank is the default where the API has no pointer, and counts elsewhere", YAML_ENV, () => {
  const zeroOf: Partial<Record<KindName, unknown>> = {
    string: "",
    ip: "",
    address: "",
    paths: [],
    bool: false,
    int: 0,
    level: 0,
    float: 0,
    duration: "0s",
    nanoseconds: 0,
    list: [],
  };
  const unset = new Set([
    "clientConnection.contentType",
    "clientConnection.qps",
    "clientConnection.burst",
    "logging.format",
    "logging.flushFrequency",
    "bindAddress",
    "healthzBindAddress",
    "metricsBindAddress",
    "mode",
    "iptables.syncPeriod",
    "iptables.minSyncPeriod",
    "ipvs.syncPeriod",
    "nftables.syncPeriod",
    "nftables.minSyncPeriod",
    "detectLocalMode",
    "configSyncPeriod",
    "kproxy.serving.tlsMinVersion",
  ]);
  for (const { path, kind, default: defaultValue } of FIELDS) {
    const zero = zeroOf[kind];
    if (zero === undefined) continue;
    const { config } = parseConfig(fileWith(path, zero));
    const expected = unset.has(path) ? defaultValue : zero === "0s" ? 0 : zero;
    assertEquals(getField(config, path), expected as FieldValue, path);
  }
});

Deno.test("a value of the wrong type is refused in every field, with its path", YAML_ENV, () => {
  const wrongFor: Record<Exclude<KindName, "version">, unknown[]> = {
    string: [1, true, ["x"], {}],
    ip: [1, true, ["x"], {}],
    address: [1, true, ["x"], {}],
    paths: ["a", 1, {}, [1], [null], [["a"]]],
    bool: ["x", 1, [], {}],
    int: ["1", 1.5, true, [], 2 ** 31, -(2 ** 31) - 1],
    level: ["1", 1.5, true, [], -1, 2 ** 32],
    float: ["1", true, [], 1e39],
    duration: [10, "10", "", "x", true, [], {}],
    nanoseconds: [1.5, "10", "", true, []],
    quantity: [true, [], "", "x", "1 Ki"],
    list: ["a", 1, {}, [1], [null], [["a"]]],
    gates: [1, ["A"], { A: "true" }, { A: 1 }, "A"],
    vmodule: ["a=1", {}, [1], [{ filePattern: 1 }], [{ verbosity: -1 }], [{ x: 1 }]],
  };
  for (const { path, kind } of FIELDS) {
    for (const wrong of wrongFor[kind as keyof typeof wrongFor]) {
      const [problem] = problemsOf(fileWith(path, wrong));
      assert(problem?.path.startsWith(path), `${path} ${JSON.stringify(wrong)}: ${JSON.stringify(problem)}`);
    }
  }
});

Deno.test(
  "a misspelt or wrong-case name is refused in every section, and the right one is named",
  YAML_ENV,
  () => {
    for (const { path } of FIELDS) {
      const name = path.slice(path.lastIndexOf(".") + 1);
      const upper = path.replace(/[^.]*$/, name.toUpperCase());
      const [wrongCase] = problemsOf(fileWith(upper, null));
      const caseHint = `unknown field: names are case-sensitive, did you mean "${name}"?`;
      assertEquals(wrongCase, { path: upper, message: caseHint, line: 1 } as typeof wrongCase);
      const misspelt = `${path}x`;
      assertEquals(problemsOf(fileWith(misspelt, null))[0]?.path, misspelt);
    }
  },
);

function pathsChanged(from: KubeProxyConfiguration, to: KubeProxyConfiguration): string[] {
  return changedFields(from, to).map(({ path }) => path);
}

Deno.test("the fields that differ are named by their paths", { permissions: "none" }, () => {
  const from = defaultConfig();
  const to = structuredClone(from);
  assertEquals(pathsChanged(from, to), []);
  to.iptables.masqueradeAll = true;
  to.nodePortAddresses = ["primary"];
  to.kproxy.manifests = ["/etc/objects"];
  assertEquals(pathsChanged(from, to).sort(), [
    "iptables.masqueradeAll",
    "kproxy.manifests",
    "nodePortAddresses",
  ]);
});

Deno.test("the order in which feature gates are written changes nothing", { permissions: "none" }, () => {
  const from = { ...defaultConfig(), featureGates: { A: true, B: false } };
  assertEquals(pathsChanged(from, { ...from, featureGates: { B: false, A: true } }), []);
  assertEquals(pathsChanged(from, { ...from, featureGates: { A: true, B: true } }), ["featureGates"]);
});

Deno.test("only the verbosity changes under a running proxy", { permissions: "none" }, () => {
  assertEquals(FIELDS.filter(({ live }) => live).map(({ path }) => path), ["logging.verbosity"]);
});
