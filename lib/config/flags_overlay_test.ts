import { assertEquals, assertThrows } from "@std/assert";
import { ConfigError } from "../errors.ts";
import { applyDefaults, defaultConfig } from "./defaults.ts";
import { FIELDS, getField } from "./fields.ts";
import { applyFlagValues, type FlagValue } from "./flags_overlay.ts";
import type { FieldValue } from "./setting.ts";

const PURE = { permissions: "none" } as const;

type Flags = Record<string, FlagValue>;

/** Fields that the flags change over the defaults (or over the file), by path. */
function changesBy(flags: Flags, file?: ReadonlyMap<string, FieldValue>): Record<string, FieldValue> {
  const before = file === undefined ? defaultConfig() : applyDefaults(file);
  const { config } = applyFlagValues(before, new Map(Object.entries(flags)), {
    fromFile: file !== undefined,
  });
  const changed = FIELDS.map(({ path }) => path).filter((path) =>
    JSON.stringify(getField(config, path)) !== JSON.stringify(getField(before, path))
  );
  return Object.fromEntries(changed.map((path) => [path, getField(config, path)]));
}

function warningsOf(flags: Flags, file?: ReadonlyMap<string, FieldValue>): readonly string[] {
  const before = file === undefined ? defaultConfig() : applyDefaults(file);
  return applyFlagValues(before, new Map(Object.entries(flags)), { fromFile: file !== undefined }).warnings;
}

function problemsOf(flags: Flags, file?: ReadonlyMap<string, FieldValue>): string {
  return assertThrows(() => warningsOf(flags, file), ConfigError).message;
}

/** Flags, and the fields that they change where there is no file. */
const WITHOUT_FILE: readonly [flags: Flags, changed: Record<string, FieldValue>][] = [
  [{}, {}],
  [{ "bind-address": "fd00::1" }, { bindAddress: "fd00::1" }],
  [{ "bind-address": "", "healthz-bind-address": "", "metrics-bind-address": "" }, {}],
  [{ "healthz-bind-address": "1.2.3.4" }, { healthzBindAddress: "1.2.3.4:10256" }],
  [{ "healthz-bind-address": "::1", "metrics-bind-address": "::1" }, {
    healthzBindAddress: "[::1]:10256",
    metricsBindAddress: "[::1]:10249",
  }],
  [{ "metrics-bind-address": "0.0.0.0:1" }, { metricsBindAddress: "0.0.0.0:1" }],
  [{ "healthz-port": 0, "metrics-port": 0 }, { healthzBindAddress: "", metricsBindAddress: "" }],
  [{ "healthz-port": 0, "healthz-bind-address": "1.2.3.4" }, { healthzBindAddress: "" }],
  [{ "healthz-port": 9, "healthz-bind-address": "1.2.3.4" }, { healthzBindAddress: "1.2.3.4:9" }],
  [{ "healthz-port": 9, "healthz-bind-address": "1.2.3.4:8" }, { healthzBindAddress: "1.2.3.4:8" }],
  [{ "healthz-port": 9, "metrics-port": 7 }, {
    healthzBindAddress: "0.0.0.0:9",
    metricsBindAddress: "127.0.0.1:7",
  }],
  [{ "iptables-sync-period": 5_000, "iptables-min-sync-period": 0 }, {
    "iptables.syncPeriod": 5_000,
    "iptables.minSyncPeriod": 0,
  }],
  [{ "proxy-mode": "nftables", "iptables-sync-period": 5_000, "masquerade-all": true }, {
    mode: "nftables",
    "nftables.syncPeriod": 5_000,
    "nftables.masqueradeAll": true,
    nodePortAddresses: ["primary"],
  }],
  [{ "proxy-mode": "nftables", "nodeport-addresses": ["10.0.0.0/8"] }, {
    mode: "nftables",
    nodePortAddresses: ["10.0.0.0/8"],
  }],
  [{ "proxy-mode": "auto", "iptables-min-sync-period": 2_000, "masquerade-all": true }, {
    mode: "auto",
    "iptables.minSyncPeriod": 2_000,
    "iptables.masqueradeAll": true,
    "nftables.minSyncPeriod": 2_000,
    "nftables.masqueradeAll": true,
  }],
  // Without a file, ipvs starts from the pause that the other modes have.
  [{ "proxy-mode": "ipvs", "ipvs-sync-period": 5_000, "masquerade-all": true }, {
    mode: "ipvs",
    "ipvs.syncPeriod": 5_000,
    "ipvs.minSyncPeriod": 1_000,
    "iptables.masqueradeAll": true,
  }],
  [{ "proxy-mode": "ipvs", "ipvs-min-sync-period": 0 }, { mode: "ipvs" }],
  // Periods of a mode that is not used are passed over.
  [{ "proxy-mode": "ipvs", "iptables-sync-period": -1 }, { mode: "ipvs", "ipvs.minSyncPeriod": 1_000 }],
  [{ "ipvs-sync-period": -1 }, {}],
  [{ "proxy-mode": "", "detect-local-mode": "", "kube-api-qps": 0, "kube-api-burst": 0 }, {}],
  [{ "hostname-override": "  Node-1 " }, { hostnameOverride: "node-1" }],
  [{ "hostname-override": "" }, {}],
  [{ "feature-gates": { AllAlpha: true } }, { featureGates: { AllAlpha: true } }],
  [{ vmodule: [{ filePattern: "a", verbosity: 1 }], v: 3 }, {
    "logging.verbosity": 3,
    "logging.vmodule": [{ filePattern: "a", verbosity: 1 }],
  }],
  [{ "conntrack-max": 300_000, "conntrack-min": 5 }, {
    "conntrack.maxPerCore": 1,
    "conntrack.min": 300_000,
  }],
  [{ "conntrack-max": 0 }, {}],
  [{ "oom-score-adj": 0, "iptables-localhost-nodeports": false, "conntrack-tcp-timeout-established": 0 }, {
    oomScoreAdj: 0,
    "iptables.localhostNodePorts": false,
    "conntrack.tcpEstablishedTimeout": 0,
  }],
  [{ manifests: ["a", "b"] }, {
    "kproxy.manifests": ["a", "b"],
  }],
  // Flags that set no field.
  [{ config: "", cleanup: true, master: "https://x", "write-config-to": "/y", "no-such-flag": 1 }, {}],
];

