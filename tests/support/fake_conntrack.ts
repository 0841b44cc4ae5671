/**
 * Connection tracking in memory behind the program `conntrack`: as much of it as kproxy uses, UDP only. `tests/kernel` compares
 * it with the real one.
 *
 * @module
 */
import { type Exec, type ExecOptions, type ExecResult, wholeText } from "../../lib/kernel/exec.ts";

interface Flow {
  readonly family: string;
  readonly fields: ReadonlyMap<Field, string>;
}

type Field =
  | "src"
  | "dst"
  | "sport"
  | "dport"
  | "replySrc"
  | "replyDst"
  | "replySport"
  | "replyDport"
  | "zone"
  | "origZone"
  | "replyZone";

const FIELDS: Readonly<Record<string, Field>> = {
  "-s": "src",
  "--orig-src": "src",
  "-d": "dst",
  "--orig-dst": "dst",
  "--sport": "sport",
  "--orig-port-src": "sport",
  "--dport": "dport",
  "--orig-port-dst": "dport",
  "-r": "replySrc",
  "--reply-src": "replySrc",
  "-q": "replyDst",
  "--reply-dst": "replyDst",
  "--reply-port-src": "replySport",
  "--reply-port-dst": "replyDport",
  "-w": "zone",
  "--zone": "zone",
  "--orig-zone": "origZone",
  "--reply-zone": "replyZone",
};
const SAID = "conntrack v1.4.7 (conntrack-tools): ";
const HINT = "Try `conntrack -h' or 'conntrack --help' for more information.\n";

interface Command {
  readonly action: string;
  readonly family: string | undefined;
  readonly fields: Map<Field, string>;
}

/** The program and its flows; see the module. */
export class FakeConntrack implements Exec {
  /** Command lines that were run. */
  readonly runs: string[] = [];
  /** Results of the next runs, in order, instead of their work. */
  readonly planned: (Partial<ExecResult> | Error)[] = [];
  /** False: a version before 1.4.7, which reads no deletions from a file. */
  batches = true;
  #flows: Flow[] = [];

  /** Adds a flow, translated if `reply` is given; both are `ip:port`. */
  add(from: string, to: string, reply = to, zone: Partial<Record<Field, string>> = {}): void {
    const [[src, sport], [dst, dport], [replySrc, replySport]] = [from, to, reply].map(splitAddress) as [
      [string, string],
      [string, string],
      [string, string],
    ];
    const family = src.includes(":") ? "ipv6" : "ipv4";
    const fields = {
      src,
      sport,
      dst,
      dport,
      replySrc,
      replySport,
      replyDst: src,
      replyDport: sport,
      ...zone,
    };
    this.#flows.push({ family, fields: new Map(Object.entries(fields) as [Field, string][]) });
  }

  /** All flows as `from > to < reply source`, sorted. */
  get flows(): string[] {
    return this.#flows.map(({ fields }) => {
      const zones = (["zone", "origZone", "replyZone"] as const)
        .flatMap((name) => fields.has(name) ? [`${name} ${fields.get(name)}`] : []);
      return [
        `${fields.get("src")}:${fields.get("sport")} > ${fields.get("dst")}:${fields.get("dport")} < ` +
        `${fields.get("replySrc")}:${fields.get("replySport")}`,
        ...zones,
      ].join(" ");
    }).sort();
  }

  run(argv: readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    const stdin = wholeText(options.stdin ?? "");
    this.runs.push([argv.join(" "), ...(stdin === "" ? [] : [stdin.trimEnd()])].join("\n"));
    const planned = this.planned.shift();
    if (planned instanceof Error) return Promise.reject(planned);
    if (planned !== undefined) return Promise.resolve({ code: 0, stdout: "", stderr: "", ...planned });
    return Promise.resolve(this.#run(argv.slice(1), stdin));
  }

  #run(args: readonly string[], stdin: string): ExecResult {
    if (args[0] !== "-R" && args[0] !== "--load-file") return this.#execute(parseCommand(args), false);
    if (!this.batches) {
      return { code: 2, stdout: "", stderr: `${SAID}unknown option \`${args[0]}'\n${HINT}` };
    }
    let stdout = "";
    const lines = stdin.split("\n").filter((line) => line !== "");
    for (const line of lines) stdout += this.#execute(parseCommand(line.split(" ")), true).stdout;
    return { code: 0, stdout, stderr: "" };
  }

  #execute({ action, family, fields }: Command, inBatch: boolean): ExecResult {
    const done = (what: string, count: number): string =>
      inBatch ? "" : `${SAID}${count} flow entries have been ${what}.\n`;
    if (action === "-I" || action === "-A") {
      this.#insert(fields);
      return { code: 0, stdout: "", stderr: done("created", 1) };
    }
    const matching = this.#flows.filter((flow) =>
      (family === undefined || flow.family === family) &&
      // A missing zone counts as zone 0.
      [...fields].every(([field, value]) => (flow.fields.get(field) ?? "0") === value)
    );
    const stdout = matching.map(lineOf).join("");
    if (action === "-L") return { code: 0, stdout, stderr: done("shown", matching.length) };
    if (action !== "-D") throw new TypeError(`The fake conntrack does not know ${action}`);
    this.#flows = this.#flows.filter((flow) => !matching.includes(flow));
    const code = matching.length === 0 && !inBatch ? 1 : 0;
    return { code, stdout, stderr: done("deleted", matching.length) };
  }

  #insert(fields: Map<Field, string>): void {
    const given = (field: Field, otherwise: Field): void => {
      if (!fields.has(field)) fields.set(field, fields.get(otherwise) ?? "");
    };
    given("replySrc", "dst");
    given("replyDst", "src");
    given("replySport", "dport");
    given("replyDport", "sport");
    this.#flows.push({ family: fields.get("src")?.includes(":") ? "ipv6" : "ipv4", fields });
  }
}

/** Flags whose values neither select nor identify a flow. */
const PASSED_OVER = new Set(["-p", "-t", "-u"]);

function parseCommand(args: readonly string[]): Command {
  const [action = "", ...rest] = args;
  const fields = new Map<Field, string>();
  let family: string | undefined;
  for (let i = 0; i < rest.length; i += 2) {
    const [flag = "", value = ""] = rest.slice(i, i + 2);
    const field = FIELDS[flag];
    if (flag === "-f") family = value;
    else if (field !== undefined) fields.set(field, value);
    else if (!PASSED_OVER.has(flag)) throw new TypeError(`The fake conntrack does not know ${flag}`);
  }
  return { action, family, fields };
}

function lineOf({ fields }: Flow): string {
  const of = (field: Field): string => fields.get(field) ?? "";
  const zone = (field: Field, name: string): string => fields.has(field) ? `${name}=${of(field)} ` : "";
  return `udp      17 29 src=${of("src")} dst=${of("dst")} sport=${of("sport")} dport=${of("dport")} ` +
    `${zone("origZone", "zone-orig")}[UNREPLIED] src=${of("replySrc")} dst=${of("replyDst")} ` +
    `sport=${of("replySport")} dport=${of("replyDport")} ${zone("replyZone", "zone-reply")}mark=0 ` +
    `${zone("zone", "zone")}use=1\n`;
}

function splitAddress(text: string): [string, string] {
  const colon = text.lastIndexOf(":");
  return [text.slice(0, colon).replace(/^\[|\]$/g, ""), text.slice(colon + 1)];
}
