/**
 * A working nft in memory, for what a service proxy does: transactions, dry runs and lists of tables. `tests/kernel` runs the
 * same cases on it and on the real program.
 *
 * Not modelled: semantics of rules, types of keys, and commands that kproxy never gives.
 *
 * @module
 */
import { ExecError } from "../../lib/errors.ts";
import { type Exec, type ExecOptions, type ExecResult, wholeText } from "../../lib/kernel/exec.ts";
import { startRecording } from "./fake_record.ts";

interface FakeChain {
  hook: string;
  rules: { readonly text: string; readonly handle: number }[];
}

interface FakeSet {
  readonly kind: "set" | "map";
  /** Lines of the definition, as listed between the braces. */
  spec: readonly string[];
  readonly elements: Map<string, string>;
}

interface FakeTable {
  comment: string;
  /** True: another process owns the table. */
  readonly isOwned: boolean;
  handles: number;
  readonly chains: Map<string, FakeChain>;
  readonly sets: Map<string, FakeSet>;
}

type Tables = Map<string, FakeTable>;

/** An error of the kernel. */
class Refusal extends Error {}

const NOT_FOUND = "No such file or directory";
const EXISTS = "File exists";
const NOT_SUPPORTED = "Operation not supported";
const BUSY = "Device or resource busy";

/** One run of nft. */
export interface NftRun {
  readonly argv: readonly string[];
  readonly stdin: string;
  readonly code: number;
}

