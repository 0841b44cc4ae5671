/**
 * The programs of IPVS mode on a {@linkcode KernelModel} of one family: what a proxier starts to sync and
 * check. Connections are not modelled.
 *
 * @module
 */
import { Iptables } from "../../lib/kernel/iptables.ts";
import { type Exec, type ExecOptions, type ExecResult, wholeText } from "../../lib/kernel/exec.ts";
import type { IpFamily } from "../../lib/model/objects.ts";
import { startRecording } from "./fake_record.ts";
import { KernelModel } from "./ipvs_kernel.ts";
import { formatIpvsTable, formatSets, renderIptablesSave } from "./saved_texts.ts";

const DEVICE = "kube-ipvs0";

/** Programs that list the whole state. */
const LISTS = [
  ["ipvsadm", "-Sn"],
  ["ipset", "save"],
  ["iptables-save"],
  ["ip", "-json", "address", "show", "dev", DEVICE],
] as const;

/** Lines that ipvsadm itself can parse. */
const READABLE_REGEXP =
  /^-([AED] (-[tu]|--sctp-service) \S+:\d+|[aed] (-[tu]|--sctp-service) \S+:\d+ -r \S+:\d+|Z (-[tu]|--sctp-service) \S+:\d+)/;

/** An {@linkcode Exec} with `ipvsadm`, `ipset`, `ip`, `iptables-save` and `iptables-restore` of one kernel. */
export class FakeIpvs implements Exec {
  readonly kernel = new KernelModel();
  /** Programs started, in order, each with its first option. */
  readonly runs: string[] = [];
  /** Schedulers that this kernel lacks. */
  readonly missingSchedulers = new Set<string>();
  /** Result of a run instead of its work. */
  fail: (argv: readonly string[]) => ExecResult | undefined = () => undefined;
  /** Called between a run's work and its end. */
  afterRun: (argv: readonly string[]) => Promise<void> = () => Promise.resolve();

