import { assert, assertEquals, assertThrows } from "@std/assert";
import { ConfigError } from "../errors.ts";
import { defaultConfig } from "./defaults.ts";
import { parseConfig } from "./parse.ts";
import { getField } from "./fields.ts";

/** Environment variables that npm's `yaml` reads. */
const YAML_ENV = { permissions: { env: ["LOG_TOKENS", "LOG_STREAM"] } };
const HEAD = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";

function valueAt(text: string, path: string): unknown {
  return getField(parseConfig(HEAD + text).config, path);
}

function messagesOf(text: string, lenient = false): string {
  return assertThrows(() => parseConfig(text, { file: "f", lenient }), ConfigError).message;
}

Deno.test("values are read as kube-proxy reads them", YAML_ENV, () => {
  const cases: [string, string, unknown][] = [
    ["configSyncPeriod: 1.5h", "configSyncPeriod", 5_400_000],
    ['configSyncPeriod: "0"', "configSyncPeriod", 900_000],
    ["logging: {flushFrequency: 3000000000}", "logging.flushFrequency", 3_000],
    ["logging: {flushFrequency: 2s}", "logging.flushFrequency", 2_000],
    ["logging: {options: {text: {infoBufferSize: 0}}}", "logging.options.text.infoBufferSize", "0"],
    ["clientConnection: {qps: -1}", "clientConnection.qps", -1],
    ["nodePortAddresses: []", "nodePortAddresses", []],
    ["nodePortAddresses:", "nodePortAddresses", null],
    ["mode: nftables", "nodePortAddresses", ["primary"]],
    ["{mode: nftables, nodePortAddresses: []}".slice(1, -1).replace(", ", "\n"), "nodePortAddresses", [
      "primary",
    ]],
    ["mode: nftables\nnodePortAddresses: [all]", "nodePortAddresses", ["all"]],
    ["mode: ipvs", "nodePortAddresses", null],
    ["bindAddress: fd00::1", "healthzBindAddress", "[::]:10256"],
    ["bindAddress: fd00::1", "metricsBindAddress", "[::1]:10249"],
    ["bindAddress: 010.0.0.1", "bindAddress", "010.0.0.1"],
    ["bindAddress: 010.0.0.1", "metricsBindAddress", "127.0.0.1:10249"],
    ["bindAddress: '::ffff:10.0.0.1'", "healthzBindAddress", "0.0.0.0:10256"],
    ["healthzBindAddress: 1.2.3.4", "healthzBindAddress", "1.2.3.4:10256"],
    ["healthzBindAddress: 1.2.3.4:80", "healthzBindAddress", "1.2.3.4:80"],
    ["metricsBindAddress: fd00::1", "metricsBindAddress", "[fd00::1]:10249"],
    ["bindAddressHardFail: yes", "bindAddressHardFail", true],
    ["bindAddressHardFail: Off", "bindAddressHardFail", false],
    ["iptables: {minSyncPeriod: 0s}", "iptables.minSyncPeriod", 1_000],
    ["ipvs: {minSyncPeriod: 0s}", "ipvs.minSyncPeriod", 0],
    ["iptables: {masqueradeBit: 14.0}", "iptables.masqueradeBit", 14],
    ["iptables: {masqueradeBit: 0x1f}", "iptables.masqueradeBit", 31],
    ["conntrack: {min: 1_000}", "conntrack.min", 1_000],
    ["iptables: &p {syncPeriod: 5s}\nnftables: *p", "nftables.syncPeriod", 5_000],
    ["iptables: &p {syncPeriod: 5s}\nnftables:\n  <<: *p\n  minSyncPeriod: 2s", "nftables.syncPeriod", 5_000],
    ["iptables: &p {syncPeriod: 5s}\nnftables:\n  <<: *p\n  syncPeriod: 7s", "nftables.syncPeriod", 7_000],
    ["featureGates: 'AllAlpha=true, WatchListClient=False'", "featureGates", {
      AllAlpha: true,
      WatchListClient: false,
    }],
    ["featureGates: ''", "featureGates", {}],
    ["clusterCIDR: foo\ndetectLocalMode: NodeCIDR", "clusterCIDR", "foo"],
    ["ipvs: {excludeCIDRs: [nonsense]}", "ipvs.excludeCIDRs", ["nonsense"]],
    ["mode: userspace", "mode", "userspace"],
    ["mode: auto", "mode", "auto"],
    ["hostnameOverride: 2001-01-01", "hostnameOverride", "2001-01-01"],
    ["hostnameOverride: 3:20", "hostnameOverride", "3:20"],
  ];
  for (const [text, path, expected] of cases) assertEquals(valueAt(text, path), expected, text);
});