/** An {@linkcode Exec} with a program nft that works in memory. */
export class FakeNft implements Exec {
  /** Programs started, in order. */
  readonly runs: NftRun[] = [];
  /** Output of `nft --version`. */
  version = "nftables v1.0.6 (Lester Gooch #5)\n";
  /** Refuses lines of transactions, with nft's error. */
  refuse: (line: string) => string | undefined = () => undefined;
  readonly #refusesNothing = this.refuse;
  /** Result of a run instead of its work. */
  fail: (argv: readonly string[], stdin: string) => ExecResult | undefined = () => undefined;
  /** True: a kernel before 5.10, which accepts comments of tables and loses them. */
  forgetsTableComments = false;
  /** Replaces the output of a table's list. */
  print: (listed: string) => string = (listed) => listed;
  /** Objects that dry runs would have added, e.g. `ip kproxy: rule services`. On Linux 6.18 they corrupt concurrent lists. */
  readonly triedAdditions: string[] = [];
  /** Called after each committed transaction. */
  onCommit: () => void = () => {};
  #tables: Tables = new Map();
  readonly #recorder = startRecording("nft", () => ({
    "nft -a list ruleset": Array.from(this.#tables, ([name, table]) => list(name, table)).join(""),
  }));

  /** Runs of nft that list something. */
  get lists(): readonly string[] {
    return this.runs.map(({ argv }) => argv.join(" ")).filter((command) => / (list|monitor)\b/.test(command));
  }

  /** Runs with transactions, without dry runs. */
  get transactions(): readonly NftRun[] {
    return this.runs.filter(({ argv }) => argv.includes("-f") && !argv.includes("-c"));
  }

  /** Output of `nft -a list table`; `""` if there is no such table. */
  listed(table: string): string {
    const found = this.#tables.get(table);
    return found === undefined ? "" : list(table, found);
  }

  /** Output of `nft -j list table`, with rules and definitions as text; `""` if there is no such table. */
  json(table: string): string {
    const found = this.#tables.get(table);
    if (found === undefined) return "";
    const { comment, chains, sets } = found;
    const leads = (
      text: string,
    ) => [text, ...text.split(" "), ...targets(text).map((target) => ({ target }))];
    return JSON.stringify({
      nftables: [
        { table: { name: table, comment } },
        ...[...sets].map(([name, { kind, spec, elements }]) => {
          const pairs = [...elements].map(([key, value]) => [{ concat: key.split(" . ") }, leads(value)]);
          return { [kind]: { name, spec, elem: kind === "map" ? pairs : [...elements.keys()] } };
        }),
        ...[...chains].flatMap(([name, { hook, rules }]) => [
          { chain: { name, ...(hook === "" ? {} : { hook }) } },
          ...rules.map(({ text }) => ({ rule: { chain: name, expr: leads(text) } })),
        ]),
      ],
    });
  }

  async run(argv: readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    // A process takes at least one turn, so that races with it show here, too.
    await Promise.resolve();
    const [program, ...args] = argv;
    if (program === "sysctl") return { code: 0, stdout: "0\n", stderr: "" };
    if (program !== "nft") throw new ExecError(argv, -1, `entity not found: ${program}`);
    const stdin = wholeText(options.stdin ?? "");
    const failed = this.fail(argv, stdin);
    if (this.refuse !== this.#refusesNothing || this.forgetsTableComments) this.#recorder?.end();
    const isAsked = failed === undefined && !args.includes("--version");
    const ended = isAsked ? this.#recorder?.begin(argv, stdin) : undefined;
    const result = failed ?? this.#run(args, stdin);
    ended?.(result);
    this.runs.push({ argv, stdin, code: result.code });
    return result;
  }

  /** Runs commands of another process on the tables. */
  async others(text: string): Promise<void> {
    const ended = this.#recorder?.begin(["nft", "-f", "-"], text);
    const result = await Promise.resolve(this.#transaction(text, { dry: false, byOthers: true }));
    ended?.(result);
    const { code, stderr } = result;
    if (code !== 0) throw new Error(stderr);
  }

  #run(args: readonly string[], stdin: string): ExecResult {
    if (args.includes("--version")) return { code: 0, stdout: this.version, stderr: "" };
    if (args.includes("-f")) {
      return this.#transaction(stdin, { dry: args.includes("-c"), byOthers: false });
    }
    const [, object, family, name, container] = args.filter((word) => !word.startsWith("-"));
    const printed = this.#printed(object, `${family} ${name}`, container, args.includes("-t"));
    return printed === ""
      ? { code: 1, stdout: "", stderr: `Error: ${NOT_FOUND}\n${args.slice(1).join(" ")}\n` }
      : { code: 0, stdout: this.print(printed), stderr: "" };
  }

  #printed(
    object: string | undefined,
    name: string,
    container: string | undefined,
    isTerse: boolean,
  ): string {
    switch (object) {
      case "flowtables":
        return Array.from(this.#tables.keys(), (table) => `table ${table} {\n}\n`).join("") || "\n";
      case "ruleset":
        return Array.from(
          this.#tables,
          ([table, found]) => list(table, isTerse ? withoutElements(found) : found),
        )
          .join("") || "\n";
      case "set":
      case "map": {
        const { sets, ...rest } = this.#tables.get(name) ?? refuse(NOT_FOUND);
        const set = sets.get(container ?? "");
        if (set === undefined) return "";
        return list(name, { ...rest, chains: new Map(), sets: new Map([[container ?? "", set]]) });
      }
      default:
        return this.listed(name);
    }
  }

  #transaction(
    text: string,
    { dry, byOthers }: { readonly dry: boolean; readonly byOthers: boolean },
  ): ExecResult {
    const tables = copyOf(this.#tables);
    const said = this.forgetsTableComments ? text.replaceAll(/^(add table [^{\n]*) \{.*/gm, "$1") : text;
    const complaints: string[] = [];
    for (const [index, line] of said.split("\n").entries()) {
      if (line === "" || line.startsWith("#")) continue;
      try {
        const refusal = this.refuse(line);
        if (refusal !== undefined) throw new Refusal(refusal);
        const [, , family, name] = line.split(" ");
        if (!byOthers && tables.get(`${family} ${name}`)?.isOwned) {
          throw new Refusal("Operation not permitted");
        }
        command(tables, line);
      } catch (error) {
        if (!(error instanceof Refusal)) throw error;
        complaints.push(
          `/dev/stdin:${
            index + 1
          }:1-9: Error: Could not process rule: ${error.message}\n${line}\n^^^^^^^^^\n`,
        );
      }
    }
    if (dry) this.triedAdditions.push(...additions(this.#tables, tables));
    if (complaints.length > 0) return { code: 1, stdout: "", stderr: complaints.join("") };
    if (!dry) {
      this.#tables = tables;
      this.onCommit();
    }
    return { code: 0, stdout: "", stderr: "" };
  }
}

/** A copy for a transaction to work on; rules and elements themselves never change. */
function copyOf(tables: Tables): Tables {
  return new Map([...tables].map(([name, { chains, sets, ...rest }]) => [name, {
    ...rest,
    chains: new Map([...chains].map(([chain, { hook, rules }]) => [chain, { hook, rules: [...rules] }])),
    sets: new Map(
      [...sets].map(([set, { elements, ...spec }]) => [set, { ...spec, elements: new Map(elements) }]),
    ),
  }]));
}

function* additions(before: Tables, after: Tables): Generator<string> {
  for (const [table, { chains, sets }] of after) {
    const known = before.get(table);
    if (known === undefined) yield `${table}: table`;
    for (const [name, { rules }] of chains) {
      const old = known?.chains.get(name);
      if (old === undefined) yield `${table}: chain ${name}`;
      for (const rule of rules) if (!old?.rules.includes(rule)) yield `${table}: rule ${name}`;
    }
    for (const [name, { elements }] of sets) {
      const old = known?.sets.get(name);
      if (old === undefined) yield `${table}: set ${name}`;
      for (const key of elements.keys()) {
        if (!old?.elements.has(key)) yield `${table}: element ${name} ${key}`;
      }
    }
  }
}

function withoutElements({ sets, ...rest }: FakeTable): FakeTable {
  const empty = sets.entries().map(([name, set]) => [name, { ...set, elements: new Map() }] as const);
  return { ...rest, sets: new Map(empty) };
}

function command(tables: Tables, line: string): void {
  const [verb, object, family, tableName, name = "", ...words] = line.split(" ");
  const key = `${family} ${tableName}`;
  const rest = words.join(" ");
  if (object === "table") return tableCommand(tables, verb, key, line);
  const table = tables.get(key) ?? refuse(NOT_FOUND);
  if (object === "chain") chainCommand(table, verb, name, rest);
  else if (object === "rule") addRule(table, name, rest);
  else if (object === "set" || object === "map") setCommand(table, { verb, kind: object, name, rest });
  else if (object === "element") elementCommand(table, verb, name, rest);
  else throw new TypeError(`FakeNft does not know: ${line}`);
}

function tableCommand(tables: Tables, verb: string | undefined, key: string, line: string): void {
  if (verb === "create" && tables.has(key)) refuse(EXISTS);
  if (verb === "delete") {
    if (!tables.delete(key)) refuse(NOT_FOUND);
  } else if (!tables.has(key)) {
    const comment = /comment "(.*)"/.exec(line)?.[1] ?? "";
    const isOwned = line.includes("flags owner");
    tables.set(key, { comment, isOwned, handles: 0, chains: new Map(), sets: new Map() });
  }
}

function chainCommand(table: FakeTable, verb: string | undefined, name: string, rest: string): void {
  // As nft prints it, however it was written.
  const hook = rest.replace(/^\{ (.*) \}$/, "$1").replace(" priority 0;", " priority filter;");
  const chain = table.chains.get(name);
  if (verb === "create" && chain !== undefined) refuse(EXISTS);
  if (verb === "add" || verb === "create") {
    if (chain === undefined) table.chains.set(name, { hook, rules: [] });
    else if (hook !== "" && hook !== chain.hook) refuse(NOT_SUPPORTED);
    return;
  }
  if (chain === undefined) return refuse(NOT_FOUND);
  if (verb === "flush") chain.rules = [];
  else {
    if (isUsed(table, name)) refuse(BUSY);
    table.chains.delete(name);
  }
}

function addRule(table: FakeTable, name: string, rest: string): void {
  const chain = table.chains.get(name) ?? refuse(NOT_FOUND);
  const [, index, text = rest] = /^index (\d+) (.*)$/.exec(rest) ?? [];
  if (index !== undefined && chain.rules[Number(index)] === undefined) refuse(NOT_FOUND);
  for (const target of targets(text)) {
    const { hook } = table.chains.get(target) ?? refuse(NOT_FOUND);
    if (hook !== "") refuse(NOT_SUPPORTED);
  }
  for (const [, set = ""] of text.matchAll(/@(\S+)/g)) if (!table.sets.has(set)) refuse(NOT_FOUND);
  chain.rules.push({ text, handle: ++table.handles });
}

interface SetCommand {
  readonly verb: string | undefined;
  readonly kind: "set" | "map";
  readonly name: string;
  readonly rest: string;
}

function setCommand(table: FakeTable, { verb, kind, name, rest }: SetCommand): void {
  const set = table.sets.get(name);
  const spec = rest.replace(/^\{ (.*) \}$/, "$1").split(";").map((part) => part.trim())
    .filter((part) => part !== "");
  if (verb === "add") {
    if (set === undefined) table.sets.set(name, { kind, spec, elements: new Map() });
    else if (spec.some((part) => part.startsWith("timeout"))) set.spec = spec;
    else if (withoutComment(spec) !== withoutComment(set.spec)) refuse(EXISTS);
    return;
  }
  if (set === undefined) return refuse(NOT_FOUND);
  if (verb === "flush") return set.elements.clear();
  const isNamed = [...table.chains.values()].some(({ rules }) =>
    rules.some(({ text }) => text.split(" ").includes(`@${name}`))
  );
  if (isNamed) refuse(BUSY);
  table.sets.delete(name);
}

function withoutComment(spec: readonly string[]): string {
  return spec.filter((part) => !part.startsWith("comment")).join(";");
}

function elementCommand(table: FakeTable, verb: string | undefined, name: string, rest: string): void {
  const { elements } = table.sets.get(name) ?? refuse(NOT_FOUND);
  for (const element of rest.replace(/^\{ (.*) \}$/, "$1").split(", ")) {
    const [left = "", value = ""] = element.split(" : ");
    const key = left.replace(/ comment ".*"$/, "");
    const known = elements.get(key);
    if (verb === "delete") {
      if (!elements.delete(key)) refuse(NOT_FOUND);
      continue;
    }
    if (known !== undefined && known !== value) refuse(EXISTS);
    for (const target of targets(value)) if (!table.chains.has(target)) refuse(NOT_FOUND);
    elements.set(key, value);
  }
}

function isUsed(table: FakeTable, chain: string): boolean {
  for (const { rules } of table.chains.values()) {
    if (rules.some(({ text }) => targets(text).includes(chain))) return true;
  }
  for (const { elements } of table.sets.values()) {
    for (const value of elements.values()) if (targets(value).includes(chain)) return true;
  }
  return false;
}

function targets(text: string): readonly string[] {
  return Array.from(text.matchAll(/\b(?:goto|jump) ([^\s,}]+)/g), ([, name = ""]) => name);
}

function refuse(message: string): never {
  throw new Refusal(message);
}

function list(name: string, { comment, isOwned, chains, sets }: FakeTable): string {
  const lines = [`table ${name} { # handle 1${isOwned ? " progname nft" : ""}`];
  if (isOwned) lines.push("\tflags owner");
  if (comment !== "") lines.push(`\tcomment "${comment}"`);
  for (const [set, { kind, spec, elements }] of sets) {
    lines.push(`\t${kind} ${set} { # handle 1`, ...spec.map((part) => `\t\t${part}`));
    const texts = [...elements].map(([key, value]) => value === "" ? key : `${key} : ${value}`);
    if (texts.length > 0) lines.push(`\t\telements = { ${texts.join(",\n\t\t\t     ")} }`);
    lines.push("\t}", "");
  }
  for (const [chain, { hook, rules }] of chains) {
    lines.push(`\tchain ${chain} { # handle 1`);
    if (hook !== "") lines.push(`\t\t${hook}`);
    for (const { text, handle } of rules) lines.push(`\t\t${text} # handle ${handle}`);
    lines.push("\t}", "");
  }
  return [...lines, "}", ""].join("\n");
}
