/**
 * `kproxy sysdump`: data for a bug report, in one archive of parts, without what looks like a secret.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../config/types.ts";
import { writeConfigYaml } from "../../config/write_yaml.ts";
import { ExecError } from "../../errors.ts";
import type { Exec } from "../../kernel/exec.ts";
import { findOwnSocket } from "../../kernel/own_socket.ts";
import { joinHostPort, localHost, splitHostPort } from "../../model/ip.ts";
import { errorText } from "../../observe/log.ts";
import { httpGet, type HttpPlace } from "../../serve/http_get.ts";
import { API_VERSION, CONFIG_PATH, OBJECTS_PATH, STATUS_PATH } from "../../serve/status/status_document.ts";
import { GrowingBytes } from "../../text/bytes.ts";

/** Stores a piece, as far as there is room; false: the limit is exceeded. */
export type Take = (piece: Uint8Array) => boolean;

export interface Part {
  /** File name in the archive, e.g. `rules/nft-ruleset.txt`. */
  readonly name: string;
  /** Source of the part in the list of parts, e.g. `nft list ruleset`. */
  readonly from: string;
  /**
   * Hands over the part's bytes; yields a problem with them, in a sentence; `""`: none.
   *
   * @throws the reason why the part cannot be read, or not to its end
   */
  readonly read: (take: Take, limits: PartLimits) => Promise<string>;
  /** True: secrets are removed from the whole part once it is read. @default {false} */
  readonly isCleaned?: boolean;
}

export interface PartLimits {
  readonly timeMs: number;
  readonly bytes: number;
  readonly signal: AbortSignal;
}

export interface PartOutcome {
  readonly name: string;
  readonly from: string;
  /** Null: the part could not be read. */
  readonly bytes: Uint8Array<ArrayBuffer> | null;
  /** Why the part is missing, or incomplete; `""`: it is complete. */
  readonly problem: string;
  readonly tookMs: number;
}

/** Reads a part; failures are in the outcome. Rejects only once `signal` is aborted. */
export async function readPart(
  { name, from, read, isCleaned = false }: Part,
  limits: PartLimits,
  nowMs: () => number,
): Promise<PartOutcome> {
  const startMs = nowMs();
  const kept = new GrowingBytes();
  let [isCut, hasFailed, problem] = [false, false, ""];
  try {
    problem = await read((piece) => {
      const room = limits.bytes - kept.length;
      kept.add(piece.subarray(0, room));
      isCut ||= piece.length > room;
      return !isCut;
    }, limits);
  } catch (error) {
    limits.signal.throwIfAborted();
    hasFailed = true;
    problem = withoutSecrets(errorText(error));
  }
  if (isCut) problem = `it is longer than ${limits.bytes} bytes, and cut there`;
  const bytes = isCleaned ? cleaned(kept.view()) : kept.view();
  const isNothing = hasFailed && kept.length === 0;
  return { name, from, bytes: isNothing ? null : bytes, problem, tookMs: nowMs() - startMs };
}

function cleaned(bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(withoutSecrets(new TextDecoder().decode(bytes)));
}

export function programPart(name: string, argv: readonly string[], exec: Exec): Part {
  const read = async (take: Take, { timeMs, signal }: PartLimits): Promise<string> => {
    const enough = new AbortController();
    const onStdout = (bytes: Uint8Array): void => {
      if (!take(bytes)) enough.abort();
    };
    const { code, stdout, stderr } = await exec.run(argv, {
      timeoutMs: timeMs,
      signal: AbortSignal.any([signal, enough.signal]),
      onStdout,
    });
    // Fakes of programs print everything at once.
    onStdout(new TextEncoder().encode(stdout));
    if (code !== 0) throw new ExecError(argv, code, stderr);
    return "";
  };
  return { name, from: argv.join(" "), read };
}

export type Page = HttpPlace & { readonly path: string };

