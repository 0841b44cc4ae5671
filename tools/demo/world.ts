/**
 * What the demo makes and must leave nothing of: network namespaces, programs in them, and one folder.
 *
 * @module
 */
import { killPrograms } from "../end_programs.ts";
import { Child, type ChildOptions, startProgram } from "./child.ts";

const TIMEOUT_MS = 30_000;
/** For programs to end by themselves once the demo is over. */
const CLOSE_MS = 2_000;

/** Something the demo needs from this machine and did not get. */
export class DemoError extends Error {
  override readonly name = "DemoError";
}

/** The demo's namespaces, programs and files. */
export class World {
  /** How the names of all its namespaces begin. */
  readonly prefix = `kpdemo-${Deno.pid}-`;
  readonly #children: Child[] = [];
  readonly #stop = new AbortController();
  #folder = "";

  /** Makes everything that waits reject with `reason`; the first reason stays. */
  fail(reason: Error): void {
    if (!this.#stop.signal.aborted) this.#stop.abort(reason);
  }

  /** The reason of the first {@linkcode fail}. */
  get failure(): unknown {
    return this.#stop.signal.reason;
  }

  /** The full name of a namespace. */
  netns(name: string): string {
    return this.prefix + name;
  }

  /** The demo's own folder, made at the first call. */
  async folder(): Promise<string> {
    if (this.#folder === "") this.#folder = await Deno.makeTempDir({ prefix: this.prefix });
    return this.#folder;
  }

  /** Starts a program in a namespace; if it ends by itself, everything fails. */
  start(netns: string, options: Omit<ChildOptions, "onDeath">): Child {
    this.#stop.signal.throwIfAborted();
    const argv = ["ip", "netns", "exec", this.netns(netns), ...options.argv];
    const child = new Child({ ...options, argv, onDeath: (error) => this.fail(error) });
    this.#children.push(child);
    return child;
  }

  /** Runs a program in a namespace to its end, and returns its standard output. See {@linkcode runProgram}. */
  async run(netns: string, argv: readonly string[], name: string = argv.join(" ")): Promise<string> {
    this.#stop.signal.throwIfAborted();
    return await runProgram(["ip", "netns", "exec", this.netns(netns), ...argv], { name });
  }

  /** The promise's value, unless something fails or it takes too long. */
  async within<T>(what: string, promise: Promise<T>, timeoutMs: number = TIMEOUT_MS): Promise<T> {
    const { signal } = this.#stop;
    signal.throwIfAborted();
    const stopped = Promise.withResolvers<never>();
    const onAbort = (): void => stopped.reject(signal.reason);
    signal.addEventListener("abort", onAbort);
    const timer = setTimeout(
      () => stopped.reject(new DemoError(`Waited ${timeoutMs / 1000} s in vain for ${what}`)),
      timeoutMs,
    );
    try {
      return await Promise.race([promise, stopped.promise]);
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", onAbort);
    }
  }

  /** Waits, unless something fails. */
  async sleep(ms: number): Promise<void> {
    const done = Promise.withResolvers<void>();
    const timer = setTimeout(done.resolve, ms);
    try {
      await this.within("time to pass", done.promise, ms + TIMEOUT_MS);
    } finally {
      clearTimeout(timer);
    }
  }

  /**
   * Ends the programs, removes the namespaces and the folder. Goes on where a step fails.
   *
   * @returns what could not be removed, and why; empty if nothing is left
   */
  async close(): Promise<string[]> {
    this.fail(new DemoError("The demo is over"));
    const problems: string[] = [];
    const attempt = async (step: () => Promise<unknown>): Promise<void> => {
      try {
        await step();
      } catch (error) {
        problems.push(error instanceof Error ? error.message : String(error));
      }
    };
    await Promise.all(this.#children.map((child) => attempt(() => child.stop("SIGTERM", CLOSE_MS))));
    await attempt(async () => {
      for (const name of await this.#namespaces()) {
        // Only programs started by the demo's programs can still run there.
        await attempt(async () => killPrograms(await runProgram(["ip", "netns", "pids", name])));
        await attempt(() => runProgram(["ip", "netns", "del", name]));
      }
    });
    await attempt(async () => {
      if (this.#folder !== "") await Deno.remove(this.#folder, { recursive: true });
    });
    await attempt(async () => {
      for (const name of await this.#namespaces()) problems.push(`Namespace ${name} is still there`);
    });
    return problems;
  }

  async #namespaces(): Promise<string[]> {
    const list = await runProgram(["ip", "netns", "list"]);
    return list.split("\n").map((line) => line.split(" ")[0] ?? "").filter((name) =>
      name.startsWith(this.prefix)
    );
  }
}

/** How a program is run. */
export interface RunOptions {
  readonly stdin?: string;
  /** What messages call it. */
  readonly name?: string;
}

/**
 * Runs a program to its end, and returns its standard output.
 *
 * @throws {DemoError} if its status is not 0, with what it said
 */
export async function runProgram(argv: readonly string[], options: RunOptions = {}): Promise<string> {
  const { stdin = "", name = argv.join(" ") } = options;
  const child = startProgram(argv);
  const output = child.output();
  const writer = child.stdin.getWriter();
  await writer.write(new TextEncoder().encode(stdin));
  await writer.close();
  const { success, code, stdout, stderr } = await output;
  const decoder = new TextDecoder();
  if (success) return decoder.decode(stdout);
  const said = (decoder.decode(stderr).trim() || decoder.decode(stdout).trim()).split("\n").slice(-3).join(
    "\n",
  );
  throw new DemoError(`${name} ended with ${code}: ${said}`);
}
