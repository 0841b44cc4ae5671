/**
 * Checks of single values, each by itself. Entries of the schema name these; rules between fields are in `validate.ts`.
 *
 * @module
 */
import { hostCidr, parseCidr, parseIp } from "../model/ip.ts";
import type { VmoduleItem } from "./kinds.ts";
import { parsePortRange } from "./value_texts.ts";

/** A fault of a value. */
export interface Fault {
  /** Follows "Invalid value: …: ". */
  readonly detail: string;
  /** The part of the value that is wrong, if it is not all of it. */
  readonly value?: unknown;
  /** Path of that part, e.g. `[1]`. */
  readonly at?: string;
}

/** Yields the faults of a value; none: it is valid. */
export type Check<Value> = (value: Value) => readonly Fault[];

/** A check that fails unless `holds`. */
export function must<Value>(holds: (value: Value) => boolean, detail: string): Check<Value> {
  return (value) => holds(value) ? [] : [{ detail }];
}

/** A check of each item of a list. */
export function each<Item>(check: Check<Item>): Check<readonly Item[]> {
  return (items) =>
    items.flatMap((item, index) =>
      check(item).map((fault) => ({ value: item, ...fault, at: `[${index}]${fault.at ?? ""}` }))
    );
}

export const positive: Check<number> = must((value) => value > 0, "must be greater than 0");
export const notNegative: Check<number> = must((value) => value >= 0, "must be greater than or equal to 0");

export function within(least: number, most: number): Check<number> {
  return must((value) => value >= least && value <= most, `must be within the range [${least}, ${most}]`);
}

const MOST_VERBOSE = 2 ** 31 - 1;
export const verbosity: Check<number> = must(
  (value) => value <= MOST_VERBOSE,
  `must be at most ${MOST_VERBOSE}`,
);

export const vmodule: Check<readonly VmoduleItem[]> = each((item) => [
  ...must(
    (pattern: string) => pattern !== "" && !/[=,]/.test(pattern),
    "must be a pattern without equal sign and comma",
  )(
    item.filePattern,
  ).map((fault) => ({ ...fault, value: item.filePattern, at: ".filePattern" })),
  ...verbosity(item.verbosity).map((fault) => ({ ...fault, value: item.verbosity, at: ".verbosity" })),
]);

export const ip: Check<string> = must(
  (text) => parseIp(text) !== null,
  "not a valid textual representation of an IP address",
);
export const cidr: Check<string> = must((text) => parseCidr(text) !== null, "must be a valid CIDR");

const NODE_PORT_WORDS: readonly string[] = ["primary", "localhost", "all"];
export const nodePortAddress: Check<string> = must(
  (text) => NODE_PORT_WORDS.includes(text) || parseCidr(text) !== null,
  "must be a valid CIDR, primary, localhost or all",
);

/** `IP:port`; blank: switched off by `--healthz-port=0` or `--metrics-port=0`. */
export function hostPort(address: string): readonly Fault[] {
  if (address === "") return [];
  const [, bracketed, plain, port = ""] = /^(?:\[([^[\]]*)\]|([^:[\]]*)):([^:[\]]*)$/.exec(address) ?? [];
  const host = bracketed ?? plain;
  if (host === undefined) return [{ detail: "must be IP:port" }];
  const number = /^\d{1,5}$/.test(port) ? Number(port) : 0;
  return [
    ...parseIp(host) === null ? [{ value: host, detail: "must be a valid IP" }] : [],
    ...number < 1 || number > 65_535 ? [{ value: port, detail: "must be a valid port" }] : [],
  ];
}

/** One network, or two of different families, with a comma between. */
export function clusterCidrs(text: string): readonly Fault[] {
  if (text === "") return [];
  const items = text.split(",");
  const cidrs = items.map(parseCidr);
  const [one, other] = cidrs.map((item) => item?.family);
  const faults: Fault[] = items.filter((_, index) => cidrs[index] === null).map((value) => ({
    value,
    detail: "must be a valid CIDR block (e.g. 10.100.0.0/16 or fde4:8dba:82e1::/48)",
  }));
  if (items.length > 2 || (one !== undefined && one === other)) {
    const example = "(e.g. [10.100.0.0/16, fde4:8dba:82e1::/48])";
    faults.unshift({
      value: items,
      detail: `must be either a single CIDR or dual-stack pair of CIDRs ${example}`,
    });
  }
  return faults;
}