/** Content of a page, with any status. */
function pagePart(name: string, page: Page): Part {
  const from = "socket" in page
    ? `${page.socket} ${page.path}`
    : `http://${joinHostPort(page.host, page.port)}${page.path}`;
  const read = async (take: Take, { timeMs, bytes, signal }: PartLimits): Promise<string> => {
    const question = {
      ...page,
      ...("socket" in page ? { socket: findOwnSocket(page.socket).path } : {}),
      limitMs: Math.min(timeMs, PAGE_LIMIT_MS),
      wholeMs: timeMs,
      maxBytes: 2 * bytes + HEAD_BYTES,
    };
    return await httpGet(question, async ({ status, body }) => {
      for await (const piece of body) {
        signal.throwIfAborted();
        if (!take(piece)) break;
      }
      return status === 200 ? "" : `it answers with status ${status}`;
    });
  };
  return { name, from, read, isCleaned: true };
}

/** Time until an answer begins, and between its pieces. */
const PAGE_LIMIT_MS = 3_000;
const HEAD_BYTES = 65_536;

/** A part whose text this program makes. */
export function textPart(name: string, from: string, text: () => string | Promise<string>): Part {
  const read = async (take: Take): Promise<string> => {
    take(new TextEncoder().encode(withoutSecrets(await text())));
    return "";
  };
  return { name, from, read };
}

export interface SysdumpInput {
  readonly exec: Exec;
  /** The configuration by flags and file. */
  readonly config: KubeProxyConfiguration;
  /** Versions of this program and its runtime, line by line. */
  readonly versions: readonly string[];
}

/** Sysctls that decide about packets. None of the patterns covers `stable_secret`. */
const SETTINGS =
  "^net\\.(netfilter\\.nf_(conntrack|flowtable|hooks)[a-z_0-9]*|nf_conntrack_max|ipv4\\.vs\\.[a-z_0-9]+|ipv4\\.ip_(forward|local_port_range|local_reserved_ports|nonlocal_bind)" +
  "|ipv4\\.icmp_ratelimit|ipv[46]\\.conf\\..+\\.(forwarding|rp_filter|route_localnet|accept_local|arp_ignore|arp_announce|disable_ipv6|src_valid_mark)" +
  "|bridge\\.bridge-nf-call-[a-z0-9]+|core\\.(devconf_inherit_init_net|bpf_jit_harden))$";

const SAVES = [
  "iptables-save",
  "ip6tables-save",
  "iptables-nft-save",
  "ip6tables-nft-save",
  "iptables-legacy-save",
  "ip6tables-legacy-save",
];

const NETWORK: readonly (readonly [name: string, args: string])[] = [
  ["addresses", "-details address"],
  ["links", "-details -statistics link"],
  ["routes-ipv4", "-4 route show table all"],
  ["routes-ipv6", "-6 route show table all"],
  ["rules-ipv4", "-4 rule"],
  ["rules-ipv6", "-6 rule"],
  ["neighbours", "neighbour"],
];

const TOOL_VERSIONS: readonly (readonly [name: string, argv: string])[] = [
  ["iptables", "iptables --version"],
  ["ip6tables", "ip6tables --version"],
  ["iptables-nft", "iptables-nft --version"],
  ["iptables-legacy", "iptables-legacy --version"],
  ["nft", "nft --version"],
  ["ipvsadm", "ipvsadm --version"],
  ["ipset", "ipset version"],
  ["ip", "ip -Version"],
  ["conntrack", "conntrack --version"],
  ["sysctl", "sysctl --version"],
];

/** All parts, in the order of the archive. */
export function sysdumpParts({ exec, config, versions }: SysdumpInput): readonly Part[] {
  const program = (name: string, argv: string): Part => programPart(name, argv.split(" "), exec);
  return [
    textPart("versions/kproxy.txt", "kproxy itself", () => versions.map((line) => `${line}\n`).join("")),
    textPart("configuration/effective.yaml", "flags and --config", () => writeConfigYaml(config)),
    ...runningParts(config),
    ...SAVES.map((save) => program(`rules/${save}.txt`, `${save} -c`)),
    program("rules/nft-ruleset.txt", "nft list ruleset"),
    program("rules/ipvsadm.txt", "ipvsadm -Sn"),
    program("rules/ipset.txt", "ipset save"),
    ...NETWORK.map(([name, args]) => program(`network/${name}.json`, `ip -json ${args}`)),
    programPart("network/settings.txt", ["sysctl", "-a", "-r", SETTINGS], exec),
    program("network/conntrack-count.txt", "conntrack -C"),
    program("network/conntrack-statistics.txt", "conntrack -S"),
    ...TOOL_VERSIONS.map(([name, argv]) => program(`versions/${name}.txt`, argv)),
  ];
}