Deno.test("JSON says the same as YAML", YAML_ENV, () => {
  const json = '{"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",\n' +
    '\t"mode": "ipvs", "conntrack": {"min": 0, "udpTimeout": "30s"}, "nodePortAddresses": ["10.0.0.0/8"]}';
  const yaml = "mode: ipvs\nconntrack: {min: 0, udpTimeout: 30s}\nnodePortAddresses: [10.0.0.0/8]\n";
  assertEquals(parseConfig(json), parseConfig(HEAD + yaml));
});

Deno.test("a byte order mark, comments and a document start are no content", YAML_ENV, () => {
  assertEquals(parseConfig(`\uFEFF# comment\n---\n${HEAD}`), { config: defaultConfig(), warnings: [] });
});

Deno.test("only the first document counts, and the second is reported", YAML_ENV, () => {
  const text = `${HEAD}mode: ipvs\n---\nmode: nftables\nbogus: 1\n`;
  const { config, warnings } = parseConfig(text, { file: "f" });
  assertEquals(config.mode, "ipvs");
  assertEquals(warnings, ["f:4: only the first document is used, this one is ignored"]);
});

Deno.test("lenient reading passes over what strict reading refuses, and says so", YAML_ENV, () => {
  const text = `${HEAD}bogus: 1\nMode: ipvs\nconntrack: {min: 1}\nconntrack: {maxPerCore: 2}\n` +
    "ipvs: {scheduler: rr, scheduler: wrr, schedular: lc}\n";
  assertEquals(
    messagesOf(text),
    [
      "f:3: bogus: unknown field",
      'f:4: Mode: unknown field: names are case-sensitive, did you mean "mode"?',
      "f:6: conntrack: the field is given twice, first on line 5",
      'f:7: ipvs.schedular: unknown field, did you mean "scheduler"?',
      "f:7: ipvs.scheduler: the field is given twice, first on line 7",
    ].join("\n"),
  );
  const { config, warnings } = parseConfig(text, { file: "f", lenient: true });
  assertEquals(warnings, messagesOf(text).split("\n").map((line) => `${line} (ignored)`));
  // The last of two wins, and no wrong name counts.
  assertEquals([config.mode, config.ipvs.scheduler], ["iptables", "wrr"]);
  assertEquals([config.conntrack.min, config.conntrack.maxPerCore], [131_072, 2]);
});

Deno.test("lenient reading still refuses wrong types, values and syntax", YAML_ENV, () => {
  assertEquals(
    messagesOf(`${HEAD}bogus: 1\nconfigSyncPeriod: 10\noomScoreAdj: 5000\n`, true),
    'f:4: configSyncPeriod: wanted a duration such as "30s" or "1h30m", found the number 10: it needs a unit, as in "10s"\n' +
      "f:5: oomScoreAdj: Invalid value: 5000: must be within the range [-1000, 1000]",
  );
  assertEquals(
    messagesOf("kind: KubeProxyConfiguration\n", true),
    "f:1: apiVersion: missing, wanted kubeproxy.config.k8s.io/v1alpha1",
  );
});

Deno.test("an obsolete field warns once and is never unknown", YAML_ENV, () => {
  const cases: [string, string | undefined][] = [
    ["udpIdleTimeout: 500ms", "udpIdleTimeout: it has no effect: only mode userspace"],
    ["udpTimeoutMilliseconds: 250ms", "udpTimeoutMilliseconds: obsolete field without effect"],
    ["resourceContainer: /kube-proxy", "resourceContainer: obsolete field without effect"],
    ["portRange: 30000-32767", "portRange: it has no effect: only mode userspace"],
    ["conntrack: {max: 500000}", "conntrack.max: obsolete field, read as conntrack.maxPerCore: 1 and"],
    [
      "clientConnection: {kubeConfigFile: /k}",
      "clientConnection.kubeConfigFile: obsolete name, use clientConnection.kubeconfig",
    ],
    // Values that ask for nothing, so that nothing is lost.
    ["resourceContainer: ''", undefined],
    ["udpIdleTimeout:", undefined],
    ["udpIdleTimeout: 250ms", undefined],
    ["mode: userspace\nudpIdleTimeout: 1s\nportRange: 30000-32767", undefined],
    ["portRange: ''", undefined],
    ["conntrack: {max: null}", undefined],
    ["conntrack: {max: 0}", undefined],
  ];
  for (const [text, expected] of cases) {
    const { warnings } = parseConfig(HEAD + text);
    assertEquals(warnings.length, expected === undefined ? 0 : 1, text);
    if (expected !== undefined) assert(warnings[0]?.startsWith(`3: ${expected}`), warnings[0]);
  }
});

