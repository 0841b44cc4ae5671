/**
 * Effect of IPVS mode's transactions on a kernel: a model that takes their lines one by one and refuses what the real
 * tools refuse, so that a test detects a line that is wrong or comes too early.
 *
 * @module
 */
import type { HeldObjects } from "../../lib/backend/ipvs/store/objects.ts";
import type { IpvsTransaction, Step } from "../../lib/backend/ipvs/store/transaction.ts";
import { parseSets, type SavedSet, type SetDefinition } from "../../lib/netfilter/ipset.ts";
import type { IptablesRuleset } from "../../lib/netfilter/iptables_save.ts";
import { parseIpvsTable } from "../../lib/netfilter/ipvs.ts";
import { RestoredTables } from "./fake_iptables.ts";
import { formatIpvsTable } from "./saved_texts.ts";

/** One line for a program; for iptables-restore, one table's block, which is all or nothing. */
type Work =
  | { readonly program: "ipset" | "ip" | "ipvsadm"; readonly line: string }
  | { readonly program: "iptables"; readonly table: string; readonly lines: readonly string[] };

/** Units of work between which a process can be killed: the lines of the steps, in order. */
export function workOf(transactions: IpvsTransaction): Work[] {
  return transactions.steps.flatMap(({ program, lines }: Step): Work[] => {
    if (program !== "iptables") return lines.map((line) => ({ program, line }));
    const blocks = lines.join("\n").matchAll(/^\*(\S+)\n((?:.*\n)*?)COMMIT$/gm);
    return Array.from(blocks, ([, table = "", rules = ""]) => {
      return { program, table, lines: rules.split("\n").slice(0, -1) };
    });
  });
}

/** Addresses that are invalid for real servers: not unicast, or link-local, which would need a device. */
const NO_UNICAST_REGEXP =
  /^(?:0\.0\.0\.0|255\.255\.255\.255|(?:22[4-9]|23\d)\..*|::|fe[89ab].:.*|ff..:.*|::ffff:.*)$/;

/** Tables that the mode writes. */
const TABLES = ["filter", "nat"] as const;

/** Kernel state of one family. A drained real server is gone at once. */
export class KernelModel {
  readonly sets = new Map<string, { definition: SetDefinition; entries: Set<string> }>();
  readonly servers = new Map<string, { options: string; real: Map<string, string> }>();
  readonly #tables = new RestoredTables();
  addresses: Set<string> | null = null;
  /** Broadcast addresses of the node's links. */
  readonly broadcasts = new Set<string>();
  /** Further refusals of this kernel: the tool's error, without its name. */
  refuse: (program: "ipset" | "ip" | "ipvsadm" | "iptables", line: string) => string | undefined = () =>
    undefined;

  readonly #refusesNothing = this.refuse;

  /** False if a test made it refuse what other kernels accept. */
  get isPlain(): boolean {
    return this.refuse === this.#refusesNothing && this.broadcasts.size === 0;
  }