const SOCKET_PAGES: readonly (readonly [name: string, path: string])[] = [
  ["status.json", STATUS_PATH],
  ["configuration.json", CONFIG_PATH],
  ["objects.json", OBJECTS_PATH],
];
const METRICS_PAGES: readonly (readonly [name: string, path: string])[] = [
  ["metrics.txt", "/metrics"],
  ["proxy-mode.txt", "/proxyMode"],
  ["configz.json", "/configz"],
  ["flagz.txt", "/flagz"],
  ["statusz.txt", "/statusz"],
];
const HEALTH_PAGES: readonly (readonly [name: string, path: string])[] = [
  ["healthz.json", "/healthz"],
  ["livez.json", "/livez"],
  ["readyz.json", "/readyz"],
];

/** Status pages and metrics of the running kproxy or kube-proxy. */
function runningParts(
  { metricsBindAddress, healthzBindAddress, kproxy: { socket } }: KubeProxyConfiguration,
): readonly Part[] {
  const socketPages = socket === ""
    ? []
    : SOCKET_PAGES.map(([name, path]) => pagePart(`running/${name}`, { socket, path }));
  const pagesAt = (address: string, pages: readonly (readonly [string, string])[]): readonly Part[] => {
    if (address === "") return [];
    const [bound, port] = splitHostPort(address);
    const host = localHost(bound);
    return pages.map(([name, path]) => pagePart(`running/${name}`, { host, port, path }));
  };
  return [
    ...socketPages,
    ...pagesAt(metricsBindAddress, METRICS_PAGES),
    ...pagesAt(healthzBindAddress, HEALTH_PAGES),
  ];
}

const REMOVED = "[removed]";

/** Names of secrets, by their ends. */
const NAMES =
  "(?:token|password|passwd|passphrase|secret|api[-_]?key|access[-_]?key(?:[-_]?id)?|private[-_]?key" +
  "|client-key-data|client-certificate-data)";
/** Separator of a name and its value; quotes in a text that is itself in JSON have a backslash. */
const STANDS_FOR = `\\\\?["']?\\s*[:=]\\s*`;

