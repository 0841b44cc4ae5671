import { assertEquals, assertStringIncludes } from "@std/assert";
import fc from "../../tests/support/fast_check.ts";
import { applyDefaults, defaultConfig } from "./defaults.ts";
import { type Field, FIELDS, getField, withFields } from "./fields.ts";
import { parseConfig } from "./parse.ts";
import type { FieldValue } from "./setting.ts";
import { findProblems } from "./validate.ts";
import { configToObject, unwritableSettings, writeConfigJson } from "./write.ts";
import { writeConfigYaml } from "./write_yaml.ts";

/** Environment variables that npm's `yaml` reads. */
const YAML_ENV = { permissions: { env: ["LOG_TOKENS", "LOG_STREAM"] } };

const text = fc.oneof(
  fc.string(),
  fc.constantFrom(
    "",
    "yes",
    "on",
    "y",
    "NO",
    "~",
    "null",
    "0",
    "1.10",
    "1_000",
    "0x1f",
    "3:20",
    "2001-01-01",
    "a: b",
    "# x",
    "*a",
    "<<",
  ),
);
const CIDRS = fc.constantFrom("10.0.0.0/8", "192.0.2.1/32", "fd00::/64", "::/0");
const durationMs = fc.oneof(
  fc.integer({ min: 1, max: 10 ** 9 }),
  fc.constantFrom(0.5, 1.25, 86_400_000, 1_000_000_000),
);

/** Valid values where the rules are strict, any of the type elsewhere. */
function valueOf({ path, kind, values }: Field): fc.Arbitrary<FieldValue> {
  const special: Record<string, fc.Arbitrary<FieldValue>> = {
    bindAddress: fc.constantFrom("0.0.0.0", "010.0.0.1", "fd00::1", "::"),
    healthzBindAddress: fc.constantFrom("1.2.3.4:80", "[::]:1"),
    metricsBindAddress: fc.constantFrom("1.2.3.4:80", "[fd00::1]:1"),
    showHiddenMetricsForVersion: fc.constantFrom("", "1.35"),
    clusterCIDR: fc.constantFrom("", "10.0.0.0/8", "fd00::/64,10.0.0.0/8"),
    "logging.options.text.infoBufferSize": fc.constantFrom("0", "64Ki", "1e3"),
    "logging.options.json.infoBufferSize": fc.constantFrom("0", "5M"),
    "logging.format": fc.constant("text"),
    "detectLocal.bridgeInterface": fc.constantFrom("br0", "on"),
    "detectLocal.interfaceNamePrefix": fc.constantFrom("veth", "1"),
    "kproxy.manifests": fc.array(fc.constantFrom("a", "-", "yes", "/b c")),
    "kproxy.snapshot": fc.constantFrom("", "/s", "/var/lib/a b"),
    "kproxy.snapshotMaxAge": fc.constantFrom(0, 60_000, 604_800_000),
    "kproxy.userspaceListen": fc.constantFrom([], ["127.0.0.1"], ["::1", "127.0.0.0/8"]),
    featureGates: fc.constantFrom({ LoggingAlphaOptions: true }, {
      LoggingAlphaOptions: true,
      Zed: false,
      Abc: true,
    }),
    "logging.vmodule": fc.array(
      fc.record({ filePattern: fc.constantFrom("a", "b*", "on"), verbosity: fc.nat() }),
    ),
  };
  const chosen = special[path];
  if (chosen !== undefined) return chosen;
  if (values !== undefined) return fc.constantFrom(...values);
  switch (kind) {
    case "bool":
      return fc.boolean();
    case "int":
    case "level":
      return fc.integer({ min: 0, max: 31 });
    case "float":
      return fc.constantFrom(-1, 5, 0.5, 12.25);
    case "duration":
    case "nanoseconds":
      return path.endsWith(".minSyncPeriod") ? fc.constantFrom(1, 1_000) : durationMs;
    case "list":
    case "paths":
      return fc.oneof(fc.constant(null), fc.array(CIDRS));
    default:
      return text;
  }
}

const anyFields: fc.Arbitrary<ReadonlyMap<string, FieldValue>> = fc.record(
  Object.fromEntries(FIELDS.map((spec) => [spec.path, fc.option(valueOf(spec), { nil: null })])),
).map((fields) => new Map(Object.entries(fields)));

Deno.test("any valid configuration loads back equal from YAML and from JSON", YAML_ENV, () => {
  const configs = anyFields.map((fields) =>
    applyDefaults(new Map<string, FieldValue>([...fields, ["featureGates", { LoggingAlphaOptions: true }]]))
  );
  fc.assert(
    fc.property(configs.filter((config) => findProblems(config).length === 0), (config) => {
      assertEquals(parseConfig(writeConfigYaml(config)).config, config);
      assertEquals(parseConfig(writeConfigJson(config)).config, config);
    }),
    { numRuns: 60 },
  );
});

Deno.test("keys are in alphabetical order at every level", YAML_ENV, () => {
  const check = (value: unknown): void => {
    if (typeof value !== "object" || value === null) return;
    if (!Array.isArray(value)) assertEquals(Object.keys(value), Object.keys(value).toSorted());
    Object.values(value).forEach(check);
  };
  const gates: FieldValue = { Zed: true, Abc: false };
  const config = withFields(
    defaultConfig(),
    new Map<string, FieldValue>([["featureGates", gates], ["kproxy.manifests", ["x"]]]),
  );
  check(configToObject(config));
  assertEquals(Object.keys(configToObject(config).featureGates as object), ["Abc", "Zed"]);
});

Deno.test("what kube-proxy would refuse is written only if it was set", YAML_ENV, () => {
  assertEquals("kproxy" in configToObject(defaultConfig()), false);
  const config = withFields(defaultConfig(), new Map([["kproxy.snapshot", "/var/snapshot"]]));
  assertEquals(configToObject(config).kproxy, { snapshot: "/var/snapshot" });
});

Deno.test("lists stand under their names", YAML_ENV, () => {
  const written = writeConfigYaml(
    withFields(
      defaultConfig(),
      new Map<string, FieldValue>([
        ["nodePortAddresses", ["::/0", "primary"]],
        ["ipvs.excludeCIDRs", []],
        ["logging.vmodule", [{ filePattern: "b*", verbosity: 2 }]],
      ]),
    ),
  );
  for (
    const lines of [
      "nodePortAddresses:\n- ::/0\n- primary\n",
      "  excludeCIDRs: []\n",
      "  vmodule:\n  - filePattern: b*\n    verbosity: 2\n",
    ]
  ) assertStringIncludes(written, lines);
});

Deno.test("what a file cannot hold is reported", YAML_ENV, () => {
  assertEquals(unwritableSettings(defaultConfig()), []);
  const flagged = withFields(
    defaultConfig(),
    new Map<string, FieldValue>([["healthzBindAddress", ""], ["iptables.minSyncPeriod", 0]]),
  );
  assertEquals(unwritableSettings(flagged).map((sentence) => sentence.split(":")[0]), [
    "healthzBindAddress",
    "iptables.minSyncPeriod",
  ]);
  for (const path of ["healthzBindAddress", "iptables.minSyncPeriod"]) {
    const back = parseConfig(writeConfigYaml(flagged)).config;
    assertEquals(getField(back, path), getField(defaultConfig(), path));
  }
});
