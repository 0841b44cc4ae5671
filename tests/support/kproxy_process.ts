/**
 * `kproxy run` as a process inside a namespace, with exactly its shipped permissions; its log lines are read as they arrive.
 *
 * @module
 */
import { signalChild } from "../../tools/end_programs.ts";
import { bundleArgv, kproxyArgv } from "../cli/kproxy.ts";
import { type Netns, socketIn } from "./netns.ts";

/** One log line of `--logging-format=json`; a line in another form has only `msg`. */
export interface LogLine {
  readonly msg: string;
  readonly [key: string]: unknown;
}

/** Options to start a process. */
export interface KproxyOptions {
  /** Network namespace; null: the command enters one by itself. */
  readonly netns: Netns | null;
  /** Arguments of `kproxy run`. */
  readonly args: readonly string[];
  /** Folder of programs that take precedence over the system's. */
  readonly path?: string;
  /** Whole command line instead of all other options but the namespace; it must `exec` kproxy. */
  readonly command?: readonly string[];
  /** Another user to run as. */
  readonly as?: RunAs;
  /** A bundle's `kproxy.js` to start instead of the source, with a cache of its own. */
  readonly bundle?: { readonly main: string; readonly cache: string };
  /** Log verbosity; null leaves it to the configuration file, which must set 2 or more. @default {2} */
  readonly verbosity?: number | null;
}

/** Starts the program with fewer rights; the usual paths may be invisible to it. */
export interface RunAs {
  /** Command line before the program. */
  readonly prefix: readonly string[];
  /** Path of the runtime for that user. */
  readonly deno: string;
  /** Path of the project for that user, if it is another one. */
  readonly root?: string;
}

/** Limit of any wait in a test. */
const WAIT_LIMIT_MS = 300_000;
const [FIRST_SYNC, ANEW] = [
  "First sync done, Services are served",
  "Configuration changed, starting anew with it",
];
const REFUSED = "Changed configuration refused, the former one stays in force";

/** A running kproxy; disposing of it kills it. */
export class KproxyProcess implements AsyncDisposable {
  readonly #child: Deno.ChildProcess;
  readonly #lines: LogLine[] = [];
  readonly #reading: Promise<void>;
  /** Callbacks of waits under way. */
  readonly #waiting = new Set<() => void>();
  #ended: Deno.CommandStatus | undefined;

  private constructor(child: Deno.ChildProcess) {
    this.#child = child;
    this.#reading = this.#read();
    void child.status.then((status) => {
      this.#ended = status;
      this.#onLine();
    });
  }

  /** Starts kproxy without waiting. The process is the runtime itself, so signals and kills reach only it. */
  static spawn({ netns, args, path, command, as, bundle, verbosity = 2 }: KproxyOptions): KproxyProcess {
    const { prefix, deno } = as ?? { prefix: [], deno: Deno.execPath() };
    const kproxy = bundle === undefined ? kproxyArgv(as?.root) : bundleArgv(bundle.main);
    const run = [
      "run",
      "--logging-format=json",
      ...(verbosity === null ? [] : [`--v=${verbosity}`]),
      `--socket=${netns === null ? "" : socketIn(netns.name)}`,
      ...args,
    ];
    const env = {
      ...(path === undefined ? {} : { PATH: `${path}:${Deno.env.get("PATH") ?? ""}` }),
      ...(bundle === undefined ? {} : { DENO_DIR: bundle.cache }),
    };
    const enter = netns === null ? [] : ["ip", "netns", "exec", netns.name];
    const [program = "", ...rest] = [...enter, ...(command ?? [...prefix, deno, ...kproxy, ...run])];
    const child = new Deno.Command(program, {
      args: rest,
      stdin: "null",
      stdout: "null",
      stderr: "piped",
      env,
    }).spawn();
    return new KproxyProcess(child);
  }

  /** Starts kproxy and waits until every family has had its first sync. */
  static async start(options: KproxyOptions, families = 2): Promise<KproxyProcess> {
    const kproxy = KproxyProcess.spawn(options);
    try {
      await kproxy.untilServing(families);
      return kproxy;
    } catch (error) {
      await kproxy[Symbol.asyncDispose]();
      throw error;
    }
  }

  get pid(): number {
    return this.#child.pid;
  }

  /** Exit status; undefined while it runs. */
  get status(): Deno.CommandStatus | undefined {
    return this.#ended;
  }

  /** All log lines so far. */
  get lines(): readonly LogLine[] {
    return this.#lines;
  }

  /** The log as text. */
  get log(): string {
    return this.#lines.map((line) => JSON.stringify(line)).join("\n");
  }