Deno.test("flags without a file", PURE, () => {
  for (const [flags, changed] of WITHOUT_FILE) assertEquals(changesBy(flags), changed, JSON.stringify(flags));
});

Deno.test("every field that has a flag is set by it", PURE, () => {
  const byMode = /^(ipvs\.(minS|s)yncPeriod|portRange)$/;
  for (const { path, kind, flag, values } of FIELDS) {
    if (flag === undefined || byMode.test(path)) continue;
    const other: Partial<Record<typeof kind, FlagValue>> = {
      string: values?.at(-1) ?? "1.2.3.0/24",
      bool: path !== "iptables.localhostNodePorts" && path !== "kproxy.statusApi",
      int: 7,
      level: 7,
      float: 7,
      duration: 7_000,
      nanoseconds: 7_000,
      quantity: "64Ki",
      list: ["10.0.0.0/8"],
      paths: ["10.0.0.0/8"],
      gates: { AllBeta: true },
      vmodule: [{ filePattern: "x", verbosity: 1 }],
    };
    const special: Record<string, FlagValue> = {
      bindAddress: "1.2.3.4",
      healthzBindAddress: "1.2.3.4:5",
      metricsBindAddress: "1.2.3.4:5",
      mode: "userspace",
      detectLocalMode: "NodeCIDR",
      showHiddenMetricsForVersion: "1.35",
      "kproxy.snapshot": "/s",
      "kproxy.socket": "/run/s",
      "kproxy.snapshotMaxAge": 70_000,
    };
    const value = special[path] ?? other[kind] ?? "";
    const needed: Flags = path.startsWith("logging.options")
      ? { "feature-gates": { LoggingAlphaOptions: true } }
      : {};
    const { [path]: found } = changesBy({ ...needed, [flag]: value });
    assertEquals(found, value as FieldValue, path);
  }
});

