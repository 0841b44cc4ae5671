/**
 * Writes a configuration as kube-proxy does: complete, with the keys in alphabetical order at every level.
 *
 * @module
 */
import { formatDuration } from "./value_texts.ts";
import { getField, treeOf } from "./fields.ts";
import { CONFIG_API_VERSION, CONFIG_KIND, type KubeProxyConfiguration } from "./types.ts";

/** A value of JSON. */
export type Plain = string | number | boolean | null | Plain[] | { [name: string]: Plain };

/**
 * The configuration as an object of the API, its keys in the order of the API type, as Kubernetes' encoder leaves them: durations are
 * Go's text, and what kube-proxy's strict reading would refuse (`kproxy`) is there only as far as it differs from its default.
 */
export function configInApiOrder(config: KubeProxyConfiguration): Record<string, Plain> {
  const fields = treeOf<Plain>(({ path, kind, omitDefault, default: usual }) => {
    const value = getField(config, path);
    if (omitDefault && JSON.stringify(value) === JSON.stringify(usual)) return undefined;
    const isDuration = kind === "duration" || kind === "nanoseconds";
    return isDuration ? formatDuration(Number(value)) : value as Plain;
  });
  return { kind: CONFIG_KIND, apiVersion: CONFIG_API_VERSION, ...fields as Record<string, Plain> };
}

/** The configuration with its keys sorted, as kube-proxy writes a file. */
export function configToObject(config: KubeProxyConfiguration): Record<string, Plain> {
  return sorted(configInApiOrder(config)) as Record<string, Plain>;
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
