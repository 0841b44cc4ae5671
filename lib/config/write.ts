/**
 * Writes a configuration as kube-proxy does: complete, with the keys in alphabetical order at every level.
 *
 * @module
 */
import { stringify } from "@std/yaml";
import { configInApiOrder, type Plain } from "./api_object.ts";
import type { KubeProxyConfiguration } from "./types.ts";
import { yamlScalar } from "./yaml_scalar.ts";

/**
 * The configuration as it stands in a file: durations are Go's text, keys are sorted, and what kube-proxy's strict
 * reading would refuse (`kproxy`) is there only as far as it differs from its default.
 */
export function configToObject(config: KubeProxyConfiguration): Record<string, Plain> {
  return sorted(configInApiOrder(config)) as Record<string, Plain>;
}

/** A writer of YAML, such as `stringify` of `@std/yaml`. */
export type YamlWriter = (value: unknown, options: typeof YAML_STYLE) => string;

const YAML_STYLE = { lineWidth: -1, arrayIndent: false, useAnchors: false } as const;
/** Stands for a key or a value; no writer has to quote it, and one that does all the same changes nothing. */
const PLACE = /(["']?)t(\d+)t\1/g;

/**
 * The configuration as YAML that {@linkcode parseConfig} and kube-proxy (but for `kproxy`) read back.
 *
 * Which texts are quoted and how is decided here: writers differ in it, and the text of a file must not change with the
 * writer. `write` yields the structure.
 */
export function writeConfigYaml(config: KubeProxyConfiguration, write: YamlWriter = stringify): string {
  const scalars: string[] = [];
  const text = write(withPlaces(configToObject(config), scalars), YAML_STYLE);
  return text.replace(PLACE, (_place, _quote, index: string) => scalars[Number(index)] ?? "");
}

/** A copy with a place instead of each key, text and number; `scalars` takes what belongs there. */
function withPlaces(value: Plain, scalars: string[]): Plain {
  const place = (scalar: string): string => `t${scalars.push(scalar) - 1}t`;
  if (typeof value === "string") return place(yamlScalar(value));
  if (typeof value === "number") return place(String(value));
  if (Array.isArray(value)) return value.map((item) => withPlaces(item, scalars));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, inner]) => [place(yamlScalar(name)), withPlaces(inner, scalars)]),
  );
}

/** The configuration as indented JSON. */
export function writeConfigJson(config: KubeProxyConfiguration): string {
  return `${JSON.stringify(configToObject(config), null, 2)}\n`;
}

/**
 * Settings that only flags can make, so that a written file would not bring them back: one sentence each.
 */
export function unwritableSettings(config: KubeProxyConfiguration): string[] {
  const sentences: string[] = [];
  for (const path of ["healthzBindAddress", "metricsBindAddress"] as const) {
    if (config[path] === "") {
      sentences.push(`${path}: a file cannot switch the server off, blank means the default`);
    }
  }
  for (const section of ["iptables", "nftables"] as const) {
    if (config[section].minSyncPeriod === 0) {
      sentences.push(`${section}.minSyncPeriod: a file cannot hold 0s, it means the default of 1s`);
    }
  }
  return sentences;
}

function sorted(value: Plain): Plain {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).sort(([a], [b]) => a < b ? -1 : 1).map(([name, inner]) => [name, sorted(inner)]),
  );
}
