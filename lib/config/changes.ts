/**
 * What differs between two configurations, and what that takes.
 *
 * @module
 */
import { FIELDS } from "./fields.ts";
import { getField } from "./paths.ts";
import type { KubeProxyConfiguration } from "./types.ts";

/** Fields that can change under a running proxy. */
const LIVE_FIELDS: ReadonlySet<string> = new Set(["logging.verbosity"]);

/** Paths of the fields that differ, in the order of the API type. */
export function changedFields(from: KubeProxyConfiguration, to: KubeProxyConfiguration): string[] {
  return FIELDS.map(({ path }) => path).filter((path) =>
    fieldText(getField(from, path)) !== fieldText(getField(to, path))
  );
}

/** True if a change of these fields needs the proxy's loops and servers to start anew. */
export function needsRestart(fields: readonly string[]): boolean {
  return fields.some((path) => !LIVE_FIELDS.has(path));
}

/** Maps are the same in whatever order their entries were written. */
function fieldText(value: unknown): string {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return JSON.stringify(value);
  return JSON.stringify(Object.entries(value).sort(([a], [b]) => a < b ? -1 : 1));
}
