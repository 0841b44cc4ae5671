/**
 * The shapes of the status documents. Fields may be added; what is there keeps its name and
 * meaning as long as the version of the path and of `apiVersion` stays.
 *
 * Times are RFC 3339, or milliseconds since the epoch where a name ends in `Ms` and says so; durations are in milliseconds
 * (`…Ms`) or seconds (`…Seconds`).
 *
 * @module
 */
import type { UnservedDestination } from "../../model/destination_claims.ts";
import type { IpFamily, NamespacedName } from "../../model/objects.ts";
import type { NodePortals } from "../../model/portals.ts";
import type { Rejection } from "../../source/source.ts";
import type { Readiness } from "../health_state.ts";

/** The version of every document of kproxy's own. */
export const API_VERSION = "kproxy/v1";

/** Where the pages are. */
export const STATUS_PATH = "/kproxy/v1/status";
export const CONFIG_PATH = "/kproxy/v1/config";
export const OBJECTS_PATH = "/kproxy/v1/objects";
export const PORTALS_PATH = "/kproxy/v1/portals";
/** Takes what a command has done to the node, for the log. */
export const AUDIT_PATH = "/kproxy/v1/audit";

/** What {@linkcode STATUS_PATH} answers. */
export interface StatusDocument {
  readonly apiVersion: typeof API_VERSION;
  readonly kind: "Status";
  readonly time: string;
  readonly program: ProgramStatus;
  readonly node: {
    readonly name: string;
    /** False if its Node says that load balancers shall send nothing new. */
    readonly eligible: boolean;
  };
  readonly mode: {
    /** The one in use. */
    readonly used: string;
    /** As configured; `""` for the default. */
    readonly configured: string;
    /** Why the configured one is not in use; null if it is. */
    readonly fallback: string | null;
  };
  /** Whether the rules are those that the cluster wants now: what `/readyz` answers. */
  readonly readiness: Readiness;
  /** Whether a sync has been waiting for too long: what `/livez` answers. */
  readonly healthy: boolean;
  readonly families: Readonly<Partial<Record<IpFamily, FamilyStatus>>>;
  readonly source: {
    /** `files /etc/kproxy/manifests`, `https://10.0.0.1:6443`, or both. */
    readonly name: string;
    /** Objects that are refused as they are now; at most 100. */
    readonly refused: { readonly count: number; readonly objects: readonly Rejection[] };
  };
  readonly quarantine: QuarantineStatus;
  /** What Services ask for and do not get: addresses of other Services, or that no Service may have; absent in older releases. */
  readonly unserved?: {
    readonly count: number;
    /** The first of them. */
    readonly destinations: readonly UnservedDestination[];
  };
  readonly drift: DriftStatus;
  /** Tables that another service proxy keeps making. */
  readonly otherProxyTables: readonly string[];
  /** Kernel settings that are not as wanted. */
  readonly refusedSettings: readonly { readonly name: string; readonly reason: string }[];
  /** State of the configuration file; null if it is not followed. */
  readonly configReload: {
    readonly failures: number;
    /** False if the file as it is now was refused. */
    readonly inForce: boolean;
    readonly lastSuccess: string;
  } | null;
  readonly problems: {
    /** Warnings and errors since the process began. */
    readonly total: number;
    /** The last of them, oldest first. */
    readonly recent: readonly ProblemStatus[];
  };
  /** What the servers listen on, e.g. `127.0.0.1:10249`; empty ones do not listen. */
  readonly listening: { readonly healthz: readonly string[]; readonly metrics: readonly string[] };
}

/** The process. */
export interface ProgramStatus {
  readonly name: "kproxy";
  readonly version: string;
  /** The Kubernetes release whose behaviour is followed. */
  readonly emulationVersion: string;
  readonly denoVersion: string;
  readonly pid: number;
  readonly started: string;
  readonly uptimeSeconds: number;
  /** When the configuration in force began to be served; later than the start after a changed configuration. */
  readonly servingSince: string;
  /** In bytes. */
  readonly memory: {
    readonly resident: number;
    readonly heapUsed: number;
    readonly heapTotal: number;
    readonly external: number;
  };
}