  /**
   * Waits until the lines, from number `from` on, satisfy the condition.
   *
   * @throws {Error} with the whole log, if they never do or the process ends first
   */
  async until(
    what: string,
    isSo: (lines: readonly LogLine[]) => boolean,
    from = 0,
  ): Promise<void> {
    const deadline = performance.now() + WAIT_LIMIT_MS;
    while (!isSo(this.#lines.slice(from))) {
      const leftMs = deadline - performance.now();
      if (this.#ended !== undefined || leftMs <= 0) {
        // Its last lines may still be unread.
        if (this.#ended !== undefined) await this.#reading;
        if (isSo(this.#lines.slice(from))) return;
        const why = this.#ended === undefined ? "in time" : `before it ended with ${this.#ended.code}`;
        throw new Error(`kproxy did not come to ${what} ${why}:\n${this.log}`);
      }
      await this.#nextLine(leftMs);
    }
  }

  /** Waits until so many families have had their first sync. */
  async untilServing(families = 2, from = 0): Promise<void> {
    const isSo = (lines: readonly LogLine[]): boolean =>
      lines.filter(({ msg }) => msg === FIRST_SYNC).length >= families;
    await this.until("the first syncs", isSo, from);
  }

  /** Edits the configuration so that kproxy restarts itself, and waits until it serves; resolves to the log lines since. */
  async anew(edit: () => Promise<void>): Promise<readonly LogLine[]> {
    const from = this.#lines.length;
    await edit();
    await this.untilMessage(ANEW, from);
    const begin = this.#lines.findIndex(({ msg }, at) => at >= from && msg === ANEW);
    await this.untilServing(2, begin);
    return this.#lines.slice(from);
  }

  /** Edits the configuration in a way that is refused; resolves to the log lines since. */
  async refused(edit: () => Promise<void>): Promise<readonly LogLine[]> {
    const from = this.#lines.length;
    await edit();
    // The Event is logged last.
    const isSo = (lines: readonly LogLine[]): boolean =>
      lines.some(({ msg }) => msg === REFUSED) && lines.some(({ reason }) => reason === "ConfigRefused");
    await this.until("the refusal", isSo, from);
    return this.#lines.slice(from);
  }

  /** Waits for a log line with this message. */
  async untilMessage(message: string, from = 0): Promise<void> {
    await this.until(`"${message}"`, (lines) => lines.some(({ msg }) => msg === message), from);
  }

  /**
   * Makes a change, then waits until a sync of this Service (`namespace/name`) has programmed it in so many families.
   * Resolves to the log lines since then.
   */
  async change(edit: () => Promise<void>, service: string, families = 1): Promise<readonly LogLine[]> {
    const from = this.#lines.length;
    await edit();
    await this.until(`the sync of ${service}`, (lines) => {
      const synced = lines.filter(({ msg, services }) =>
        msg === "Synced rules" && Array.isArray(services) && services.includes(service)
      );
      return new Set(synced.map(({ family }) => family)).size >= families;
    }, from);
    return this.#lines.slice(from);
  }

  /** Sends a signal and waits until the process ends. */
  async stop(signal: Deno.Signal = "SIGTERM"): Promise<Deno.CommandStatus> {
    this.kill(signal);
    return await this.ended();
  }

  kill(signal: Deno.Signal): void {
    if (this.#ended === undefined) signalChild(this.#child, signal);
  }

  /** Resolves when the process has ended and all its lines are read. */
  async ended(): Promise<Deno.CommandStatus> {
    const timer = setTimeout(() => this.kill("SIGKILL"), WAIT_LIMIT_MS);
    const status = await this.#child.status;
    clearTimeout(timer);
    await this.#reading;
    return status;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop("SIGKILL");
  }

  #nextLine(timeoutMs: number): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        this.#waiting.delete(done);
        resolve();
      };
      const timer = setTimeout(done, timeoutMs);
      this.#waiting.add(done);
    });
  }

  #onLine(): void {
    for (const done of [...this.#waiting]) done();
  }

  async #read(): Promise<void> {
    const decoder = new TextDecoder();
    let rest = "";
    for await (const chunk of this.#child.stderr) {
      const parts = (rest + decoder.decode(chunk, { stream: true })).split("\n");
      rest = parts.pop() ?? "";
      this.#lines.push(...parts.map(parseLine));
      this.#onLine();
    }
    if (rest !== "") this.#lines.push(parseLine(rest));
  }
}

function parseLine(line: string): LogLine {
  try {
    const parsed: unknown = JSON.parse(line);
    if (isLogLine(parsed)) return parsed;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  return { msg: line };
}

function isLogLine(value: unknown): value is LogLine {
  return typeof value === "object" && value !== null && "msg" in value && typeof value.msg === "string";
}
