/**
 * The fields of the schema by their paths, and configurations by these.
 *
 * @module
 */
import { OBSOLETE_FIELDS, SCHEMA } from "./schema.ts";
import { type FieldValue, type Setting, UNLESS_DEFAULT } from "./setting.ts";
import type { KubeProxyConfiguration } from "./types.ts";

/** An entry of the schema with its place. */
export interface Field extends Setting {
  /** Path in the file, e.g. `conntrack.maxPerCore`. */
  readonly path: string;
}

type Section = { [name: string]: Section | FieldValue };

/** Every field, in the order of the API type, kproxy's own last. */
export const FIELDS: readonly Field[] = flattened(SCHEMA, "");

const BY_PATH: ReadonlyMap<string, Field> = new Map(FIELDS.map((field) => [field.path, field]));

/** The entry of a path, or undefined if there is no such field. */
export function fieldOf(path: string): Field | undefined {
  return BY_PATH.get(path);
}

/** The fields of earlier versions. */
export const OBSOLETE: ReadonlyMap<string, typeof OBSOLETE_FIELDS[number]> = new Map(
  OBSOLETE_FIELDS.map((field) => [field.path, field]),
);

function flattened(part: object, section: string): Field[] {
  return Object.entries(part).flatMap(([name, inner]) => {
    const path = joinPath(section, name);
    if (!("kind" in inner)) return flattened(inner, path);
    // kube-proxy's strict reading would refuse this section.
    return [{ path, ...inner as Setting, ...path.startsWith("kproxy.") ? UNLESS_DEFAULT : {} }];
  });
}

/** The path of a name in a section; `""` is the top level. */
export function joinPath(section: string, name: string): string {
  return section === "" ? name : `${section}.${name}`;
}

/** A tree in which the fields have these values; those for which `valueOf` gives undefined are not in it. */
export function treeOf<Value>(valueOf: (field: Field) => Value | undefined): { [name: string]: unknown } {
  type Tree = { [name: string]: Tree | Value };
  const root: Tree = {};
  for (const field of FIELDS) {
    const value = valueOf(field);
    if (value === undefined) continue;
    const names = field.path.split(".");
    const last = names.pop() ?? "";
    const section = names.reduce<Tree>((at, name) => (at[name] ??= {}) as Tree, root);
    section[last] = value;
  }
  return root;
}

/** A configuration in which every field has the value that `valueOf` gives for it. */
export function buildConfig(valueOf: (field: Field) => FieldValue): KubeProxyConfiguration {
  return treeOf((field) => structuredClone(valueOf(field))) as unknown as KubeProxyConfiguration;
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
  return buildConfig(({ path }) => {
    const changed = changes.get(path);
    return changed === undefined ? getField(config, path) : changed;
  });
}

/** The fields that differ, in the order of the API type. */
export function changedFields(from: KubeProxyConfiguration, to: KubeProxyConfiguration): readonly Field[] {
  return FIELDS.filter(({ path }) => valueText(getField(from, path)) !== valueText(getField(to, path)));
}

/** Text to compare values by: maps are the same in whatever order their entries were written. */
function valueText(value: FieldValue): string {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return JSON.stringify(value);
  return JSON.stringify(Object.entries(value).sort(([a], [b]) => a < b ? -1 : 1));
}