  get tables(): IptablesRuleset {
    return new Map(TABLES.map((table) => [table, this.#tables.saved(table)]));
  }

  static after(...transactions: readonly IpvsTransaction[]): KernelModel {
    const kernel = new KernelModel();
    for (const one of transactions) kernel.apply(one);
    return kernel;
  }

  apply(transactions: IpvsTransaction): void {
    for (const work of workOf(transactions)) this.do(work);
  }

  /** Applies the work. @throws {Error} where the tool would fail; for all but iptables with its error */
  do(work: Work): void {
    for (const line of work.program === "iptables" ? work.lines : [work.line]) {
      const refusal = this.refusalOf(work.program, line);
      if (refusal !== undefined) throw new Error(refusal);
    }
    switch (work.program) {
      case "ipset":
        return this.#ipset(work.line);
      case "ip":
        return this.#ip(work.line);
      case "ipvsadm":
        return this.#ipvsadm(work.line);
      case "iptables":
        return void this.restore(work.table, work.lines);
    }
  }

  /** Error for a line that would be refused in any state; undefined if it would not. */
  refusalOf(program: Work["program"], line: string): string | undefined {
    const refusal = this.refuse(program, line);
    return refusal !== undefined || program === "iptables" ? refusal : this.#naturalRefusal(program, line);
  }

  #naturalRefusal(program: "ipset" | "ip" | "ipvsadm", line: string): string | undefined {
    if (program === "ipvsadm") {
      const [, server = "", address = ""] = /^-a (\S+ \S+) -r \[?(.*?)\]?:\d+ /.exec(line) ?? [];
      return this.servers.has(server) && (NO_UNICAST_REGEXP.test(address) || this.broadcasts.has(address))
        ? "Invalid operation.  Possibly wrong module version, address not unicast, ..."
        : undefined;
    }
    if (program === "ip") {
      return /^address add (::1?|ff.*)\/128 /.test(line)
        ? "RTNETLINK answers: Cannot assign requested address"
        : undefined;
    }
    const [command, name = "", entry = ""] = line.split(" ");
    const type = this.sets.get(name)?.definition.type;
    if (!(command === "add" || command === "del") || type === undefined) return undefined;
    if (type === "hash:ip" && (entry === "0.0.0.0" || entry === "::")) {
      return "Null-valued element, cannot be stored in a hash type of set";
    }
    return type === "hash:ip,port,net" && entry.endsWith("/0")
      ? "The value of the CIDR parameter of the IP address is invalid"
      : undefined;
  }

  #ipset(line: string): void {
    const [command, name = "", entry = ""] = line.split(" ");
    const set = this.sets.get(name);
    const wrong = (problem: string): never => {
      throw new Error(problem);
    };
    if (command === "create") {
      const definition = parseSets(line).get(name)?.definition ?? wrong("no set");
      if (set !== undefined) wrong("Set cannot be created: set with the same name already exists");
      this.sets.set(name, { definition, entries: new Set() });
      return;
    }
    if (set === undefined) return wrong("The set with the given name does not exist");
    if (command === "destroy") {
      if (JSON.stringify(this.#snapshotTables()).includes(`--match-set ${name} `)) {
        wrong("Set cannot be destroyed: it is in use by a kernel component");
      }
      this.sets.delete(name);
    } else if (command === "swap") {
      const other = this.sets.get(entry) ?? wrong("there is nothing to swap with");
      this.sets.set(name, { ...other, definition: { ...other.definition, name } });
      this.sets.set(entry, { ...set, definition: { ...set.definition, name: entry } });
    } else if (command === "add") {
      if (set.entries.has(entry)) wrong("Element cannot be added to the set: it's already added");
      if (set.entries.size >= set.definition.maxElements) wrong("Hash is full, cannot add more elements");
      set.entries.add(entry);
    } else if (command !== "del" || !set.entries.delete(entry)) {
      wrong("Element cannot be deleted from the set: it's not added");
    }
  }

  #ip(line: string): void {
    if (line === "link add kube-ipvs0 type dummy") {
      if (this.addresses !== null) throw new Error("ip: kube-ipvs0 exists");
      this.addresses = new Set();
      return;
    }
    const [, command, address = "", device = ""] =
      /^address (add|del) (\S+)\/(?:32|128) dev (\S+)$/.exec(line) ?? [];
    if (this.addresses === null || device !== "kube-ipvs0") throw new Error(`Cannot find device "${device}"`);
    // The kernel ignores it without an error.
    if (address === "0.0.0.0" && command === "add") return;
    if (command === "add") {
      if (this.addresses.has(address)) throw new Error("RTNETLINK answers: File exists");
      this.addresses.add(address);
    } else if (!this.addresses.delete(address)) {
      throw new Error("RTNETLINK answers: Cannot assign requested address");
    }
  }

  #ipvsadm(line: string): void {
    const [, command = "", server = "", rest = ""] = /^-([AEDaedZ]) (\S+ \S+)(?: (.*))?$/.exec(line) ?? [];
    const known = this.servers.get(server);
    const [, real = "", options = ""] = /^-r (\S+)(?: (.*))?$/.exec(rest) ?? [];
    if (command === "A") {
      if (known !== undefined) throw new Error("Service already exists");
      this.servers.set(server, { options: rest, real: new Map() });
      return;
    }
    if (known === undefined) {
      throw new Error(/[EDZ]/.test(command) ? "No such service" : "Service not defined");
    }
    if (command === "E") known.options = rest;
    else if (command === "D") this.servers.delete(server);
    else if (command !== "Z") {
      if (known.real.has(real) !== (command !== "a")) {
        throw new Error(command === "a" ? "Destination already exists" : "No such destination");
      }
      if (command === "d") known.real.delete(real);
      else known.real.set(real, options);
    }
  }

