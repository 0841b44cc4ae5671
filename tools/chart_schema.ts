/**
 * Schema of the Helm chart's `config`: every field of `KubeProxyConfiguration`, from the table that kproxy itself uses.
 *
 * @module
 */
import { type Field, FIELDS } from "../lib/config/fields.ts";
import { KINDS } from "../lib/config/kinds.ts";
import { OBSOLETE_FIELDS } from "../lib/config/schema.ts";

/** File of the chart's schema. */
export const CHART_SCHEMA_FILE = "deploy/helm/kproxy/values.schema.json";

/** A JSON schema; `false` allows nothing, `true` anything. */
export type JsonSchema = boolean | { [key: string]: unknown };

/** Fields that are set by other values of the chart, or by the chart itself. */
const SET_ELSEWHERE: readonly string[] = [
  ...["apiVersion", "kind", "mode", "clusterCIDR", "metricsBindAddress", "detectLocalMode", "detectLocal"],
  "clientConnection.kubeconfig",
];
/** Fields with the schema of another value, which is stricter than their kind. */
const REFERRED: Readonly<Record<string, string>> = {
  healthzBindAddress: "#/properties/metricsBindAddress",
};
interface Branch {
  type: readonly string[];
  additionalProperties: false;
  properties: Record<string, unknown>;
}

/** The schema of the chart's value `config`. */
export function configSchema(): JsonSchema {
  const root = branch(["object"]);
  for (const spec of FIELDS) put(root, spec.path, typeOf(spec));
  // kproxy accepts these with a warning about their replacement.
  for (const { path } of OBSOLETE_FIELDS) put(root, path, true);
  for (const path of SET_ELSEWHERE) put(root, path, false);
  for (const [path, $ref] of Object.entries(REFERRED)) put(root, path, { $ref });
  return { ...root };
}

/** The chart's schema with its part `config` replaced. */
export function replaceConfigSchema(text: string): string {
  const schema = JSON.parse(text) as { properties: Record<string, unknown> };
  if (!("config" in schema.properties)) throw new SyntaxError(`Cannot find "config" in ${CHART_SCHEMA_FILE}`);
  schema.properties["config"] = configSchema();
  return `${JSON.stringify(schema, null, 2)}\n`;
}

function branch(type: readonly string[]): Branch {
  return { type, additionalProperties: false, properties: {} };
}

function put(root: Branch, path: string, schema: JsonSchema): void {
  const names = path.split(".");
  const last = names.pop() ?? "";
  const section = names.reduce<Branch>(
    (at, name) => (at.properties[name] ??= branch(["object", "null"])) as Branch,
    root,
  );
  section.properties[last] = schema;
}

function typeOf({ kind, values }: Field): JsonSchema {
  return values === undefined ? KINDS[kind].schema : { enum: ["", ...values, null] };
}
