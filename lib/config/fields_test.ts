/**
 * Every field of the configuration, held against what its kind says.
 */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { ConfigError } from "../errors.ts";
import { defaultConfig } from "./defaults.ts";
import { changedFields, FIELDS, getField } from "./fields.ts";
import { parseConfig } from "./parse.ts";
import type { KindName } from "./kinds.ts";
import type { FieldValue } from "./setting.ts";
import { CONFIG_API_VERSION, CONFIG_KIND, type KubeProxyConfiguration } from "./types.ts";

/** Environment variables that npm's `yaml` reads. */
const YAML_ENV = { permissions: { env: ["LOG_TOKENS", "LOG_STREAM"] } };

/** A file that says one thing (as JSON, which is YAML). */
function fileWith(path: string, value: unknown): string {
  const inner = path.split(".").reverse().reduce<unknown>((nested, name) => ({ [name]: nested }), value);
  return JSON.stringify({ apiVersion: CONFIG_API_VERSION, kind: CONFIG_KIND, ...inner as object });
}

function problemsOf(text: string): readonly { path: string; message: string }[] {
  return assertThrows(() => parseConfig(text), ConfigError).problems;
}

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
