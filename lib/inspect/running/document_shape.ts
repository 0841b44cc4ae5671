/**
 * Whether an answer has the shape that it says it has: whoever answers may be anybody.
 *
 * @module
 */

/** What a value must be: of a type, a list or a record of such values, an object with such fields, or null instead. */
export type Shape =
  | "text"
  | "number"
  | "flag"
  | { readonly list: Shape }
  | { readonly record: Shape }
  | { readonly orNull: Shape }
  | { readonly optional: Shape }
  | { readonly fields: Readonly<Record<string, Shape>> };

/** The path of the first place that is not so, e.g. `families.IPv4.services`; null if there is none. Further fields are no fault. */
export function shapeProblem(value: unknown, shape: Shape, path = ""): string | null {
  if (typeof shape === "string") return isOfType(value, shape) ? null : path;
  if ("orNull" in shape) return value === null ? null : shapeProblem(value, shape.orNull, path);
  if ("optional" in shape) return value === undefined ? null : shapeProblem(value, shape.optional, path);
  if ("list" in shape) {
    return Array.isArray(value) ? firstProblem(value.entries(), () => shape.list, path) : path;
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) return path;
  if ("record" in shape) return firstProblem(Object.entries(value), () => shape.record, path);
  const fields = Object.entries(shape.fields).map(([name]) =>
    [name, (value as Readonly<Record<string, unknown>>)[name]] as const
  );
  return firstProblem(fields, (name) => shape.fields[name] ?? "text", path);
}

function firstProblem<Key extends string | number>(
  entries: Iterable<readonly [Key, unknown]>,
  shapeOf: (key: Key) => Shape,
  path: string,
): string | null {
  for (const [key, value] of entries) {
    const problem = shapeProblem(value, shapeOf(key), path === "" ? String(key) : `${path}.${key}`);
    if (problem !== null) return problem;
  }
  return null;
}

function isOfType(value: unknown, type: "text" | "number" | "flag"): boolean {
  if (type === "text") return typeof value === "string";
  return type === "number" ? typeof value === "number" && Number.isFinite(value) : typeof value === "boolean";
}

const COUNTS: Shape = { record: "number" };
const TEXTS: Shape = { list: "text" };

const SYNC: Shape = {
  fields: {
    time: "text",
    kind: "text",
    durationMs: "number",
    phasesMs: COUNTS,
    changed: "number",
    services: TEXTS,
    written: COUNTS,
    commands: "number",
    bytes: "number",
  },
};

const FAMILY: Shape = {
  fields: {
    services: "number",
    endpoints: "number",
    rules: COUNTS,
    syncs: { fields: { full: "number", partial: "number", failed: "number" } },
    lastSync: { orNull: SYNC },
    lastFullSync: { orNull: SYNC },
    lastFailure: { orNull: { fields: { time: "text", kind: "text", durationMs: "number", error: "text" } } },
    latency: {
      fields: {
        count: "number",
        p50Ms: { orNull: "number" },
        p99Ms: { orNull: "number" },
        maxMs: { orNull: "number" },
      },
    },
    recent: {
      list: {
        fields: {
          timeMs: "number",
          durationMs: "number",
          kind: "text",
          ok: "flag",
          changed: "number",
          latencyMs: { orNull: "number" },
        },
      },
    },
  },
};

const READINESS: Shape = {
  fields: {
    ready: "flag",
    reasons: TEXTS,
    currentTime: "text",
    families: { record: { fields: { firstSyncDone: "flag", waitingSeconds: "number" } } },
    unserved: { optional: { record: { fields: { reason: "text", use: { optional: "text" } } } } },
    watches: {
      record: {
        fields: {
          ageSeconds: { optional: "number" },
          lastHeard: { optional: "text" },
          problem: { optional: "text" },
        },
      },
    },
    snapshot: {
      optional: {
        fields: { time: "text", ageSeconds: "number", kinds: TEXTS, served: "flag", expired: "flag" },
      },
    },
  },
};

/** Of `StatusDocument`. */
export const STATUS_SHAPE: Shape = {
  fields: {
    time: "text",
    program: {
      fields: {
        version: "text",
        emulationVersion: "text",
        denoVersion: "text",
        pid: "number",
        started: "text",
        uptimeSeconds: "number",
        servingSince: "text",
        memory: {
          fields: { resident: "number", heapUsed: "number", heapTotal: "number", external: "number" },
        },
      },
    },
    node: { fields: { name: "text", eligible: "flag" } },
    mode: { fields: { used: "text", configured: "text", fallback: { orNull: "text" } } },
    readiness: READINESS,
    healthy: "flag",
    families: { record: FAMILY },
    source: {
      fields: {
        name: "text",
        refused: {
          fields: {
            count: "number",
            objects: { list: { fields: { where: "text", object: "text", message: "text" } } },
          },
        },
      },
    },
    quarantine: {
      fields: {
        count: "number",
        services: { list: { fields: { family: "text", service: "text", problem: "text", since: "text" } } },
      },
    },
    unserved: {
      optional: {
        fields: {
          count: "number",
          destinations: { list: { fields: { service: "text", destination: "text", reason: "text" } } },
        },
      },
    },
    drift: {
      fields: {
        found: "number",
        repaired: "number",
        recent: { list: { fields: { family: "text", time: "text", damaged: TEXTS, outcome: "text" } } },
      },
    },
    otherProxyTables: TEXTS,
    refusedSettings: { list: { fields: { name: "text", reason: "text" } } },
    configReload: { orNull: { fields: { failures: "number", inForce: "flag", lastSuccess: "text" } } },
    problems: {
      fields: {
        total: "number",
        recent: {
          list: {
            fields: {
              severity: "text",
              message: "text",
              values: "text",
              first: "text",
              last: "text",
              count: "number",
            },
          },
        },
      },
    },
    listening: { fields: { healthz: TEXTS, metrics: TEXTS } },
  },
};

/** Of `PortalsDocument`. */
export const PORTALS_SHAPE: Shape = {
  fields: {
    mode: "text",
    portals: {
      list: {
        fields: {
          family: "text",
          servicePort: "text",
          protocol: "text",
          policy: "text",
          address: "text",
          port: "number",
          endpoints: TEXTS,
          affinitySeconds: "number",
        },
      },
    },
    iptables: { record: { fields: { dnat: "flag", physdev: "flag", firewall: "flag" } } },
  },
};

/** Of `ConfigDocument`; the configuration itself is checked as a file is. */
export const CONFIG_SHAPE: Shape = {
  fields: { node: "text", mode: "text", families: TEXTS, master: "text", config: { fields: {} } },
};