  readonly #recorder = startRecording(
    "ipvs",
    () =>
      Object.fromEntries(LISTS.map((argv) => [
        argv.join(" "),
        this.#tryAnswer(argv, "").stdout,
      ])),
  );

  /** Interface to the iptables programs of this kernel. */
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
    const failed = this.fail(argv);
    if (failed !== undefined) return failed;
    const stdin = wholeText(options.stdin ?? "");
    if (this.missingSchedulers.size > 0 || !this.kernel.isPlain) this.#recorder?.end();
    const ended = this.#recorder?.begin(argv, stdin);
    const result = this.#batch(argv, stdin.split("\n").slice(0, -1)) ?? this.#tryAnswer(argv, stdin);
    ended?.(result);
    await this.afterRun(argv);
    return result;
  }

  #tryAnswer(argv: readonly string[], stdin: string): ExecResult {
    try {
      return { code: 0, stdout: this.#answer(argv, stdin), stderr: "" };
    } catch (error) {
      if (!(error instanceof Error)) throw error;
      return { code: 1, stdout: "", stderr: `${error.message}\n` };
    }
  }

  /** Result of a program that reads lines; undefined for others. */
  #batch(argv: readonly string[], lines: readonly string[]): ExecResult | undefined {
    switch (argv.slice(0, 2).join(" ")) {
      case "ipvsadm -R":
        return this.#restoreServers(lines);
      case "ipset restore":
        return this.#restoreSets(lines, argv.includes("-exist"));
      case "ip -force":
        return this.#changeAddresses(lines);
      default:
        return undefined;
    }
  }

  #answer(argv: readonly string[], stdin: string): string {
    const { kernel } = this;
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
      case "ip link":
        if (kernel.addresses === null) throw new Error(`Cannot find device "${DEVICE}"`);
        kernel.addresses = null;
        return "";
      case "ip -json":
        return this.#devices(argv.includes("show"));
      case "iptables-save":
        return renderIptablesSave(kernel.observe().tables);
      case "iptables-restore":
        return this.#restore(stdin);
      default:
        throw new Error(`Nobody is to start ${argv.join(" ")}`);
    }
  }

  /** Applies line by line, up to one that the program cannot parse. The status is that of the last line. */
  #restoreServers(lines: readonly string[]): ExecResult {
    let [code, stderr] = [0, ""];
    for (const line of lines) {
      if (!READABLE_REGEXP.test(line)) {
        stderr += "Try `ipvsadm -h' or 'ipvsadm --help' for more information.\n";
        return { code: 255, stdout: "", stderr };
      }
      const refusal = this.#serverLine(line);
      if (refusal !== "") stderr += `${refusal}\n`;
      code = refusal === "" ? 0 : 255;
    }
    return { code, stdout: "", stderr };
  }

  /** Error of the line; `""` unless the kernel refuses it. */
  #serverLine(line: string): string {
    const scheduler = /^-A .* -s (\S+)/.exec(line)?.[1];
    if (scheduler !== undefined && this.missingSchedulers.has(scheduler)) {
      return "Scheduler or persistence engine not found";
    }
    return this.#tryLine("ipvsadm", line) ?? "";
  }

  /**
   * Applies lines up to the first refused one.
   *
   * @param isLenient `-exist`: a line that changes nothing is no error
   */
  #restoreSets(lines: readonly string[], isLenient: boolean): ExecResult {
    for (const [index, line] of lines.entries()) {
      const refusal = this.kernel.refusalOf("ipset", line) ??
        (isLenient && this.#isDone(line) ? undefined : this.#tryLine("ipset", line));
      if (refusal === undefined) continue;
      return { code: 1, stdout: "", stderr: `ipset v7.17: Error in line ${index + 1}: ${refusal}\n` };
    }
    return { code: 0, stdout: "", stderr: "" };
  }

  /** Applies line by line; every refused line is reported. */
  #changeAddresses(lines: readonly string[]): ExecResult {
    let stderr = "";
    for (const [index, line] of lines.entries()) {
      const refusal = this.#tryLine("ip", line);
      if (refusal !== undefined) stderr += `${refusal}\nCommand failed -:${index + 1}\n`;
    }
    return { code: stderr === "" ? 0 : 1, stdout: "", stderr };
  }

  #tryLine(program: "ipvsadm" | "ipset" | "ip", line: string): string | undefined {
    try {
      this.kernel.do({ program, line });
      return undefined;
    } catch (error) {
      if (!(error instanceof Error)) throw error;
      return error.message;
    }
  }

  /** True for what `-exist` permits: no change. */
  #isDone(line: string): boolean {
    const [command, name = "", entry = ""] = line.split(" ");
    const set = this.kernel.sets.get(name);
    if (command === "create") return set !== undefined;
    return set !== undefined &&
      (command === "add" ? set.entries.has(entry) : command === "del" && !set.entries.has(entry));
  }

  /** Output of `ipvsadm -Ln` for one virtual server, or for all, without connections. */
  #loads(server: string): string {
    if (server === "") return [...this.kernel.servers.keys()].map((one) => this.#loads(one)).join("");
    const found = this.kernel.servers.get(server);
    if (found === undefined) throw new Error("No such service");
    const [, protocol = "", address = ""] = /^-([tu]) (\S+)$/.exec(server) ?? [];
    const lines = [...found.real].map(([key, options]) =>
      `  -> ${key} ${options.startsWith("-g") ? "Route" : "Masq"} ${/-w (\d+)/.exec(options)?.[1]} 0 0`
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

  /** Restores the blocks, each all or nothing. */
  #restore(text: string): string {
    let listed = "";
    for (const block of text.split(/^COMMIT\n/m).filter((one) => one !== "")) {
      const [head = "", ...lines] = block.trimEnd().split("\n");
      // The legacy program only knows the line of COMMIT.
      if (
        lines.some((line) => !line.startsWith("-S ") && this.kernel.refuse("iptables", line) !== undefined)
      ) {
        const at = text.slice(0, text.indexOf(block) + block.length).split("\n").length;
        throw new Error(`iptables-restore: line ${at} failed`);
      }
      listed += this.kernel.restore(head.slice(1), lines);
    }
    return listed;
  }
}