/** Patterns of secrets, with the text that stays in front. Lengths are bounded, or repeated beginnings would take for ever. */
const SECRETS: readonly RegExp[] = [
  // PEM keys, with plain line ends or those of JSON; PGP keys end otherwise.
  /(-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----)[\s\S]*?(?=-----END|$)/g,
  // Tokens of a service account, or of OpenID Connect.
  /()\beyJ[\w-]{8,512}\.[\w-]{8,4096}\.[\w-]*/g,
  // Base64 of PEM, as in kubeconfigs: "-----BEGIN " begins so.
  /()\bLS0tLS1CRUdJTi[\w+/=]*/g,
  // Key ids of AWS.
  /()\b(?:AKIA|ASIA)[A-Z0-9]{16}\b/g,
  // Headers, up to the end of the line.
  /(\bauthorization["']?\s*[:=]\s*["']?(?:basic|bearer)?[ \t]*)[^\r\n"']+/gi,
  /(\b(?:set-)?cookie["']?\s*[:=]\s*["']?)[^\r\n"']+/gi,
  /(\b(?:bearer|basic)\s+)[\w.~+/=-]{8,}/gi,
  // A quoted value; after a colon and a blank, the rest of the line; else a word.
  new RegExp(`(${NAMES}${STANDS_FOR}")(?:\\\\.|[^"\\\\])+`, "gi"),
  new RegExp(`(${NAMES}${STANDS_FOR}\\\\")[^"\\\\]+`, "gi"),
  new RegExp(`(${NAMES}${STANDS_FOR}')[^']+`, "gi"),
  new RegExp(`(${NAMES}:[ \\t]+)[^\\s"'][^\\r\\n"]*`, "gi"),
  new RegExp(`(${NAMES}${STANDS_FOR}(?:\\\\["'])?)[^\\s"',;&}\\\\]+`, "gi"),
  new RegExp(`(--[\\w-]{0,40}${NAMES}[ \\t]+)[^\\s"']+`, "gi"),
  // User and password in a URL, also with an @ in them.
  /(\b[a-z][a-z0-9+.-]{0,20}:\/\/)[^\s/"']{1,512}(?=@)/gi,
];

export function withoutSecrets(text: string): string {
  return SECRETS.reduce(
    (rest, secret) => rest.replace(secret, (_, before: string) => before + REMOVED),
    text,
  );
}

const BLOCK_BYTES = 512;
const NAME_BYTES = 100;
/** The format stores a size in eleven octal digits. */
const MAX_BYTES = 8 ** 11 - 1;

export interface TarFile {
  /** Name with its folders, at most 100 bytes. */
  readonly name: string;
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly modifiedMs: number;
}

/**
 * Pieces of a file in a tar archive, in order. Once unpacked, only its owner may read it.
 *
 * @throws {RangeError} if its name or content is too long
 */
export function* tarPieces({ name, bytes, modifiedMs }: TarFile): Generator<Uint8Array<ArrayBuffer>> {
  yield header(name, bytes.length, modifiedMs);
  yield bytes;
  const rest = bytes.length % BLOCK_BYTES;
  if (rest > 0) yield new Uint8Array(BLOCK_BYTES - rest);
}

export function tarEnd(): Uint8Array<ArrayBuffer> {
  return new Uint8Array(2 * BLOCK_BYTES);
}

function header(name: string, size: number, modifiedMs: number): Uint8Array<ArrayBuffer> {
  const block = new Uint8Array(BLOCK_BYTES);
  const encoder = new TextEncoder();
  const put = (offset: number, text: string): void => block.set(encoder.encode(text), offset);
  if (name === "" || encoder.encode(name).length > NAME_BYTES) {
    throw new RangeError(`"${name}" is too long for a name in an archive`);
  }
  if (size > MAX_BYTES) throw new RangeError(`${name} is too long for an archive`);
  put(0, name);
  put(100, octal(0o600, 7));
  put(108, octal(0, 7));
  put(116, octal(0, 7));
  put(124, octal(size, 11));
  put(136, octal(Math.max(0, Math.floor(modifiedMs / 1_000)), 11));
  // The checksum is computed with blanks in its own place.
  put(148, " ".repeat(8));
  put(156, "0");
  put(257, "ustar\0" + "00");
  put(265, "root");
  put(297, "root");
  const sum = block.reduce((total, byte) => total + byte, 0);
  put(148, `${octal(sum, 6)}\0 `);
  return block;
}

function octal(value: number, digits: number): string {
  return value.toString(8).padStart(digits, "0");
}

export interface SysdumpOptions {
  readonly parts: readonly Part[];
  /** Folder of all files in the archive. */
  readonly folder: string;
  readonly limits: Omit<PartLimits, "signal">;
  /** Ends the dump; the archive is cut off. */
  readonly signal: AbortSignal;
  readonly nowMs: () => number;
  /** Receives the part that is read next. */
  readonly say: (text: string) => void;
  /** Receives each part that was read. */
  readonly onOutcome: (outcome: PartOutcome) => void;
}

/**
 * Pieces of the archive, uncompressed. Only one part is in memory at a time; the list of parts comes last.
 *
 * @throws the reason of `signal`
 */
export async function* sysdump(options: SysdumpOptions): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  const { parts, folder, limits, signal, nowMs, say, onOutcome } = options;
  const listed: Record<keyof PartOutcome, unknown>[] = [];
  for (const part of parts) {
    signal.throwIfAborted();
    say(`Reading ${part.from}`);
    const outcome = await readPart(part, { ...limits, signal }, nowMs);
    onOutcome(outcome);
    const { name, from, bytes, problem, tookMs } = outcome;
    listed.push({ name, from, bytes: bytes?.length ?? null, problem, tookMs: Math.round(tookMs) });
    if (bytes !== null) yield* tarPieces({ name: `${folder}/${name}`, bytes, modifiedMs: nowMs() });
  }
  // The list of parts, their sources, and why they are missing or incomplete.
  const list = { apiVersion: API_VERSION, kind: "SysdumpParts", parts: listed };
  const bytes = new TextEncoder().encode(`${JSON.stringify(list, null, 2)}\n`);
  yield* tarPieces({ name: `${folder}/parts.json`, bytes, modifiedMs: nowMs() });
  yield tarEnd();
}
