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

/** Follows the commits of a namespace until closed. */
export class KernelWatch implements AsyncDisposable {
  readonly #commits: KernelCommit[] = [];
  readonly #child: Deno.ChildProcess;
  readonly #lines: LineReader;
  readonly #places: RegExp;
  #wake = Promise.withResolvers<void>();
  #done: Promise<void> = Promise.resolve();
  /** True if the kernel dropped events because the reader was too slow. */
  lostEvents = false;

  private constructor(child: Deno.ChildProcess, places: RegExp) {
    this.#child = child;
    this.#places = places;
    this.#lines = new LineReader(child.stdout);
  }

  /** Begins to watch; commits after it resolved are seen. `places` are the chains, sets and maps in which an address counts. */
  static async open(netns: Netns, places: RegExp = /./): Promise<KernelWatch> {
    const script = new URL("./kernel_events.ts", import.meta.url).pathname;
    const child = new Deno.Command("ip", {
      args: [
        ...["netns", "exec", netns.name, Deno.execPath(), "run", "-q", "--no-prompt", "--allow-ffi", script],
      ],
      stdin: "null",
      stdout: "piped",
      stderr: "inherit",
    }).spawn();
    const watch = new KernelWatch(child, places);
    if (await watch.#lines.next() === null) throw new Error("The kernel cannot be watched");
    watch.#done = watch.#read();
    return watch;
  }

  /** How many commits were seen until now. */
  get position(): number {
    return this.#commits.length;
  }

  /**
   * Resolves with the first commit, from number `from` on, that adds an IPv4 address; null: the first one of all.
   *
   * @throws {Error} after `timeoutMs`
   */
  async commit(ip: string | null, from: number, timeoutMs: number): Promise<KernelCommit> {
    const { promise: timeout, resolve } = Promise.withResolvers<"timeout">();
    const timer = setTimeout(() => resolve("timeout"), timeoutMs);
    const ending = ip === null ? "" : ` ${new Uint8Array(ip.split(".").map(Number)).toHex()}`;
    const isWanted = ({ added }: KernelCommit): boolean =>
      ip === null || added.some((entry) => entry.endsWith(ending) && this.#places.test(entry));
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