/** Checks an interface's name: as the kernel takes it, without quotes, which end words of a rule's text. */
export function interfaceName(most: number): Check<string> {
  // deno-lint-ignore no-control-regex
  const wrong = /[\s\x00-\x1f\x7f/"'`\\]/;
  const isShort = must<string>(
    (name) => new TextEncoder().encode(name).length <= most,
    `must be ${most} characters long at most`,
  );
  const isName = must<string>(
    (name) => !wrong.test(name),
    "must be the name of an interface, without blanks, slashes, quotes and control characters",
  );
  return (name) => name === "" ? [{ detail: "must not be empty" }] : [...isShort(name), ...isName(name)];
}

export const portRange: Check<string> = must((text) => {
  try {
    parsePortRange(text);
    return true;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return false;
  }
}, "must be a valid port range (e.g. 30000-31000)");

/** Addresses and networks of the node, one of each IP family. */
export function listenAddresses(texts: readonly string[]): readonly Fault[] {
  const families = new Set<string>();
  return each<string>((text) => {
    const family = (parseIp(text) ?? parseCidr(text))?.family;
    if (family === undefined) {
      return [{ detail: "must be an address or a network of this node (e.g. 127.0.0.1 or 127.0.0.0/8)" }];
    }
    if (families.has(family)) return [{ detail: `must be the only one of ${family}` }];
    families.add(family);
    return [];
  })(texts);
}

/** Faults of a network. Every address of it counts, so host bits (`10.0.0.5/8`) are an error and not rounded. */
export function network(text: string): readonly Fault[] {
  const address = parseIp(text);
  if (address !== null) {
    return [{ detail: `must be a network in CIDR form: ${hostCidr(address).text} for this address alone` }];
  }
  const found = parseCidr(text);
  if (found === null) {
    return [{ detail: "must be a network in CIDR form (e.g. 203.0.113.0/24 or fd00:5::/64)" }];
  }
  const isNetwork =
    parseIp(text.slice(0, text.lastIndexOf("/")))?.text === found.text.slice(0, found.text.lastIndexOf("/"));
  return isNetwork ? [] : [{ detail: `must have no bits set behind its prefix: ${found.text}` }];
}

export const notBlank: Check<string> = must((text) => text.trim() !== "", "must name a file or a folder");

/** A relative path depends on where the program was started, and the next start must find the file. */
export const absoluteFile: Check<string> = must(
  (path) => path === "" || /^\/.*[^/]$/.test(path),
  "must be the absolute path of a file, or blank for none",
);

/** The kernel takes 107 bytes, of which the name that a socket has before it is ready takes some more. */
const MAX_SOCKET_PATH = 96;
export const socketPath: Check<string> = must(
  (path) =>
    path === "" || (/^(?:\/(?!\.{1,2}(?:\/|$))[^/]+){2,}$/.test(path) && path.length <= MAX_SOCKET_PATH),
  `must be an absolute path below a folder, without . and .., of at most ${MAX_SOCKET_PATH} characters, or blank`,
);

/** Least age limit of a snapshot: below it the file would be written again and again. */
const LEAST_SNAPSHOT_AGE_MS = 60_000;
export const snapshotAge: Check<number> = must(
  (ms) => ms === 0 || ms >= LEAST_SNAPSHOT_AGE_MS,
  "must be 0, for no limit, or at least 1m",
);

/** Minor version of Kubernetes before the one that kproxy is measured by. */
const PREVIOUS_VERSION = "1.35";
export const previousVersion: Check<string> = must(
  (version) => version === "" || version === PREVIOUS_VERSION,
  `must be omitted or ${JSON.stringify(PREVIOUS_VERSION)}, the previous minor version`,
);
