/**
 * Whether an answer has the shape that it says it has: any program may be the one that answers.
 *
 * @module
 */
import { isRecord } from "../../text/record.ts";

/** What a value must be: of a type, an object with such fields, or made of such values. */
export type Shape =
  | "text"
  | "number"
  | "flag"
  | readonly [kind: "list" | "record" | "orNull" | "optional", of: Shape]
  | { readonly [field: string]: Shape };

/** The path of the first place that is not so, e.g. `families.IPv4.services`; null if there is none. Further fields are no fault. */
export function shapeProblem(value: unknown, shape: Shape, path = ""): string | null {
  if (typeof shape === "string") return isOfType(value, shape) ? null : path;
  const [kind, of] = isMade(shape) ? shape : ["fields", shape] as const;
  if (kind === "orNull" || kind === "optional") {
    return value === (kind === "orNull" ? null : undefined) ? null : shapeProblem(value, of, path);
  }
  if (kind === "list" ? !Array.isArray(value) : !isRecord(value)) return path;
  const record = value as Record<string, unknown>;
  for (const field of Object.keys(kind === "fields" ? shape : record)) {
    const wanted = kind === "fields" ? (of as Record<string, Shape>)[field] : of;
    const at = path === "" ? field : `${path}.${field}`;
    const problem = shapeProblem(record[field], wanted ?? {}, at);
    if (problem !== null) return problem;
  }
  return null;
}

function isMade(shape: Exclude<Shape, string>): shape is Extract<Shape, readonly unknown[]> {
  return Array.isArray(shape);
}

function isOfType(value: unknown, type: "text" | "number" | "flag"): boolean {
  if (type === "text") return typeof value === "string";
  return type === "number" ? typeof value === "number" && Number.isFinite(value) : typeof value === "boolean";
}

const COUNTS: Shape = ["record", "number"];
const TEXTS: Shape = ["list", "text"];

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
  lastSync: ["orNull", SYNC],
  lastFullSync: ["orNull", SYNC],
  lastFailure: ["orNull", { time: "text", kind: "text", durationMs: "number", error: "text" }],
  latency: {
    count: "number",
    p50Ms: ["orNull", "number"],
    p99Ms: ["orNull", "number"],
    maxMs: ["orNull", "number"],
  },
  recent: ["list", {
    timeMs: "number",
    durationMs: "number",
    kind: "text",
    ok: "flag",
    changed: "number",
    latencyMs: ["orNull", "number"],
  }],
};

const READINESS: Shape = {
  ready: "flag",
  reasons: TEXTS,
  currentTime: "text",
  families: ["record", { firstSyncDone: "flag", waitingSeconds: "number" }],
  unserved: ["optional", ["record", { reason: "text", use: ["optional", "text"] }]],
  watches: ["record", {
    ageSeconds: ["optional", "number"],
    lastHeard: ["optional", "text"],
    problem: ["optional", "text"],
  }],
  snapshot: ["optional", {
    time: "text",
    ageSeconds: "number",
    kinds: TEXTS,
    served: "flag",
    expired: "flag",
  }],
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
  mode: { used: "text", configured: "text", fallback: ["orNull", "text"] },
  readiness: READINESS,
  healthy: "flag",
  families: ["record", FAMILY],
  source: {
    name: "text",
    refused: { count: "number", objects: ["list", { where: "text", object: "text", message: "text" }] },
  },
  quarantine: {
    count: "number",
    services: ["list", { family: "text", service: "text", problem: "text", since: "text" }],
  },
  unserved: ["optional", {
    count: "number",
    destinations: ["list", { service: "text", destination: "text", reason: "text" }],
  }],
  drift: {
    found: "number",
    repaired: "number",
    recent: ["list", { family: "text", time: "text", damaged: TEXTS, outcome: "text" }],
  },
  otherProxyTables: TEXTS,
  refusedSettings: ["list", { name: "text", reason: "text" }],
  configReload: ["orNull", { failures: "number", inForce: "flag", lastSuccess: "text" }],
  problems: {
    total: "number",
    recent: ["list", {
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
  portals: ["list", {
    family: "text",
    servicePort: "text",
    protocol: "text",
    policy: "text",
    address: "text",
    port: "number",
    endpoints: TEXTS,
    affinitySeconds: "number",
  }],
  iptables: ["record", { dnat: "flag", physdev: "flag", firewall: "flag" }],
};

/** Of `ConfigDocument`; the configuration itself is checked as a file is. */
export const CONFIG_SHAPE: Shape = {
  node: "text",
  mode: "text",
  families: TEXTS,
  master: "text",
  config: {},
};
