/**
 * The programs of IPVS mode, working on a {@linkcode KernelModel} of one family: what a proxier starts when it syncs and
 * checks. Connections are not modelled.
 *
 * @module
 */
import { Iptables } from "../../lib/kernel/iptables.ts";
import type { Exec, ExecOptions, ExecResult } from "../../lib/kernel/exec.ts";
import { wholeText } from "../../lib/kernel/exec.ts";
import type { IpFamily } from "../../lib/model/objects.ts";
import { formatSets } from "../../lib/netfilter/ipset.ts";
import { renderIptablesSave } from "../../lib/netfilter/iptables_save.ts";
import { formatIpvsTable } from "../../lib/netfilter/ipvs.ts";
import { KernelModel } from "./ipvs_kernel.ts";

const DEVICE = "kube-ipvs0";

/** What ipvsadm says of a command that the kernel refuses. */
const REFUSALS: Readonly<Record<string, string>> = {
  "-A": "Service already exists",
  "-D": "No such service",
};

/** An {@linkcode Exec} with `ipvsadm`, `ipset`, `ip`, `iptables-save` and `iptables-restore` of one kernel. */
export class FakeIpvs implements Exec {
  readonly kernel = new KernelModel();
  /** Programs started, in order, each with its first option. */
  readonly runs: string[] = [];
  /** Those of them that are to be started ahead the next time. */
  readonly again: string[] = [];
  /** What this kernel does not have. */
  readonly missingSchedulers = new Set<string>();
  /** What a run ends with instead of doing its work. */
  fail: (argv: readonly string[]) => ExecResult | undefined = () => undefined;
  /** Called between a run's work and its end. */
  afterRun: (argv: readonly string[]) => Promise<void> = () => Promise.resolve();

  /** The iptables programs of this kernel. */
  iptables(family: IpFamily): Iptables {
    return new Iptables(this, {
      family,
      variant: "nft",
      version: "1.8.9",
      programs: { command: "iptables", save: "iptables-save", restore: "iptables-restore" },
    });
  }

  async run(argv: readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    this.runs.push(argv.slice(0, 2).join(" "));
    if (options.again === true) this.again.push(argv.slice(0, 2).join(" "));
    const failed = this.fail(argv);
    if (failed !== undefined) return failed;
    if (argv[1] === "-R") {
      const result = this.#restoreServers(wholeText(options.stdin ?? ""));
      await this.afterRun(argv);
      return result;
    }
    try {
      const stdout = this.#answer(argv, wholeText(options.stdin ?? ""));
      await this.afterRun(argv);
      return { code: 0, stdout, stderr: "" };
    } catch (error) {
      if (!(error instanceof Error)) throw error;
      return { code: 1, stdout: "", stderr: `${error.message}\n` };
    }
  }

  #answer(argv: readonly string[], stdin: string): string {
    const { kernel } = this;
    const lines = stdin.split("\n").filter((line) => line !== "");
    switch (argv.slice(0, argv[0] === "iptables-restore" ? 1 : 2).join(" ")) {
      case "ipvsadm -Sn":
        return formatIpvsTable({ virtualServers: kernel.observe().virtualServers, otherLines: [] });
      case "ipvsadm -Ln":
        return this.#loads(argv.slice(2).join(" "));
      case "ipset save":
        return formatSets(kernel.sets.values());
      case "ipset list":
        if (argv.includes("-name")) return [...kernel.sets.keys()].map((name) => `${name}\n`).join("");
        return [...kernel.sets].map(([name, { entries }]) =>
          `Name: ${name}\nType: any\nNumber of entries: ${entries.size}\n`
        ).join("\n");
      case "ipset restore":
        for (const line of lines) if (!this.#isDone(line)) kernel.do({ program: "ipset", line });
        return "";
      case "ip -json":
        return this.#devices(argv.includes("show"));
      case "ip -force":
        for (const line of lines) kernel.do({ program: "ip", line });
        return "";
      case "iptables-save":
        return renderIptablesSave(kernel.observe().tables);
      case "iptables-restore":
        return this.#restore(stdin);
      default:
        throw new Error(`Nobody is to start ${argv.join(" ")}`);
    }
  }

  /** Each line for itself. The status is that of the last one. */
  #restoreServers(text: string): ExecResult {
    const results = text.split("\n").filter((line) => line !== "").map((line) => this.#serverLine(line));
    const stderr = results.filter((refusal) => refusal !== "").map((refusal) => `${refusal}\n`).join("");
    return { code: (results.at(-1) ?? "") === "" ? 0 : 255, stdout: "", stderr };
  }

  /** What is said of the line: nothing, unless the kernel refuses it. */
  #serverLine(line: string): string {
    const scheduler = /^-A .* -s (\S+)/.exec(line)?.[1];
    if (scheduler !== undefined && this.missingSchedulers.has(scheduler)) {
      return "Scheduler or persistence engine not found";
    }
    try {
      this.kernel.do({ program: "ipvsadm", line });
      return "";
    } catch (error) {
      if (!(error instanceof Error)) throw error;
      return REFUSALS[line.slice(0, 2)] ?? error.message;
    }
  }

  /** What `-exist` lets pass. */
  #isDone(line: string): boolean {
    const [command, name = "", entry = ""] = line.split(" ");
    const set = this.kernel.sets.get(name);
    if (command === "create") return set !== undefined;
    return set !== undefined &&
      (command === "add" ? set.entries.has(entry) : command === "del" && !set.entries.has(entry));
  }

  /** Of one virtual server, without any connection. */
  #loads(server: string): string {
    const found = this.kernel.servers.get(server);
    if (found === undefined) throw new Error("No such service");
    const [, protocol = "", address = ""] = /^-([tu]) (\S+)$/.exec(server) ?? [];
    const lines = [...found.real].map(([key, options]) =>
      `  -> ${key} Masq ${/-w (\d+)/.exec(options)?.[1]} 0 0`
    );
    return [`${protocol === "t" ? "TCP" : "UDP"} ${address} rr`, ...lines, ""].join("\n");
  }

  #devices(one: boolean): string {
    const { addresses } = this.kernel;
    if (addresses === null && one) throw new Error(`Device "${DEVICE}" does not exist.`);
    const info = [...addresses ?? []].map((local) => ({ local, prefixlen: 32, scope: "global" }));
    const link = { ifname: DEVICE, linkinfo: { info_kind: "dummy" }, addr_info: info };
    return JSON.stringify(addresses === null ? [] : [link]);
  }

  /** A block is all or nothing; one that lists changes nothing. */
  #restore(text: string): string {
    let listed = "";
    for (const block of text.split(/^COMMIT\n/m).filter((one) => one !== "")) {
      const [head = "", ...lines] = block.trimEnd().split("\n");
      const table = head.slice(1);
      const changes = lines.filter((line) => !line.startsWith("-S "));
      this.kernel.do({ program: "iptables", table, lines: changes });
      const chains = this.kernel.observe().tables.get(table);
      for (const line of lines.filter((one) => one.startsWith("-S "))) {
        const name = line.slice(3);
        const chain = chains?.get(name);
        if (chain === undefined) throw new Error(`iptables: No chain/target/match by that name: ${name}`);
        listed += chain.rules.map((rule) => `-A ${name} ${rule}\n`).join("");
      }
    }
    return listed;
  }
}
