/**
 * Records of measurements: one JSON file of `docs/records/` for each command that measures. They are the only source of measured
 * figures in the documentation.
 *
 * @module
 */
import { ROOT } from "../project_files.ts";

/** What every record says beside its rows. */
export interface RecordHead {
  readonly command: string;
  /** What was checked out, with `-dirty` if files were changed beside it. */
  readonly commit: string;
  /** `2026-11-23`. */
  readonly date: string;
  /** Processors, memory and kernel. */
  readonly machine: string;
  /** Of the last minute, before and after. */
  readonly load: readonly [before: number, after: number];
  /** How many rounds; each sample of a row is of another one, unless its field says that there are several in a round. */
  readonly n: number;
  readonly versions: {
    readonly kproxy: string;
    /** Null: there was none. */
    readonly kubeProxy: string | null;
    readonly deno: string;
    readonly nft: string;
    readonly iptables: string;
  };
}

/** What was measured of one proxy, a sample for each round: times in milliseconds, memory in megabytes. */
export interface ProxySamples {
  /** Start of the process to 24 Services, spread over all, having answered a connection. */
  readonly firstSyncMs: readonly number[];
  /** Processor time until nothing of the start was left to do, programs included. */
  readonly startCpuMs: readonly number[];
  /** One endpoint replaced in the API to the kernel's own event for it; several in each round. */
  readonly changeMs: readonly number[];
  /** Of the process after the changes: resident, of it what no file backs, and the most that was resident. */
  readonly residentMb: readonly number[];
  readonly anonymousMb: readonly number[];
  readonly peakMb: readonly number[];
  /** What a container is charged with after the changes, rules in the kernel included, and at most; empty where nothing counts it. */
  readonly chargedMb: readonly number[];
  readonly chargedPeakMb: readonly number[];
}

/** The bare tool, fed with the text that kproxy wrote for IPv4. */
export interface BareSamples {
  /** All rules: starts and ends of its processes, added up. */
  readonly firstSyncMs: readonly number[];
  /** The change's text, given to a process that was started before, as kproxy does it, to the kernel's event. */
  readonly changeMs: readonly number[];
  /** The same, from the start of the process. */
  readonly changeWithStartMs: readonly number[];
}

/** One mode at one size. */
export interface ProxiesRow {
  readonly mode: ProxyMode;
  readonly services: number;
  /** Of each Service. */
  readonly endpoints: number;
  readonly kproxy: ProxySamples;
  /** A text says why it was not measured. */
  readonly kubeProxy: ProxySamples | string;
  readonly bare: BareSamples;
}

/** Modes that are measured. */
export type ProxyMode = "nftables" | "iptables";

/** What a client behind a node sees: medians of each round, in microseconds, and rates. */
export interface PathSamples {
  /** A new connection with one small request and answer, by where it leads. */
  readonly connectUs: {
    /** To a pod, past all Services. */
    readonly pod: readonly number[];
    /** Through the Service whose rule is tried first, in the middle, and last; not there without a proxy. */
    readonly first?: readonly number[];
    readonly middle?: readonly number[];
    readonly last?: readonly number[];
  };
  /** One after the other, to the middle one or, without Services, to the pod. */
  readonly connectionsPerSecond: readonly number[];
  /** Four streams to a node port or, without Services, to the pod. */
  readonly megabytesPerSecond: readonly number[];
}

/** Whose rules the packets pass. */
export interface PacketsRow {
  readonly mode: ProxyMode | null;
  readonly proxy: "kproxy" | "kube-proxy" | "none";
  readonly path: PathSamples;
}

/** kproxy, kube-proxy and the bare tool at several sizes. */
export interface ProxiesRecord extends RecordHead {
  readonly rows: readonly ProxiesRow[];
}

/** The way of packets through the rules of 1,000 Services. */
export interface PacketsRecord extends RecordHead {
  readonly services: number;
  readonly endpoints: number;
  readonly rows: readonly PacketsRow[];
}

/** One object that was written to cost much, in one mode: of each figure the worst of all rounds. */
export interface HostileRow {
  readonly mode: string;
  readonly object: string;
  /** Milliseconds, and megabytes (10⁶ bytes). `editMs` is the middle of ten edits once all is quiet. */
  readonly worst: {
    readonly livezMs: number;
    readonly computingMs: number;
    readonly residentMb: number;
    readonly firstEditMs: number;
    readonly editMs: number;
  };
}

/** What such objects cost. */
export interface HostileRecord extends RecordHead {
  readonly rows: readonly HostileRow[];
}

/** That the image was built, and served as a Pod of each overlay that a container can run. */
export interface ImageRecord extends RecordHead {
  /** What it was built on. */
  readonly bases: string;
}

/** Where records are, relative to the project's folder. */
export const RECORDS_FOLDER = "docs/records";
export const PROXIES_FILE = `${RECORDS_FOLDER}/proxies.json`;
export const PACKETS_FILE = `${RECORDS_FOLDER}/packets.json`;
export const HOSTILE_FILE = `${RECORDS_FOLDER}/hostile.json`;
/** Modes ipvs and iptables in the user-mode Linux. */
export const HOSTILE_IPVS_FILE = `${RECORDS_FOLDER}/hostile-ipvs.json`;
export const IMAGE_FILE = `${RECORDS_FOLDER}/image.json`;

/** Reads a record. */
export function readRecord<Record>(file: string): Record {
  return JSON.parse(Deno.readTextFileSync(`${ROOT}/${file}`));
}

/** Puts a row into a record that is a list of rows, in the place of those that are of the same thing. */
export async function replaceRow<Row>(
  path: string,
  row: Row,
  isSame: (other: Row) => boolean,
): Promise<void> {
  let rows: readonly Row[] = [];
  try {
    rows = JSON.parse(await Deno.readTextFile(path));
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
  const all = [...rows.filter((other) => !isSame(other)), row];
  await Deno.writeTextFile(path, JSON.stringify(all, null, 2) + "\n");
}
