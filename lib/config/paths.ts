/**
 * Reads and writes a configuration by the paths of its fields.
 *
 * @module
 */
import { FIELDS } from "./fields.ts";
import type { FieldValue } from "./schema.ts";
import type { KubeProxyConfiguration } from "./types.ts";

type Section = { [name: string]: Section | FieldValue };

/** A configuration in which every field has the value that `valueOf` gives for its path. */
export function buildConfig(valueOf: (path: string) => FieldValue): KubeProxyConfiguration {
  const root: Section = {};
  for (const { path } of FIELDS) {
    const names = path.split(".");
    const last = names.pop() ?? path;
    let section = root;
    for (const name of names) section = (section[name] ??= {}) as Section;
    section[last] = valueOf(path);
  }
  // The table of fields and the type are held equal by a test.
  return root as unknown as KubeProxyConfiguration;
}

/** The value of a field. */
export function getField(config: KubeProxyConfiguration, path: string): FieldValue {
  let value: unknown = config;
  for (const name of path.split(".")) value = (value as Section)[name];
  return value as FieldValue;
}

/** A configuration that differs in the given fields; the original stays as it is. */
export function withFields(
  config: KubeProxyConfiguration,
  changes: ReadonlyMap<string, FieldValue>,
): KubeProxyConfiguration {
  return buildConfig((path) => {
    const changed = changes.get(path);
    return structuredClone(changed === undefined ? getField(config, path) : changed);
  });
}
