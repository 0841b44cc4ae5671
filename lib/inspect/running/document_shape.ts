/**
 * Whether an answer has the shape that it says it has: any program may be the one that answers.
 *
 * @module
 */
import { isRecord } from "../../text/record.ts";

/** What a value must be: of a type, a list of such values (`["text"]`), an object with such fields, or as the functions below say. */
export type Shape =
  | "text"
  | "number"
  | "flag"
  | readonly [Shape]
  | { readonly [field: string]: Shape }
  | ShapeOf;

class ShapeOf {
  constructor(readonly kind: "record" | "orNull" | "optional", readonly shape: Shape) {}
}

const record = (shape: Shape): Shape => new ShapeOf("record", shape);
const orNull = (shape: Shape): Shape => new ShapeOf("orNull", shape);
const optional = (shape: Shape): Shape => new ShapeOf("optional", shape);

/** The path of the first place that is not so, e.g. `families.IPv4.services`; null if there is none. Further fields are no fault. */
export function shapeProblem(value: unknown, shape: Shape, path = ""): string | null {
  if (typeof shape === "string") return isOfType(value, shape) ? null : path;
  if (shape instanceof ShapeOf && shape.kind !== "record") {
    const isNone = shape.kind === "orNull" ? value === null : value === undefined;
    return isNone ? null : shapeProblem(value, shape.shape, path);
  }
  if (isList(shape)) {
    return Array.isArray(value) ? firstProblem(value.map((one, at) => [at, one, shape[0]]), path) : path;
  }
  if (!isRecord(value)) return path;
  const fields = shape instanceof ShapeOf
    ? Object.entries(value).map(([name, one]) => [name, one, shape.shape] as const)
    : Object.entries(shape).map(([name, one]) => [name, value[name], one] as const);
  return firstProblem(fields, path);
}

function isList(shape: Exclude<Shape, string>): shape is readonly [Shape] {
  return Array.isArray(shape);
}

function firstProblem(
  entries: readonly (readonly [key: string | number, value: unknown, shape: Shape])[],
  path: string,
): string | null {
  for (const [key, value, shape] of entries) {
    const problem = shapeProblem(value, shape, path === "" ? String(key) : `${path}.${key}`);
    if (problem !== null) return problem;
  }
  return null;
}

function isOfType(value: unknown, type: "text" | "number" | "flag"): boolean {
  if (type === "text") return typeof value === "string";
  return type === "number" ? typeof value === "number" && Number.isFinite(value) : typeof value === "boolean";
}

const COUNTS = record("number");
const TEXTS: Shape = ["text"];

const SYNC: Shape = {
  time: "text",
  kind: "text",
  durationMs: "number",
  phasesMs: COUNTS,
  changed: "number",
  services: TEXTS,
  written: COUNTS,
  commands: "number",
  bytes: "number",
};

const FAMILY: Shape = {
  services: "number",
  endpoints: "number",
  rules: COUNTS,
  syncs: { full: "number", partial: "number", failed: "number" },
  lastSync: orNull(SYNC),
  lastFullSync: orNull(SYNC),
  lastFailure: orNull({ time: "text", kind: "text", durationMs: "number", error: "text" }),
  latency: { count: "number", p50Ms: orNull("number"), p99Ms: orNull("number"), maxMs: orNull("number") },
  recent: [{
    timeMs: "number",
    durationMs: "number",
    kind: "text",
    ok: "flag",
    changed: "number",
    latencyMs: orNull("number"),
  }],
};

const READINESS: Shape = {
  ready: "flag",
  reasons: TEXTS,
  currentTime: "text",
  families: record({ firstSyncDone: "flag", waitingSeconds: "number" }),
  unserved: optional(record({ reason: "text", use: optional("text") })),
  watches: record({ ageSeconds: optional("number"), lastHeard: optional("text"), problem: optional("text") }),
  snapshot: optional({ time: "text", ageSeconds: "number", kinds: TEXTS, served: "flag", expired: "flag" }),
};

/** Of `StatusDocument`. */
export const STATUS_SHAPE: Shape = {
  time: "text",
  program: {
    version: "text",
    emulationVersion: "text",
    denoVersion: "text",
    pid: "number",
    started: "text",
    uptimeSeconds: "number",
    servingSince: "text",
    memory: { resident: "number", heapUsed: "number", heapTotal: "number", external: "number" },
  },
  node: { name: "text", eligible: "flag" },
  mode: { used: "text", configured: "text", fallback: orNull("text") },
  readiness: READINESS,
  healthy: "flag",
  families: record(FAMILY),
  source: {
    name: "text",
    refused: { count: "number", objects: [{ where: "text", object: "text", message: "text" }] },
  },
  quarantine: {
    count: "number",
    services: [{ family: "text", service: "text", problem: "text", since: "text" }],
  },
  unserved: optional({
    count: "number",
    destinations: [{ service: "text", destination: "text", reason: "text" }],
  }),
  drift: {
    found: "number",
    repaired: "number",
    recent: [{ family: "text", time: "text", damaged: TEXTS, outcome: "text" }],
  },
  otherProxyTables: TEXTS,
  refusedSettings: [{ name: "text", reason: "text" }],
  configReload: orNull({ failures: "number", inForce: "flag", lastSuccess: "text" }),
  problems: {
    total: "number",
    recent: [{
      severity: "text",
      message: "text",
      values: "text",
      first: "text",
      last: "text",
      count: "number",
    }],
  },
  listening: { healthz: TEXTS, metrics: TEXTS },
};

/** Of `PortalsDocument`. */
export const PORTALS_SHAPE: Shape = {
  mode: "text",
  portals: [{
    family: "text",
    servicePort: "text",
    protocol: "text",
    policy: "text",
    address: "text",
    port: "number",
    endpoints: TEXTS,
    affinitySeconds: "number",
  }],
  iptables: record({ dnat: "flag", physdev: "flag", firewall: "flag" }),
};

/** Of `ConfigDocument`; the configuration itself is checked as a file is. */
export const CONFIG_SHAPE: Shape = {
  node: "text",
  mode: "text",
  families: TEXTS,
  master: "text",
  config: {},
};
