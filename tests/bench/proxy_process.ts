/**
 * A proxy as a process in a network namespace, and what it costs.
 *
 * @module
 */
import { signalChild } from "../../tools/end_programs.ts";
import { ROOT } from "../../tools/project_files.ts";
import type { Netns } from "../support/netns.ts";
import { childPids, readUnlessGone } from "../support/processes.ts";
import { cpuTicks, statusMb, TICK_MS } from "./process_costs.ts";

/** Memory of the process, in megabytes (10⁶ bytes). */
export interface Memory {
  readonly nowMb: number;
  /** What of it is no file's: `RssAnon`. */
  readonly anonymousMb: number;
  readonly peakMb: number;
}

/** CPU time of the process, and of all its children that have ended. */
export interface CpuTime {
  readonly ownMs: number;
  readonly programsMs: number;
}

const KEPT_LINES = 20_000;
const TAIL_LINES = 8;

/** A running proxy, whose log is its standard error. Its child processes count to it for the CPU time, not for the memory. */
export class ProxyProcess implements AsyncDisposable {
  /** What it is called where something went wrong. */
  readonly name: string;
  /** When it was started, in milliseconds since the epoch. */
  readonly startedMs: number;
  readonly #child: Deno.ChildProcess;
  readonly #log: string[] = [];
  readonly #done: Promise<void>;
  #hasEnded = false;

  /**
   * Starts `argv` in the namespace, in the project's folder.
   *
   * @param starter a command that becomes, in the same process, the one that its further arguments name; none if empty
   */
  constructor(name: string, netns: Netns, argv: readonly string[], starter: readonly string[] = []) {
    this.name = name;
    this.startedMs = performance.timeOrigin + performance.now();
    const [program = "", ...args] = [...starter, "ip", "netns", "exec", netns.name, ...argv];
    this.#child = new Deno.Command(program, {
      args,
      cwd: ROOT,
      stdin: "null",
      stdout: "null",
      stderr: "piped",
    }).spawn();
    this.#done = this.#read();
  }

  get pid(): number {
    return this.#child.pid;
  }

  /** True once it has ended. */
  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** Resolves when it has ended. */
  get end(): Promise<void> {
    return this.#done;
  }

  /** The last lines of its log. */
  get tail(): string {
    return this.#log.slice(-TAIL_LINES).join("\n");
  }

  /** Ends it as an operator would, and resolves with its exit code. */
  async stop(): Promise<number> {
    this.#child.kill("SIGTERM");
    const { code } = await this.#child.status;
    await this.#done;
    return code;
  }

  async memory(): Promise<Memory> {
    const status = await Deno.readTextFile(`/proc/${this.#child.pid}/status`);
    return {
      nowMb: statusMb(status, "VmRSS"),
      anonymousMb: statusMb(status, "RssAnon"),
      peakMb: statusMb(status, "VmHWM"),
    };
  }

  /** From now on {@linkcode memory} tells the peak since now. */
  async resetPeak(): Promise<void> {
    try {
      await Deno.writeTextFile(`/proc/${this.#child.pid}/clear_refs`, "5", { create: false });
    } catch (error) {
      // The user-mode Linux has no such file: there the peak is that since the start.
      if (!(error instanceof Deno.errors.NotFound)) throw error;
    }
  }

  /** CPU time so far, in milliseconds; resolution 10 ms. */
  async cpuParts(): Promise<CpuTime> {
    const stat = await Deno.readTextFile(`/proc/${this.#child.pid}/stat`);
    const { user, system, childUser, childSystem } = cpuTicks(stat);
    return { ownMs: (user + system) * TICK_MS, programsMs: (childUser + childSystem) * TICK_MS };
  }

  /** CPU time of the process and of all its children that have ended. */
  async cpuMs(): Promise<number> {
    const { ownMs, programsMs } = await this.cpuParts();
    return ownMs + programsMs;
  }

  /**
   * Resolves when none of its programs has done anything for two seconds: what it does once after a start is over.
   *
   * @throws {Error} after `timeoutMs`
   */
  async settled(timeoutMs: number): Promise<void> {
    const deadlineMs = performance.now() + timeoutMs;
    let before = "";
    for (let quietSince = performance.now(); performance.now() - quietSince < 2000;) {
      if (performance.now() > deadlineMs) throw new Error(`${this.name} still runs programs:\n${this.tail}`);
      const now = await this.#programs();
      if (now !== before) quietSince = performance.now();
      before = now;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  /** Its programs that run now, each with the CPU time it took so far. */
  async #programs(): Promise<string> {
    const programs: string[] = [];
    for (const pid of await childPids(this.#child.pid)) {
      const { user, system } = cpuTicks(await readUnlessGone(`/proc/${pid}/stat`));
      programs.push(`${pid}: ${user + system}`);
    }
    return programs.join("\n");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    signalChild(this.#child);
    await this.#child.status;
    await this.#done;
  }

  async #read(): Promise<void> {
    let rest = "";
    for await (const text of this.#child.stderr.pipeThrough(new TextDecoderStream())) {
      const lines = (rest + text).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) {
        if (line === "" || this.#log.length >= KEPT_LINES) continue;
        this.#log.push(line);
        this.take(line);
      }
    }
    this.#hasEnded = true;
    this.wake();
  }

  /** Takes a line of the log. */
  protected take(_line: string): void {}

  /** Called when the log has ended. */
  protected wake(): void {}
}
