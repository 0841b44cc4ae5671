/**
 * A machine in memory for `kproxy selftest`: namespaces, iptables on its node, and children that act like the program's,
 * with packets that follow the rules.
 *
 * @module
 */
import { ExecError } from "../../lib/errors.ts";
import { liveOfKernel } from "../../lib/inspect/live/kernel_rules.ts";
import { apply } from "../../lib/inspect/selftest/apply.ts";
import type { Job, Question } from "../../lib/inspect/selftest/agent.ts";
import type { Attempt } from "../../lib/inspect/selftest/report.ts";
import { ADDRESSES, nodeAddresses, packetOfProbe, probesOf } from "../../lib/inspect/selftest/cases.ts";
import { type Exec, type ExecOptions, type ExecResult, wholeText } from "../../lib/kernel/exec.ts";
import type { IpFamily } from "../../lib/model/objects.ts";
import type { Flow } from "../../lib/sim/flow.ts";
import { RulesetSimulator } from "../../lib/sim/ruleset_simulator.ts";
import { type AffinityMemory, rememberOutcome } from "../../lib/sim/packet_walk.ts";
import { FakeIptables } from "./fake_iptables.ts";
import { fakeSysctl } from "./fake_sysctl.ts";

export const FAMILIES: readonly IpFamily[] = ["IPv4", "IPv6"];
const OK: ExecResult = { code: 0, stdout: "", stderr: "" };

/** Attempts by the rules: random choices take turns. */
export function attemptsBy(
  predict: (affinity: AffinityMemory) => Flow,
  question: Question,
): readonly Attempt[] {
  const probe = probesOf(FAMILIES).find(({ name, family }) => name + family === question.id);
  if (probe === undefined) throw new Error(`There is no probe ${question.id}`);
  const { hosts, gateways } = ADDRESSES[probe.family];
  const attempts: Attempt[] = [];
  let affinity: AffinityMemory = new Map();
  while (attempts.length < question.count) {
    const { outcomes } = predict(affinity);
    const outcome = outcomes[attempts.length % outcomes.length];
    if (outcome === undefined) throw new Error("The rules say nothing");
    affinity = rememberOutcome(affinity, packetOfProbe(probe), outcome, 0);
    if (outcome.verdict === "drop") return [...attempts, { kind: "silence" }];
    const client = outcome.masquerade ? gateways["pod-a"] : hosts[probe.from];
    attempts.push(
      outcome.verdict === "reject"
        ? { kind: "refused" }
        : { kind: "answer", server: outcome.translatedTo, client },
    );
  }
  return attempts;
}

