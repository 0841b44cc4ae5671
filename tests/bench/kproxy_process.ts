/**
 * `kproxy run` in a network namespace, with exactly its permissions, and its log.
 *
 * @module
 */
import { runtimeFlags, runtimeVariables } from "../../tools/permissions.ts";
import { type Netns, socketIn } from "../support/netns.ts";
import { NODE_NAME } from "./fake_objects.ts";
import type { BenchMode } from "./mode.ts";
import { ProxyProcess } from "./proxy_process.ts";

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
  /** Put in front of the whole command, see {@linkcode ProxyProcess}. */
  readonly starter?: readonly string[];
}

/** A running kproxy. */
export class KproxyProcess extends ProxyProcess {
  readonly #lines: LogLine[] = [];
  readonly #listeners = new Set<() => void>();

  constructor(netns: Netns, options: KproxyOptions) {
    super("kproxy", netns, [
      ...["env", `PATH=${options.path ?? Deno.env.get("PATH")}`, ...runtimeVariables()],
      ...[Deno.execPath(), "run", "-q"],
      ...options.program === undefined ? [] : ["--no-config", "--cached-only"],
      ...[...runtimeFlags(), options.program ?? "main.ts", "run", `--master=${options.master}`],
      ...[
        `--hostname-override=${NODE_NAME}`,
        `--proxy-mode=${options.mode}`,
        `--socket=${socketIn(netns.name)}`,
        "--v=2",
        "--logging-format=json",
      ],
      ...options.flags ?? [],
    ], options.starter);
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
      if (this.hasEnded || left <= 0) throw new Error(`kproxy did not get that far:\n${this.tail}`);
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

  protected override take(line: string): void {
    this.#lines.push(line.startsWith("{") ? JSON.parse(line) : { ts: 0, msg: line });
    this.wake();
  }

  protected override wake(): void {
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
}

/** True for the line that says that a family is served for the first time. */
export function isFirstSync(line: LogLine, family = "IPv4"): boolean {
  return line.msg.startsWith("First sync done") && line.family === family;
}

/** True for the line of a later sync of IPv4 that wrote something. */
export function isWritingSync(line: LogLine): boolean {
  return line.msg === "Synced rules" && line.family === "IPv4" && Number(line["commands"]) > 0;
}
