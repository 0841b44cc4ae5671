/**
 * The kernel's own account of the rules and elements that come and go in one network namespace. The iptables variant nft is seen here,
 * too; the variant legacy is not.
 *
 * @module
 */
import { signalChild } from "../../tools/end_programs.ts";
import type { Netns } from "../support/netns.ts";
import type { KernelCommit } from "./kernel_events.ts";
import { LineReader } from "./line_reader.ts";
import type { ChangeSign, CommitWatch } from "./mode.ts";

/** An IPv4 address as {@linkcode KernelCommit} has it. */
function addressHex(ip: string): string {
  return new Uint8Array(ip.split(".").map(Number)).toHex();
}

/** Whether a commit shows a change. */
export type ShowsChange = (commit: KernelCommit, sign: ChangeSign) => boolean;

/**
 * True if a commit shows a change anywhere. A proxy may also delete and add again what did not change: what it adds has not gone.
 */
export function showsChange({ added, deleted }: KernelCommit, { kind, ip }: ChangeSign): boolean {
  const ending = ` ${addressHex(ip)}`;
  const isIn = (list: readonly string[]): boolean => list.some((entry) => entry.endsWith(ending));
  return kind === "added" ? isIn(added) : isIn(deleted) && !isIn(added);
}

/** Follows the commits of a namespace until closed. */
export class KernelWatch implements CommitWatch {
  readonly #commits: KernelCommit[] = [];
  readonly #child: Deno.ChildProcess;
  readonly #lines: LineReader;
  readonly #showsChange: ShowsChange;
  #wake = Promise.withResolvers<void>();
  #done: Promise<void> = Promise.resolve();
  lostEvents = false;

  private constructor(child: Deno.ChildProcess, showsChange: ShowsChange) {
    this.#child = child;
    this.#showsChange = showsChange;
    this.#lines = new LineReader(child.stdout);
  }

  /** Begins to watch; commits after it resolved are seen. `shows` says in what a change is recognised, where not anywhere. */
  static async open(
    netns: Netns,
    shows: ShowsChange = showsChange,
  ): Promise<KernelWatch> {
    const script = new URL("./kernel_events.ts", import.meta.url).pathname;
    const child = new Deno.Command("ip", {
      args: [
        ...["netns", "exec", netns.name, Deno.execPath(), "run", "-q", "--no-prompt", "--allow-ffi", script],
      ],
      stdin: "null",
      stdout: "piped",
      stderr: "inherit",
    }).spawn();
    const watch = new KernelWatch(child, shows);
    if (await watch.#lines.next() === null) throw new Error("The kernel cannot be watched");
    watch.#done = watch.#read();
    return watch;
  }

  get position(): number {
    return this.#commits.length;
  }

  async commit(sign: ChangeSign | null, from: number, timeoutMs: number): Promise<KernelCommit> {
    return await this.#first((commit) => sign === null || this.#showsChange(commit, sign), from, timeoutMs);
  }

  async #first(
    isWanted: (commit: KernelCommit) => boolean,
    from: number,
    timeoutMs: number,
  ): Promise<KernelCommit> {
    const { promise: timeout, resolve } = Promise.withResolvers<"timeout">();
    const timer = setTimeout(() => resolve("timeout"), timeoutMs);
    try {
      for (let next = from;;) {
        for (; next < this.#commits.length; next++) {
          const commit = this.#commits[next];
          if (commit !== undefined && isWanted(commit)) return commit;
        }
        if (await Promise.race([this.#wake.promise, timeout]) === "timeout") {
          const seen = this.#commits.length - from;
          throw new Error(
            `The kernel did not commit it within ${timeoutMs / 1000} s, but ${seen} other changes`,
          );
        }
      }
    } finally {
      clearTimeout(timer);
    }
  }

  async #read(): Promise<void> {
    for (let line = await this.#lines.next(); line !== null; line = await this.#lines.next()) {
      const said: KernelCommit | { lost: true } = JSON.parse(line);
      if ("lost" in said) this.lostEvents = true;
      else {
        this.#commits.push(said);
        this.#wake.resolve();
        this.#wake = Promise.withResolvers();
      }
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    signalChild(this.#child);
    await this.#done;
    await this.#child.status;
  }
}