Deno.test("obsolete fields that can still mean something do", YAML_ENV, () => {
  // Wins wherever it stands, as it did.
  const text = "conntrack: {maxPerCore: 5, max: 500000, min: 6}";
  assertEquals(valueAt(text, "conntrack.min"), 500_000);
  assertEquals(valueAt(text, "conntrack.maxPerCore"), 1);
  assertEquals(valueAt("clientConnection: {kubeConfigFile: /old}", "clientConnection.kubeconfig"), "/old");
  for (const both of ["kubeconfig: /new, kubeConfigFile: /old", "kubeConfigFile: /old, kubeconfig: /new"]) {
    assertEquals(valueAt(`clientConnection: {${both}}`, "clientConnection.kubeconfig"), "/new");
  }
});

Deno.test("what has no effect is reported with its line", YAML_ENV, () => {
  const text = "logging: {options: {json: {splitStream: true}}}\niptables: {snatNodeInternalIP: true}\n" +
    "featureGates:\n  TopologyAwareHints: false\n  Bogus: true\n";
  const { config, warnings } = parseConfig(HEAD + text, { file: "f" });
  assertEquals(warnings, [
    "f:3: logging.options.json.splitStream: ignored: the feature gate LoggingAlphaOptions is disabled",
    "f:4: iptables.snatNodeInternalIP: not supported: it has no effect",
    "f:6: featureGates.TopologyAwareHints: feature gate TopologyAwareHints can no longer be switched off; it has no effect",
    "f:7: featureGates.Bogus: feature gate Bogus has no effect in kproxy",
  ]);
  assertEquals(config.logging.options.json.splitStream, false);
});

Deno.test("a rule is not broken by a field that could not be read", YAML_ENV, () => {
  const text = "detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: 7}\n" +
    "iptables: {syncPeriod: 2, minSyncPeriod: 50s}\nlogging: {format: json}\nfeatureGates: {LoggingBetaOptions: 'no'}\n";
  assertEquals(messagesOf(HEAD + text).split("\n").map((line) => line.split(": ")[1]), [
    "detectLocal.bridgeInterface",
    "iptables.syncPeriod",
    "featureGates.LoggingBetaOptions",
  ]);
});

Deno.test("a structure beyond all bounds is refused with its line", YAML_ENV, () => {
  assertEquals(messagesOf(`${HEAD}mode: ${"[".repeat(100_000)}`), "f:3: nested more than 200 levels deep");
  const bomb = Array.from({ length: 30 }, (_, level) => {
    const value = level === 0 ? "{x: 1}" : `{<<: [${`*a${level - 1}, `.repeat(10)}]}`;
    return `a${level}: &a${level} ${value}\n`;
  });
  assertEquals(messagesOf(HEAD + bomb.join("")), "f:9: stands for more than 1000000 values");
});

Deno.test("odd documents are refused, not followed", YAML_ENV, () => {
  const loop = "iptables: &a\n  syncPeriod: *a\n";
  assertEquals(
    messagesOf(HEAD + loop),
    "f:4: *a stands inside of what it stands for",
  );
  const selfMerge = "iptables: &a\n  <<: *a\n  masqueradeAll: true\n";
  assertEquals(messagesOf(HEAD + selfMerge), "f:4: *a stands inside of what it stands for");
  assertEquals(messagesOf(`${HEAD}mode: *nowhere\n`).startsWith("f:3:"), true);
  assertEquals(messagesOf(`${HEAD}? [a]\n: 1\n`).startsWith("f:3:"), true);
  assertEquals(messagesOf(`${HEAD}__proto__: {a: 1}\nconstructor: 1\n`).split("\n").length, 2);
  const { config } = parseConfig(`${HEAD}featureGates: {__proto__: true}\n`);
  assertEquals(Object.keys(config.featureGates), ["__proto__"]);
});
