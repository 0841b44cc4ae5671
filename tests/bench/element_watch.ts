/**
 * The kernel's own account of the elements that come and go in one network namespace.
 *
 * @module
 */
import { signalChild } from "../../tools/end_programs.ts";
import type { Netns } from "../support/netns.ts";
import type { KernelCommit } from "./kernel_events.ts";
import { LineReader } from "./line_reader.ts";
import type { ChangeSign, CommitWatch } from "./mode.ts";

/** An IPv4 address as the kernel's messages hold it. */
function addressHex(ip: string): string {
  return new Uint8Array(ip.split(".").map(Number)).toHex();
}

/** True if the commit shows the change. */
export function showsChange({ added, deleted }: KernelCommit, { kind, ip }: ChangeSign): boolean {
  const hex = addressHex(ip);
  return (kind === "added" ? added : deleted).some((message) => message.includes(hex));
}

/** Follows the commits of a namespace until closed. */
export class ElementWatch implements CommitWatch {
  readonly #commits: KernelCommit[] = [];
  readonly #child: Deno.ChildProcess;
  readonly #lines: LineReader;
  #wake = Promise.withResolvers<void>();
  #done: Promise<void> = Promise.resolve();
  lostEvents = false;

  private constructor(child: Deno.ChildProcess) {
    this.#child = child;
    this.#lines = new LineReader(child.stdout);
  }

  /** Begins to watch; commits after it resolved are seen. */
  static async open(netns: Netns): Promise<ElementWatch> {
    const script = new URL("./kernel_events.ts", import.meta.url).pathname;
    const child = new Deno.Command("ip", {
      args: [
        ...["netns", "exec", netns.name, Deno.execPath(), "run", "-q", "--no-prompt", "--allow-ffi", script],
      ],
      stdin: "null",
      stdout: "piped",
      stderr: "inherit",
    }).spawn();
    const watch = new ElementWatch(child);
    if (await watch.#lines.next() === null) throw new Error("The kernel cannot be watched");
    watch.#done = watch.#read();
    return watch;
  }

  get position(): number {
    return this.#commits.length;
  }

  async commit(sign: ChangeSign | null, from: number, timeoutMs: number): Promise<KernelCommit> {
    const { promise: timeout, resolve } = Promise.withResolvers<"timeout">();
    const timer = setTimeout(() => resolve("timeout"), timeoutMs);
    try {
      for (let next = from;;) {
        for (; next < this.#commits.length; next++) {
          const commit = this.#commits[next];
          if (commit !== undefined && (sign === null || showsChange(commit, sign))) return commit;
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
