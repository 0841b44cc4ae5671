/**
 * The kernel's own account of what is committed to nftables in one network namespace, as `nft monitor` prints it. The
 * iptables variant nft is seen here too; the variant legacy is not.
 *
 * @module
 */
import { signalChild } from "../../tools/end_programs.ts";
import type { Netns } from "../support/netns.ts";
import type { ChangeSign, CommitWatch } from "./mode.ts";

/** One transaction the kernel committed. */
export interface Commit {
  /** When its last line was read, in milliseconds since the epoch. */
  readonly atMs: number;
  /** The program that committed it. */
  readonly pid: number;
  /** Rules deleted from nat's KUBE-SERVICES. */
  readonly deletedDispatchRules: number;
  /** Addresses of Services that became reachable and of endpoints whose chain was filled; of many only the first ones. */
  readonly ips: readonly string[];
}

/** More than the changes of a second. */
const MAX_IPS = 4_096;
const LONGEST_PAUSE_MS = 20_000;
const DISPATCH_REGEXP = /^(?:add|insert) rule ip nat KUBE-SERVICES .*?ip daddr (\d+\.\d+\.\d+\.\d+) /;
// nft cannot print iptables' DNAT once it has seen rules of IPv6; the hairpin rule of the same chain it can.
const ENDPOINT_REGEXP = /^add rule ip nat KUBE-SEP-\S+ ip saddr (\d+\.\d+\.\d+\.\d+) /;
const GENERATION_REGEXP = /^# new generation \d+ by process (\d+) /;

type Draft = { -readonly [Key in keyof Commit]: Commit[Key] } & { ips: string[] };

function emptyDraft(): Draft {
  return { atMs: 0, pid: 0, deletedDispatchRules: 0, ips: [] };
}

function showsChange({ ips, deletedDispatchRules }: Commit, { kind, ip }: ChangeSign): boolean {
  return kind === "added" ? ips.includes(ip) : deletedDispatchRules > 0;
}

/** Follows the commits of a namespace until closed. */
export class KernelWatch implements CommitWatch {
  readonly commits: Commit[] = [];
  readonly #child: Deno.ChildProcess;
  readonly #done: Promise<void>;
  #draft = emptyDraft();
  #listeners = new Set<() => void>();
  #ended = false;
  /** True if the kernel dropped events because the reader was too slow. */
  lostEvents = false;

  private constructor(child: Deno.ChildProcess) {
    this.#child = child;
    this.#done = this.#read();
  }

  /** Begins to watch; commits after it resolved are seen. */
  static async open(netns: Netns): Promise<KernelWatch> {
    const child = new Deno.Command("ip", {
      args: ["netns", "exec", netns.name, "stdbuf", "-oL", "nft", "monitor"],
      stdin: "null",
      stdout: "piped",
      // Complaints about targets it cannot print.
      stderr: "null",
    }).spawn();
    const watch = new KernelWatch(child);
    // nft does not say when it listens, so it is made to see something. It reads all rules first, and begins again if they
    // change meanwhile: the pauses grow.
    for (let pauseMs = 50; watch.commits.length === 0; pauseMs *= 2) {
      if (pauseMs > LONGEST_PAUSE_MS) throw new Error("nft monitor does not show what happens");
      const table = "kproxy_bench_probe";
      await netns.run(["nft", `add table ip ${table}; delete table ip ${table}`]);
      await new Promise((resolve) => setTimeout(resolve, pauseMs));
    }
    return watch;
  }

  get position(): number {
    return this.commits.length;
  }

  async commit(sign: ChangeSign | null, from: number, timeoutMs: number): Promise<Commit> {
    const deadlineMs = performance.now() + timeoutMs;
    for (let next = from;;) {
      for (; next < this.commits.length; next++) {
        const commit = this.commits[next];
        if (commit !== undefined && (sign === null || showsChange(commit, sign))) return commit;
      }
      if (!await this.#more(deadlineMs - performance.now())) {
        const seen = this.commits.slice(from).map(({ pid, ips }) => `by ${pid}: ${ips.join(" ")}`).join("; ");
        const state = this.#ended
          ? "nft monitor has ended"
          : this.lostEvents
          ? "events were lost"
          : "nft monitor runs";
        throw new Error(
          `The kernel did not commit it within ${timeoutMs / 1000} s (${state}); it did: ${seen}`,
        );
      }
    }
  }

  /** Resolves true at the next commit, false after `timeoutMs`. */
  #more(timeoutMs: number): Promise<boolean> {
    return new Promise((resolve) => {
      const end = (arrived: boolean): void => {
        clearTimeout(timer);
        this.#listeners.delete(onCommit);
        resolve(arrived);
      };
      const onCommit = (): void => end(true);
      const timer = setTimeout(() => end(false), Math.max(0, timeoutMs));
      this.#listeners.add(onCommit);
    });
  }

  async #read(): Promise<void> {
    let rest = "";
    for await (const text of this.#child.stdout.pipeThrough(new TextDecoderStream())) {
      const lines = (rest + text).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) this.#take(line);
    }
    this.#ended = true;
  }

  #take(line: string): void {
    const draft = this.#draft;
    const generation = GENERATION_REGEXP.exec(line);
    if (generation !== null) {
      draft.atMs = performance.timeOrigin + performance.now();
      draft.pid = Number(generation[1]);
      this.commits.push(draft);
      this.#draft = emptyDraft();
      for (const listener of this.#listeners) listener();
      return;
    }
    const ip = (DISPATCH_REGEXP.exec(line) ?? ENDPOINT_REGEXP.exec(line))?.[1];
    if (ip !== undefined && draft.ips.length < MAX_IPS) draft.ips.push(ip);
    if (line.startsWith("delete rule ip nat KUBE-SERVICES ")) draft.deletedDispatchRules++;
    if (line.includes("lost some netlink events")) this.lostEvents = true;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    signalChild(this.#child);
    await this.#done;
    await this.#child.status;
  }
}
