/**
 * A configuration as an object of the API. Apart from writing it as text, so that who only serves it loads no writer of YAML.
 *
 * @module
 */
import { formatDuration } from "./duration.ts";
import { FIELDS } from "./fields.ts";
import { getField } from "./paths.ts";
import type { FieldSpec, FieldValue } from "./schema.ts";
import { CONFIG_API_VERSION, CONFIG_KIND, type KubeProxyConfiguration } from "./types.ts";

/** What JSON can hold. */
export type Plain = string | number | boolean | null | Plain[] | { [name: string]: Plain };

/**
 * The configuration as it stands in a file, its keys in the order of the API type, as Kubernetes' encoder leaves them:
 * durations are Go's text, and what kube-proxy's strict reading would refuse (`kproxy`) is there only as far as it differs
 * from its default.
 */
export function configInApiOrder(config: KubeProxyConfiguration): Record<string, Plain> {
  const root: { [name: string]: Plain } = { kind: CONFIG_KIND, apiVersion: CONFIG_API_VERSION };
  for (const spec of FIELDS) {
    const value = getField(config, spec.path);
    if (spec.omitDefault && isSame(value, spec.default)) continue;
    const names = spec.path.split(".");
    const last = names.pop() ?? spec.path;
    let section = root;
    for (const name of names) section = (section[name] ??= {}) as { [name: string]: Plain };
    section[last] = writtenValue(spec, value);
  }
  return root;
}

function writtenValue(spec: FieldSpec, value: FieldValue): Plain {
  const isDuration = spec.kind === "duration" || spec.kind === "durationOrNanoseconds";
  return isDuration && typeof value === "number" ? formatDuration(value) : value as Plain;
}

function isSame(a: FieldValue, b: FieldValue): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}
