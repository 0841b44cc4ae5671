/**
 * Records of measurements: one JSON file of `docs/records/` for each command that measures. They are the only source of measured
 * figures in the documentation.
 *
 * @module
 */
import { projectFiles, ROOT } from "../project_files.ts";

/** What every record says beside its rows. */
export interface RecordHead {
  readonly command: string;
  /** What was checked out, with `-dirty` if files were changed beside it. */
  readonly commit: string;
  /** Of the code that was measured, see {@linkcode codeDigest}. */
  readonly code: string;
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
/** Fewer are no figure. */
export const LEAST_ROUNDS = 5;

const HEAD_TEXTS = ["command", "commit", "code", "date", "machine"] as const;
const VERSIONS = ["kproxy", "deno", "nft", "iptables"] as const;

function lists(value: unknown, path: string): [path: string, samples: readonly unknown[]][] {
  if (Array.isArray(value)) return [[path, value]];
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, inner]) => lists(inner, `${path}.${key}`));
}

/**
 * Reads a record.
 *
 * @throws {SyntaxError} if the head is not whole, or a list has something else than enough numbers; it names file and place
 */
export function parseRecord<R extends ProxiesRecord | PacketsRecord | HostileRecord>(
  file: string,
  text: string,
): R {
  const record = JSON.parse(text);
  const wrong = (what: string): SyntaxError => new SyntaxError(`${file}: ${what}`);
  for (const key of HEAD_TEXTS) {
    if (typeof record[key] !== "string" || record[key] === "") throw wrong(`${key} must be a text`);
  }
  for (const key of VERSIONS) {
    if (typeof record.versions?.[key] !== "string") throw wrong(`versions.${key} must be a text`);
  }
  if (!(record.n >= LEAST_ROUNDS)) throw wrong(`n must be ${LEAST_ROUNDS} rounds or more: got ${record.n}`);
  if (lists(record.load, "load")[0]?.[1].length !== 2) throw wrong("load must be two numbers");
  if (!Array.isArray(record.rows) || record.rows.length === 0) throw wrong("rows must be a list");
  const rows = new Set<string>();
  for (const [at, row] of record.rows.entries()) {
    const name = [row.mode, row.proxy, row.services, row.object].join(" ");
    if (rows.has(name)) throw wrong(`rows.${at} is there twice`);
    rows.add(name);
    for (const [path, samples] of lists(row, `rows.${at}`)) {
      const mayBeEmpty = /\.charged(Peak)?Mb$/.test(path) && samples.length === 0;
      const isGood = samples.every((sample) => typeof sample === "number" && sample > 0);
      if (!isGood || !mayBeEmpty && samples.length < record.n) {
        throw wrong(`${path} must have a number above 0 for each of ${record.n} rounds`);
      }
    }
  }
  return record;
}

/** The records that there are: what no generator reads is none. */
export const PROXIES_FILE = `${RECORDS_FOLDER}/proxies.json`;
export const PACKETS_FILE = `${RECORDS_FOLDER}/packets.json`;
export const HOSTILE_FILE = `${RECORDS_FOLDER}/hostile.json`;
/** Modes ipvs and iptables in the user-mode Linux. */
export const HOSTILE_IPVS_FILE = `${RECORDS_FOLDER}/hostile-ipvs.json`;

export const IMAGE_FILE = `${RECORDS_FOLDER}/image.json`;

/** Records of other kinds: `kube_proxy_record`, `fuzz_record`, `tests/chaos/soak_test.ts` and `tools/docs.ts` read these. */
const SHOWN_ELSEWHERE: readonly string[] = [
  "kube-proxy.json",
  "soak-nftables.json",
  "image.json",
  "fuzz.json",
];

/** What was measured; undefined: nothing yet. */
export interface Records {
  readonly proxies: ProxiesRecord | undefined;
  readonly packets: PacketsRecord | undefined;
  readonly hostile: HostileRecord | undefined;
  readonly hostileIpvs: HostileRecord | undefined;
}

/**
 * All records. Each figure has one: a newer one takes its place.
 *
 * @throws {SyntaxError} as {@linkcode parseRecord}, or if there is a file that is none of them
 */
export function readRecords(root: string = ROOT): Records {
  const texts = new Map<string, string>();
  for (const { name } of Deno.readDirSync(`${root}/${RECORDS_FOLDER}`)) {
    if (!name.endsWith(".json")) continue;
    const file = `${RECORDS_FOLDER}/${name}`;
    if (SHOWN_ELSEWHERE.includes(name)) continue;
    if (![PROXIES_FILE, PACKETS_FILE, HOSTILE_FILE, HOSTILE_IPVS_FILE].includes(file)) {
      throw new SyntaxError(`${file}: nothing shows it`);
    }
    texts.set(file, Deno.readTextFileSync(`${root}/${file}`));
  }
  const read = <R extends ProxiesRecord | PacketsRecord | HostileRecord>(file: string): R | undefined => {
    const text = texts.get(file);
    return text === undefined ? undefined : parseRecord<R>(file, text);
  };
  return {
    proxies: read(PROXIES_FILE),
    packets: read(PACKETS_FILE),
    hostile: read(HOSTILE_FILE),
    hostileIpvs: read(HOSTILE_IPVS_FILE),
  };
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

/** What kproxy is made of: its code without tests and documentation, and the versions of its packages. */
const CODE = /^(?:lib\/.*(?<!_test)\.tsx?|main\.ts|start\.ts|deno\.lock)$/;

/** SHA-256 over names and texts of the code that is measured: another one, other code. */
export async function codeDigest(root: string = ROOT): Promise<string> {
  const files = (await projectFiles(root)).filter((file) => CODE.test(file));
  const texts = await Promise.all(
    files.map(async (file) => `${file}\n${await Deno.readTextFile(`${root}/${file}`)}`),
  );
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(texts.join("\0")));
  return new Uint8Array(digest).toHex().slice(0, 16);
}
