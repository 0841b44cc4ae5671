/**
 * The status documents, as they are made and as other commands check them. Fields may be added; what is there keeps its name and
 * meaning as long as the version of the path and of `apiVersion` stays.
 *
 * Times are RFC 3339, or milliseconds since the epoch where a name ends in `Ms` and says so; durations are in milliseconds
 * (`…Ms`) or seconds (`…Seconds`).
 *
 * @module
 */
import type { IpFamily, NamespacedName } from "../../model/objects.ts";
import { NODE_PORTALS } from "../../model/portals.ts";
import type { ResourceKind } from "../../source/source.ts";
import {
  ANYTHING,
  FLAG,
  list,
  NUMBER,
  object,
  optional,
  orNull,
  record,
  type Shaped,
  text,
} from "../../text/shape.ts";

/** The version of every document of kproxy's own. */
export const API_VERSION = "kproxy/v1";

/** Paths of the documents. */
export const STATUS_PATH = "/kproxy/v1/status";
export const CONFIG_PATH = "/kproxy/v1/config";
export const OBJECTS_PATH = "/kproxy/v1/objects";
export const PORTALS_PATH = "/kproxy/v1/portals";
/** Takes what a command has done to the node, for the log. */
export const AUDIT_PATH = "/kproxy/v1/audit";

const TEXT = text();
const TEXTS = list(TEXT);
const FAMILY = text<IpFamily>();
const SERVICE = text<NamespacedName>();
const SYNC_KIND = text<"full" | "partial">();
/** Counts by table or kind. */
const COUNTS = record(NUMBER);

const SYNC = object({
  /** When it ended. */
  time: TEXT,
  kind: SYNC_KIND,
  durationMs: NUMBER,
  /** Milliseconds spent per phase (`read`, `plan`, `apply`), in order. */
  phasesMs: COUNTS,
  /** Number of Services that it looked at. */
  changed: NUMBER,
  /** Some of these Services; none of a full sync. */
  services: list(SERVICE),
  /** Rules, elements or servers written, per table or kind. */
  written: COUNTS,
  commands: NUMBER,
  bytes: NUMBER,
});

/** A sync that succeeded. */
export type SyncStatus = Shaped<typeof SYNC>;

const FAILURE = object({ time: TEXT, kind: SYNC_KIND, durationMs: NUMBER, error: TEXT });

/** A sync that failed. */
export type FailureStatus = Shaped<typeof FAILURE>;

const LATENCY = object({
  count: NUMBER,
  p50Ms: orNull(NUMBER),
  p99Ms: orNull(NUMBER),
  maxMs: orNull(NUMBER),
});

/** From a change of endpoints in the cluster to its rules, over the last changes; null where there were none. */
export type LatencyStatus = Shaped<typeof LATENCY>;

const POINT = object({
  /** When it ended, in milliseconds since the epoch. */
  timeMs: NUMBER,
  durationMs: NUMBER,
  kind: SYNC_KIND,
  ok: FLAG,
  /** Number of Services that it looked at. */
  changed: NUMBER,
  /** Some of these Services; none of a full sync. This and the next two are absent in older releases. */
  services: optional(list(SERVICE)),
  /** Rules, elements or servers written, per table or kind. */
  written: optional(COUNTS),
  /** Why it failed. */
  error: optional(TEXT),
  /** Time since the oldest change of endpoints that it put into force; null if their time is unknown. */
  latencyMs: orNull(NUMBER),
});

/** A sync as one of many: for plots, and for the list of changes. */
export type SyncPoint = Shaped<typeof POINT>;

const FAMILY_STATUS = object({
  /** Number of Services, as of the last sync. */
  services: NUMBER,
  /** Endpoints of all Service ports, ready or not, as of the last sync. */
  endpoints: NUMBER,
  /** Rules, elements or servers in force, per table or kind. */
  rules: COUNTS,
  syncs: object({ full: NUMBER, partial: NUMBER, failed: NUMBER }),
  /** Null before the first sync. */
  lastSync: orNull(SYNC),
  lastFullSync: orNull(SYNC),
  lastFailure: orNull(FAILURE),
  latency: LATENCY,
  /** The last syncs, oldest first. */
  recent: list(POINT),
});

/** Status of one IP family. */
export type FamilyStatus = Shaped<typeof FAMILY_STATUS>;

const FAMILY_READINESS = object({
  firstSyncDone: FLAG,
  /** How long a sync has been waiting; 0 if none is. */
  waitingSeconds: NUMBER,
  lastApply: optional(
    object({ succeeded: FLAG, time: TEXT, ageSeconds: NUMBER, error: optional(TEXT) }),
  ),
});

/** One family in {@linkcode Readiness}. */
export type FamilyReadiness = Shaped<typeof FAMILY_READINESS>;

const WATCH_READINESS = object({
  ageSeconds: optional(NUMBER),
  lastHeard: optional(TEXT),
  /** Why the kind's origin cannot be asked now. */
  problem: optional(TEXT),
});

/** One kind of objects in {@linkcode Readiness}. */
export type WatchReadiness = Shaped<typeof WATCH_READINESS>;

const SNAPSHOT_READINESS = object({
  time: TEXT,
  ageSeconds: NUMBER,
  kinds: list(text<ResourceKind>()),
  served: FLAG,
  expired: FLAG,
});

/** The snapshot in {@linkcode Readiness}. */
export type SnapshotReadiness = Shaped<typeof SNAPSHOT_READINESS>;

