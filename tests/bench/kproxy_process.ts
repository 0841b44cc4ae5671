/**
 * `kproxy run` in a network namespace, with exactly its permissions, and what it costs.
 *
 * @module
 */
import { signalChild } from "../../tools/end_programs.ts";
import { runtimeFlags } from "../../tools/permissions.ts";
import { ROOT } from "../../tools/project_files.ts";
import type { Netns } from "../support/netns.ts";
import { childPids, readUnlessGone } from "../support/processes.ts";
import { NODE_NAME } from "./fake_objects.ts";
import type { BenchMode } from "./mode.ts";
import { cpuTicks, statusMb, TICK_MS } from "./process_costs.ts";

/** A line of kproxy's log, as JSON. */
export interface LogLine {
  readonly ts: number;
  readonly msg: string;
  readonly family?: string;
  readonly [key: string]: unknown;
}

/** How kproxy is started. */
export interface KproxyOptions {
  /** `http://127.0.0.1:18080`. */
  readonly master: string;
  readonly mode: BenchMode["proxyMode"];
  /** Beside those every run gets. */
  readonly flags?: readonly string[];
  /** Instead of the own PATH. */
  readonly path?: string;
  /** `kproxy.js` of a bundle instead of the source. */
  readonly program?: string;
  /** Flags of the runtime, for profiling. */
  readonly runtimeFlags?: readonly string[];
}

/** Memory of the process, in megabytes (10⁶ bytes). */
export interface Memory {
  readonly nowMb: number;
  readonly peakMb: number;
  /** Of what is resident now, what no file backs. */
  readonly anonymousMb: number;
}

/** CPU time of the process, and of all its children that have ended. */
export interface CpuTime {
  readonly ownMs: number;
  readonly programsMs: number;
}

const KEPT_LINES = 20_000;

/** A running kproxy. Its child processes count to it for the CPU time, not for the memory. */
export class KproxyProcess implements AsyncDisposable {
  /** When it was started, in milliseconds since the epoch. */
  readonly startedMs: number;
  readonly #child: Deno.ChildProcess;
  readonly #lines: LogLine[] = [];
  readonly #listeners = new Set<() => void>();
  readonly #done: Promise<void>;
  #ended = false;

  constructor(netns: Netns, options: KproxyOptions) {
    const args = [
      ...["netns", "exec", netns.name, "env", `PATH=${options.path ?? Deno.env.get("PATH")}`],
      ...[Deno.execPath(), "run", "-q", ...options.runtimeFlags ?? []],
      ...options.program === undefined ? [] : ["--no-config", "--cached-only"],
      ...[...runtimeFlags(), options.program ?? "main.ts", "run", `--master=${options.master}`],
      ...[
        `--hostname-override=${NODE_NAME}`,
        `--proxy-mode=${options.mode}`,
        "--v=2",
        "--logging-format=json",
      ],
      ...options.flags ?? [],
    ];
    this.startedMs = performance.timeOrigin + performance.now();
    this.#child = new Deno.Command("ip", {
      args,
      cwd: ROOT,
      stdin: "null",
      stdout: "null",
      stderr: "piped",
    }).spawn();
    this.#done = this.#read();
  }

  /** Position in the log, for {@linkcode line}. */
  get position(): number {
    return this.#lines.length;
  }

  /** Every log line so far. */
  get lines(): readonly LogLine[] {
    return this.#lines;
  }

  /**
   * Resolves with the first log line, from position `from` on, that `isWanted` accepts.
   *
   * @throws {Error} after `timeoutMs`, or when the process ended, with the end of its log
   */
  async line(isWanted: (line: LogLine) => boolean, from: number, timeoutMs: number): Promise<LogLine> {
    const deadlineMs = performance.now() + timeoutMs;
    for (let next = from;;) {
      for (; next < this.#lines.length; next++) {
        const line = this.#lines[next];
        if (line !== undefined && isWanted(line)) return line;
      }
      const left = deadlineMs - performance.now();
      if (this.#ended || left <= 0) throw new Error(`kproxy did not get that far:\n${this.#tail()}`);
      await this.#more(left);
    }
  }

  /** Resolves when every family the node can serve is served. */
  async allServed(timeoutMs: number): Promise<void> {
    const { families } = await this.line((line) => Array.isArray(line["families"]), 0, timeoutMs);
    for (const family of families as string[]) {
      await this.line((line) => isFirstSync(line, family), 0, timeoutMs);
    }
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
      peakMb: statusMb(status, "VmHWM"),
      anonymousMb: statusMb(status, "RssAnon"),
    };
  }

  /** From now on {@linkcode memory} tells the peak since now. */
  async resetPeak(): Promise<void> {
    await Deno.writeTextFile(`/proc/${this.#child.pid}/clear_refs`, "5");
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
   * Resolves when none of its programs has done anything for two seconds: what it does once after a start is over. One that was
   * started ahead waits all the time.
   *
   * @throws {Error} after `timeoutMs`
   */
  async settled(timeoutMs: number): Promise<void> {
    const deadlineMs = performance.now() + timeoutMs;
    let before = "";
    for (let quietSince = performance.now(); performance.now() - quietSince < 2000;) {
      if (performance.now() > deadlineMs) throw new Error(`kproxy still runs programs:\n${this.#tail()}`);
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
      for (const line of lines) this.#take(line);
    }
    this.#ended = true;
    this.#notify();
  }

  #take(line: string): void {
    if (line === "" || this.#lines.length >= KEPT_LINES) return;
    this.#lines.push(line.startsWith("{") ? JSON.parse(line) : { ts: 0, msg: line });
    this.#notify();
  }

  #notify(): void {
    for (const listener of this.#listeners) listener();
  }

  #more(timeoutMs: number): Promise<void> {
    return new Promise((resolve) => {
      const end = (): void => {
        clearTimeout(timer);
        this.#listeners.delete(end);
        resolve();
      };
      const timer = setTimeout(end, timeoutMs);
      this.#listeners.add(end);
    });
  }

  #tail(): string {
    return this.#lines.slice(-8).map((line) => JSON.stringify(line)).join("\n");
  }
}

/** True for the line that says that a family is served for the first time. */
export function isFirstSync(line: LogLine, family = "IPv4"): boolean {
  return line.msg.startsWith("First sync done") && line.family === family;
}

/** True for the line of a later sync of IPv4 that wrote something. */
export function isWritingSync(line: LogLine): boolean {
  return line.msg === "Synced rules" && line.family === "IPv4" && Number(line["commands"]) > 0;
}