/** One IP family. */
export interface FamilyStatus {
  /** As of the last sync. */
  readonly services: number;
  /** Endpoints of all Service ports, ready or not, as of the last sync. */
  readonly endpoints: number;
  /** Rules, elements or servers in force, per table or kind. */
  readonly rules: Readonly<Record<string, number>>;
  readonly syncs: { readonly full: number; readonly partial: number; readonly failed: number };
  /** Null before the first one. */
  readonly lastSync: SyncStatus | null;
  readonly lastFullSync: SyncStatus | null;
  readonly lastFailure: FailureStatus | null;
  readonly latency: LatencyStatus;
  /** The last syncs, oldest first: for plots. */
  readonly recent: readonly SyncPoint[];
}

/** A sync that succeeded. */
export interface SyncStatus {
  /** When it ended. */
  readonly time: string;
  readonly kind: "full" | "partial";
  readonly durationMs: number;
  /** Milliseconds spent per phase (`read`, `plan`, `apply`), in order. */
  readonly phasesMs: Readonly<Record<string, number>>;
  /** How many Services it looked at. */
  readonly changed: number;
  /** Some of them; none of a full one. */
  readonly services: readonly NamespacedName[];
  /** Rules, elements or servers written, per table or kind. */
  readonly written: Readonly<Record<string, number>>;
  readonly commands: number;
  readonly bytes: number;
}

/** A sync that failed. */
export interface FailureStatus {
  readonly time: string;
  readonly kind: "full" | "partial";
  readonly durationMs: number;
  readonly error: string;
}

/** From a change of endpoints in the cluster to its rules, over the last changes; null where there were none. */
export interface LatencyStatus {
  readonly count: number;
  readonly p50Ms: number | null;
  readonly p99Ms: number | null;
  readonly maxMs: number | null;
}

/** A sync in a plot. */
export interface SyncPoint {
  /** When it ended, in milliseconds since the epoch. */
  readonly timeMs: number;
  readonly durationMs: number;
  readonly kind: "full" | "partial";
  readonly ok: boolean;
  /** How many Services it looked at. */
  readonly changed: number;
  /** From the oldest change of endpoints that it brought to its end; null if their time is unknown. */
  readonly latencyMs: number | null;
}

/** Services that the kernel does not take. */
export interface QuarantineStatus {
  readonly count: number;
  /** The first of them. */
  readonly services: readonly {
    readonly family: IpFamily;
    readonly service: NamespacedName;
    readonly problem: string;
    readonly since: string;
  }[];
}

/** What others did to the rules. */
export interface DriftStatus {
  /** How often damage was found. */
  readonly found: number;
  /** How often writing it again helped. */
  readonly repaired: number;
  /** The last ones, oldest first. */
  readonly recent: readonly {
    readonly family: IpFamily;
    readonly time: string;
    /** In the tools' names; a few of many. */
    readonly damaged: readonly string[];
    /** `pending`: being written again; `lasting`: damaged all the same. */
    readonly outcome: "pending" | "repaired" | "lasting";
  }[];
}

/** A warning or an error of the log. */
export interface ProblemStatus {
  readonly severity: "warning" | "error";
  readonly message: string;
  /** `err="…" family="IPv4"`. */
  readonly values: string;
  /** When it was logged first and last in a row, and how often. */
  readonly first: string;
  readonly last: string;
  readonly count: number;
}

/** What `/kproxy/v1/config` answers. */
export interface ConfigDocument {
  readonly apiVersion: typeof API_VERSION;
  readonly kind: "Config";
  readonly node: string;
  /** The mode in use. */
  readonly mode: string;
  readonly families: readonly IpFamily[];
  /** `--master` without credentials; `""` if it was not given. */
  readonly master: string;
  /** The configuration in force, as a file would hold it; what is not there has its default. */
  readonly config: Readonly<Record<string, unknown>>;
}

/** What {@linkcode PORTALS_PATH} answers: the ports that kproxy listens on for Services; none but in mode userspace. */
export interface PortalsDocument extends NodePortals {
  readonly apiVersion: typeof API_VERSION;
  readonly kind: "Portals";
  /** The mode in use. */
  readonly mode: string;
}