const READINESS = object({
  ready: FLAG,
  /** Reasons why it is not ready. */
  reasons: TEXTS,
  currentTime: TEXT,
  /** Readiness by family. */
  families: record(FAMILY_READINESS),
  /** Families that the node cannot have. */
  unserved: optional(record(object({ reason: TEXT, use: optional(TEXT) }))),
  /** Watches by kind; empty if the source has no connection that could be silent. */
  watches: record(WATCH_READINESS),
  /** Present if a snapshot stands in for kinds that were not listed yet. */
  snapshot: optional(SNAPSHOT_READINESS),
});

/** Answer of `/readyz`. Ages and waits are in seconds, times as in RFC 3339. */
export type Readiness = Shaped<typeof READINESS>;

const QUARANTINE = object({
  count: NUMBER,
  /** The first of these Services. */
  services: list(object({ family: FAMILY, service: SERVICE, problem: TEXT, since: TEXT })),
});

/** Services whose rules the kernel refuses. */
export type QuarantineStatus = Shaped<typeof QUARANTINE>;

const DRIFT = object({
  /** How often damage was found. */
  found: NUMBER,
  /** How often writing the rules again helped. */
  repaired: NUMBER,
  /** The last cases of damage, oldest first. */
  recent: list(object({
    family: FAMILY,
    time: TEXT,
    /** Damaged objects by the tools' names; a few of many. */
    damaged: TEXTS,
    /** `pending`: being written again; `lasting`: still damaged afterwards. */
    outcome: text<"pending" | "repaired" | "lasting">(),
  })),
});

/** Damage that others did to the rules. */
export type DriftStatus = Shaped<typeof DRIFT>;

/** Fields of {@linkcode StatusDocument}, without its kind. */
export const STATUS_FIELDS = {
  time: TEXT,
  /** The process. */
  program: object({
    name: text<"kproxy">(),
    version: TEXT,
    /** The Kubernetes release whose behaviour is followed. */
    emulationVersion: TEXT,
    denoVersion: TEXT,
    pid: NUMBER,
    started: TEXT,
    uptimeSeconds: NUMBER,
    /** When the configuration in force began to be served; later than the start after a changed configuration. */
    servingSince: TEXT,
    /** Memory in bytes. */
    memory: object({ resident: NUMBER, heapUsed: NUMBER, heapTotal: NUMBER, external: NUMBER }),
  }),
  node: object({
    name: TEXT,
    /** False if its Node says that load balancers shall send nothing new. */
    eligible: FLAG,
  }),
  mode: object({
    /** The mode in use. */
    used: TEXT,
    /** Mode as configured; `""` for the default. */
    configured: TEXT,
    /** Why the configured mode is not in use; null if it is. */
    fallback: orNull(TEXT),
  }),
  /** Whether the rules are those that the cluster wants now: what `/readyz` answers. */
  readiness: READINESS,
  /** Whether a sync has been waiting for too long: what `/livez` answers. */
  healthy: FLAG,
  families: record<FamilyStatus, IpFamily>(FAMILY_STATUS),
  source: object({
    /** `files /etc/kproxy/manifests`, `https://10.0.0.1:6443`, or both. */
    name: TEXT,
    /** Objects that are refused as they are now; at most 100. */
    refused: object({ count: NUMBER, objects: list(object({ where: TEXT, object: TEXT, message: TEXT })) }),
  }),
  quarantine: QUARANTINE,
  /** Destinations that Services request and do not get: those of other Services, or refused ones; absent in older releases. */
  unserved: optional(object({
    count: NUMBER,
    /** The first of these destinations. */
    destinations: list(object({ service: SERVICE, destination: TEXT, reason: TEXT })),
  })),
  drift: DRIFT,
  /** Tables that another service proxy keeps making. */
  otherProxyTables: TEXTS,
  /** Kernel settings that are not as wanted. */
  refusedSettings: list(object({ name: TEXT, reason: TEXT })),
  /** State of the configuration file; null if it is not followed. */
  configReload: orNull(object({
    failures: NUMBER,
    /** False if the file as it is now was refused. */
    inForce: FLAG,
    lastSuccess: TEXT,
  })),
  problems: object({
    /** Warnings and errors since the process began. */
    total: NUMBER,
    /** The last of them, oldest first. */
    recent: list(object({
      severity: text<"warning" | "error">(),
      message: TEXT,
      /** `err="…" family="IPv4"`. */
      values: TEXT,
      /** When it was logged first and last in a row, and how often. */
      first: TEXT,
      last: TEXT,
      count: NUMBER,
    })),
  }),
  /** Addresses that the servers listen on, e.g. `127.0.0.1:10249`; empty ones do not listen. */
  listening: object({ healthz: TEXTS, metrics: TEXTS }),
};

/** Shape of the state of a proxy. */
export const STATUS = object({ ...kindOf("Status"), ...STATUS_FIELDS });

/** Answer at {@linkcode STATUS_PATH}. */
export type StatusDocument = Shaped<typeof STATUS>;

/** Shape of the configuration of a proxy. */
export const CONFIG = object({
  ...kindOf("Config"),
  node: TEXT,
  /** The mode in use. */
  mode: TEXT,
  families: list(FAMILY),
  /** `--master` without credentials; `""` if it was not given. */
  master: TEXT,
  /** The configuration in force, as a file would hold it, and checked as one; missing fields have their default. */
  config: record(ANYTHING),
});

/** Answer at {@linkcode CONFIG_PATH}. */
export type ConfigDocument = Shaped<typeof CONFIG>;

/** The ports that kproxy listens on for Services; none but in mode userspace. */
export const PORTALS = object({
  ...kindOf("Portals"),
  /** The mode in use. */
  mode: TEXT,
  ...NODE_PORTALS,
});

/** Answer at {@linkcode PORTALS_PATH}. */
export type PortalsDocument = Shaped<typeof PORTALS>;

function kindOf<Kind extends string>(_kind: Kind) {
  return { apiVersion: text<typeof API_VERSION>(), kind: text<Kind>() };
}