  /**
   * Restores a block of iptables-restore; yields its output.
   *
   * @throws {Error} if a line is refused; then nothing of the block is applied
   */
  restore(table: string, lines: readonly string[]): string {
    for (const line of lines) {
      const set = /^-[AI] .*--match-set (\S+)/.exec(line)?.[1];
      if (set !== undefined && !this.sets.has(set)) throw new Error(`Set ${set} doesn't exist.`);
    }
    return this.#tables.restore([`*${table}`, ...lines, "COMMIT", ""].join("\n"));
  }

  /** Changes the rules of a chain as another program would; ignored if there is no such chain. */
  edit(table: string, chain: string, change: (rules: string[]) => unknown): void {
    const found = this.#tables.chains(table).get(chain);
    if (found === undefined) return;
    const rules = [...found];
    change(rules);
    this.#tables.restore(
      [`*${table}`, `-F ${chain}`, ...rules.map((rule) => `-A ${chain} ${rule}`), "COMMIT", ""].join("\n"),
    );
  }

  #ipvsText(): string {
    return [...this.servers].flatMap(([server, { options, real }]) => [
      `-A ${server} ${options}`,
      ...[...real].map(([key, realOptions]) => `-a ${server} -r ${key} ${realOptions}`),
    ]).map((line) => line + "\n").join("");
  }

  #snapshotTables(): Record<string, Record<string, readonly string[]>> {
    return Object.fromEntries(
      TABLES.map((table) => [
        table,
        Object.fromEntries(
          [...this.#tables.chains(table)].sort(([left], [right]) => left < right ? -1 : 1)
            // In this chain the order means nothing: each rule drops other packets.
            .map(([name, rules]) => [name, name === "KUBE-IPVS-OUT-FILTER" ? [...rules].sort() : rules]),
        ),
      ]),
    );
  }

  /** State as the tools list it. */
  observe(): HeldObjects & { readonly tables: IptablesRuleset } {
    const sets = new Map<string, SavedSet>([...this.sets].map(([name, set]) => [name, { name, ...set }]));
    return {
      addresses: this.addresses === null ? null : new Set(this.addresses),
      virtualServers: parseIpvsTable(this.#ipvsText()).virtualServers,
      sets,
      tables: this.tables,
    };
  }

  /** Whole state in a fixed order; sizes of sets, which do not affect packets, are left out. */
  snapshot(): unknown {
    const table = parseIpvsTable(this.#ipvsText());
    const lines = formatIpvsTable(table).split("\n").filter((line) => line !== "").sort();
    return {
      servers: lines,
      sets: Object.fromEntries(
        [...this.sets].sort(([left], [right]) => left < right ? -1 : 1)
          .map(([name, { definition, entries }]) => [name, [definition.type, ...[...entries].sort()]]),
      ),
      addresses: this.addresses === null ? null : [...this.addresses].sort(),
      tables: this.#snapshotTables(),
    };
  }
}