Deno.test("beside a file only few flags count, and the others are reported", PURE, () => {
  const file = new Map<string, FieldValue>([
    ["mode", "nftables"],
    ["hostnameOverride", "of-file"],
    ["logging.verbosity", 1],
    ["logging.vmodule", [{ filePattern: "file", verbosity: 1 }]],
  ]);
  const flags: Flags = {
    "hostname-override": "Of-Flag",
    v: 5,
    vmodule: [{ filePattern: "flag", verbosity: 2 }],
    manifests: ["/m"],
    "proxy-mode": "ipvs",
    "healthz-port": 0,
    kubeconfig: "/k",
    "conntrack-max": 5,
    master: "https://x",
  };
  assertEquals(changesBy(flags, file), {
    hostnameOverride: "of-flag",
    "logging.verbosity": 5,
    "logging.vmodule": [{ filePattern: "flag", verbosity: 2 }, { filePattern: "file", verbosity: 1 }],
    "kproxy.manifests": ["/m"],
  });
  assertEquals(
    warningsOf(flags, file),
    ["proxy-mode", "healthz-port", "kubeconfig", "conntrack-max"].map((flag) =>
      `--${flag}: ignored because --config is given`
    ),
  );
  // A file's ipvs keeps its own pause.
  assertEquals(changesBy({}, new Map([["mode", "ipvs"]])), {});
});

Deno.test("all problems come at once, by the names of the flags", PURE, () => {
  const flags: Flags = {
    "healthz-bind-address": "localhost:80",
    "nodeport-addresses": ["10.0.0.0/8", "x"],
    "feature-gates": { NFTablesProxyMode: false },
    "hostname-override": "   ",
    "iptables-min-sync-period": 60_000,
    "conntrack-max": -1,
    "oom-score-adj": 5000,
  };
  assertEquals(
    problemsOf(flags),
    [
      "--hostname-override: empty hostname-override is invalid",
      "--feature-gates: cannot set feature gate NFTablesProxyMode to false, feature is locked to true",
      '--healthz-bind-address: Invalid value: "localhost": must be a valid IP',
      '--nodeport-addresses: Invalid value: "x": must be a valid CIDR, primary, localhost or all',
      "--oom-score-adj: Invalid value: 5000: must be within the range [-1000, 1000]",
      "--conntrack-max: Invalid value: -1: must be greater than or equal to 0",
      '--iptables-sync-period: Invalid value: "30s": must be greater than or equal to --iptables-min-sync-period, which is "1m0s"',
    ].join("\n"),
  );
  assertEquals(
    problemsOf({ "proxy-mode": "nftables", "iptables-sync-period": 0 }).split("\n")[0],
    '--iptables-sync-period: Invalid value: "0s": must be greater than 0',
  );
  assertEquals(
    problemsOf({ "logging-format": "xml" }, new Map()),
    '--logging-format: Invalid value: "xml": must be text, json or blank (blank means text)',
  );
});

Deno.test("a flag that is missing is named as one, a field that is missing in a file as that", PURE, () => {
  const cases: [Flags, string][] = [
    [{ "detect-local-mode": "BridgeInterface" }, "pod-bridge-interface"],
    [{ "detect-local-mode": "BridgeInterface", "pod-bridge-interface": "" }, "pod-bridge-interface"],
    [{ "detect-local-mode": "InterfaceNamePrefix" }, "pod-interface-name-prefix"],
  ];
  for (const [flags, missing] of cases) {
    assertEquals(problemsOf(flags), `--${missing}: Invalid value: "": must not be empty`);
  }
  const file = new Map<string, FieldValue>([["detectLocalMode", "BridgeInterface"]]);
  assertEquals(problemsOf({}, file), 'detectLocal.bridgeInterface: Invalid value: "": must not be empty');
  const short = { "proxy-mode": "nftables", "iptables-sync-period": 500 };
  assertEquals(
    problemsOf(short),
    '--iptables-sync-period: Invalid value: "500ms": must be greater than or equal to nftables.minSyncPeriod, which is "1s"',
  );
});

Deno.test("flags without effect are reported", PURE, () => {
  assertEquals(warningsOf({ "proxy-mode": "ipvs", "iptables-sync-period": 1 }), [
    "--iptables-sync-period: has no effect in this proxy mode",
  ]);
  assertEquals(warningsOf({ "feature-gates": { Bogus: true } }), [
    "--feature-gates: feature gate Bogus has no effect in kproxy",
  ]);
});

Deno.test("the configuration that flags are laid over stays as it is", PURE, () => {
  const before = defaultConfig();
  applyFlagValues(before, new Map<string, FlagValue>([["v", 3], ["proxy-mode", "nftables"]]));
  assertEquals(before, defaultConfig());
});