/** The machine; see the module. */
export class SelftestMachine implements Exec {
  /** Existing namespaces, in order of creation. */
  readonly namespaces = new Set<string>();
  /** Command lines, each after its namespace: `node iptables-save`, or `- ip netns list`. */
  readonly runs: string[] = [];
  /** Children that are running. */
  readonly running = new Set<string>();
  readonly iptables = new FakeIptables();
  /** Called before each program; a result or error replaces the program's run. */
  before: (run: string, index: number) => ExecResult | undefined | void = () => {};
  readonly #settings: Record<string, string> = {
    "net.ipv6.conf.all.disable_ipv6": "0",
    "net.ipv4.conf.all.route_localnet": "0",
    "net.netfilter.nf_conntrack_tcp_be_liberal": "0",
  };

  /** Path of kproxy on this machine. */
  static readonly program = "/opt/kproxy";

  async run(argv: readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    options.signal?.throwIfAborted();
    const isInside = argv[0] === "ip" && argv[1] === "netns" && argv[2] === "exec";
    const [netns = "", words] = isInside ? [argv[3], argv.slice(4)] : ["", argv];
    const host = netns === "" ? "-" : netns.replace(/^kproxy-selftest-\w+-\w+-/, "");
    const line = `${host} ${words.join(" ")}`;
    this.runs.push(line);
    const instead = this.before(line, this.runs.length - 1);
    if (instead !== undefined) return instead;
    options.signal?.throwIfAborted();
    if (netns !== "" && !this.namespaces.has(netns)) {
      return {
        code: 1,
        stdout: "",
        stderr: `Cannot open network namespace "${netns}": No such file or directory\n`,
      };
    }
    if (words[0] === "ip") return this.#ip(words.slice(1));
    if (netns === "") throw new Error(`${line} was started in the machine's own namespace`);
    return await this.#inside(line, host, words, options);
  }

  #ip(words: readonly string[]): ExecResult {
    const [first, verb, name = ""] = words;
    if (first !== "netns") return OK;
    switch (verb) {
      case "add":
        if (this.namespaces.has(name)) return { code: 1, stdout: "", stderr: "File exists\n" };
        this.namespaces.add(name);
        return OK;
      case "del":
        if (this.namespaces.delete(name)) return OK;
        return {
          code: 1,
          stdout: "",
          stderr: `Cannot remove namespace file "/run/netns/${name}": No such file or directory\n`,
        };
      default:
        return { ...OK, stdout: [...this.namespaces].map((one, id) => `${one} (id: ${id})\n`).join("") };
    }
  }

  async #inside(
    line: string,
    host: string,
    words: readonly string[],
    options: ExecOptions,
  ): Promise<ExecResult> {
    const [program = "", ...args] = words;
    if (program === SelftestMachine.program) return await this.#child(line, host, options);
    if (program === "sysctl") {
      for (const word of args[0] === "-w" ? args.slice(1) : []) {
        this.#settings[word.split("=")[0] ?? ""] ??= "";
      }
      return fakeSysctl(this.#settings, args);
    }
    if (/^ip6?tables/.test(program)) return await this.iptables.run(words, options);
    throw new ExecError(words, -1, `exec of "${program}" failed: No such file or directory`);
  }

  async #child(
    line: string,
    host: string,
    { stdin = "", signal, onStdout }: ExecOptions,
  ): Promise<ExecResult> {
    const job = JSON.parse(wholeText(stdin)) as Job;
    const name = `${host} ${job.job}`;
    this.running.add(name);
    try {
      switch (job.job) {
        case "serve":
          onStdout?.(new TextEncoder().encode("ready\n"));
          return await untilAborted(signal);
        case "apply": {
          const inNode: Exec = { run: (argv, more) => this.#inside(line, host, argv, more ?? {}) };
          const answer = await apply(job, inNode, ["127.0.0.1", "::1", ...nodeAddresses(job.families)]);
          return { ...OK, stdout: JSON.stringify(answer) };
        }
        case "ask": {
          const inNode: Exec = { run: (argv, more) => this.#inside(line, host, argv, more ?? {}) };
          const live = await liveOfKernel(inNode);
          const attempts = job.questions.map((question) => {
            const family = question.ip.includes(":") ? "IPv6" : "IPv4";
            const simulator = new RulesetSimulator(live.get(family)!);
            const probe = probesOf(FAMILIES).find((one) => one.name + one.family === question.id)!;
            const predict = (affinity: AffinityMemory): Flow =>
              simulator.send(packetOfProbe(probe), {
                nodeAddresses: nodeAddresses([family]),
                affinity,
                nowSeconds: 0,
              });
            return [question.id, this.fate(question, attemptsBy(predict, question))];
          });
          return { ...OK, stdout: JSON.stringify({ attempts: Object.fromEntries(attempts) }) };
        }
      }
    } finally {
      this.running.delete(name);
    }
  }

  /** Real results of packets, by default those of the rules. */
  fate: (question: Question, byRules: readonly Attempt[]) => readonly Attempt[] = (_, byRules) => byRules;
}

function untilAborted(signal: AbortSignal | undefined): Promise<never> {
  return new Promise((_, reject) => {
    const end = (): void => reject(signal?.reason);
    if (signal?.aborted) end();
    signal?.addEventListener("abort", end, { once: true });
  });
}
