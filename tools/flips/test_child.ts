/**
 * The parent's side of a process of tests: starts it with next to no permissions, asks it, and ends it when it computes, waits,
 * eats or writes too much.
 *
 * @module
 */
import type { Answer, Question } from "./protocol.ts";

/** How often the process is looked at. */
const LOOK_MS = 100;
/** Ends a process whose parent is gone. A process is replaced well before. */
const CPU_SECONDS = 900;
/** Longer lines are no answers. */
const MAX_LINE = 4 * 2 ** 20;

/** What a process may take. */
export interface Limits {
  /** Asleep for so long, without anything that wakes it, a process waits for what never comes. */
  readonly asleepMs: number;
  readonly heapMb: number;
  /** All memory: the runtime itself has some 100 MB. */
  readonly residentMb: number;
}

const LIMITS: Limits = { asleepMs: 10_000, heapMb: 800, residentMb: 1_600 };

/** What a process is to load. */
export interface Load {
  /** The copy of the project; nothing else can be read. */
  readonly folder: string;
  /** Relative to the copy. */
  readonly files: readonly string[];
  /** The flip that is on while files load; 0 for none. */
  readonly first: number;
  /** How often random tests try; 0 for as often as they do otherwise. */
  readonly tries: number;
}

/** Why a process was ended, or how it ended by itself. */
export type Ending = "endless" | "waits for ever" | "memory" | "died";

/** What a process has used. */
interface Use {
  readonly cpuMs: number;
  readonly isAsleep: boolean;
  readonly residentBytes: number;
}

/** True if reading failed because the process or thread is gone. */
function hasEnded(error: unknown): boolean {
  return error instanceof Deno.errors.NotFound || /ESRCH|No such process/.test(String(error));
}

/** True if a thread wants a processor, whether it has one or not: on a busy machine, collectors of garbage wait for theirs. */
async function hasReadyThread(pid: number): Promise<boolean> {
  const threads: string[] = [];
  try {
    for await (const { name } of Deno.readDir(`/proc/${pid}/task`)) threads.push(name);
    for (const thread of threads) {
      const stat = await Deno.readTextFile(`/proc/${pid}/task/${thread}/stat`);
      if (stat[stat.lastIndexOf(")") + 2] !== "S") return true;
    }
  } catch (error) {
    // One that ends just now did something.
    if (hasEnded(error)) return true;
    throw error;
  }
  return false;
}

/** Of a process that runs; null if it has ended. Linux counts in hundredths of a second and in pages of 4 KiB. */
export async function useOf(pid: number): Promise<Use | null> {
  let stat: string;
  try {
    stat = await Deno.readTextFile(`/proc/${pid}/stat`);
  } catch (error) {
    if (hasEnded(error)) return null;
    throw error;
  }
  // The program's name, in brackets, may hold blanks.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return {
    cpuMs: (Number(fields[11]) + Number(fields[12])) * 10,
    isAsleep: fields[0] === "S" && !await hasReadyThread(pid),
    residentBytes: Number(fields[21]) * 4_096,
  };
}

/** One process that has loaded test files. */
export class TestChild {
  readonly #process: Deno.ChildProcess;
  readonly #mark: string;
  readonly #input: WritableStreamDefaultWriter<Uint8Array>;
  #answered: ((answer: Answer | null) => void) | null = null;
  #hasEnded = false;
  /** Since the last look. */
  #hasPrinted = false;
  readonly #ended: Promise<void>;

  readonly #limits: Limits;

  constructor({ folder, files, first, tries }: Load, limits: Limits = LIMITS) {
    this.#limits = limits;
    this.#mark = `${crypto.randomUUID()} `;
    const shell = `ulimit -c 0; ulimit -t ${CPU_SECONDS}; exec "$@"`;
    const runtime = [
      ...[
        Deno.execPath(),
        "run",
        "--no-check",
        "--quiet",
        "--no-prompt",
        "--allow-env",
        `--allow-read=${folder}`,
      ],
      ...[`--v8-flags=--max-old-space-size=${limits.heapMb}`, `${folder}/tools/flips/test_process.ts`],
    ];
    const words = [this.#mark, String(first), String(tries), ...files.map((file) => `${folder}/${file}`)];
    this.#process = new Deno.Command("/bin/sh", {
      args: ["-c", shell, "sh", ...runtime, ...words],
      cwd: folder,
      env: { NO_COLOR: "1" },
      stdin: "piped",
      stdout: "piped",
      stderr: "null",
    }).spawn();
    this.#input = this.#process.stdin.getWriter();
    // Both are awaited in `end`.
    this.#ended = Promise.all([this.#read(), this.#process.status]).then(() => this.#report(null));
  }

  get pid(): number {
    return this.#process.pid;
  }

  /** Of the processor, so far; 0 after the end. */
  async usedCpuMs(): Promise<number> {
    return (await useOf(this.pid))?.cpuMs ?? 0;
  }

  /** Hands on answers and drops everything else that is printed. */
  async #read(): Promise<void> {
    let text = "";
    for await (const chunk of this.#process.stdout.pipeThrough(new TextDecoderStream())) {
      this.#hasPrinted = true;
      const lines = (text + chunk).split("\n");
      text = (lines.pop() as string).slice(0, MAX_LINE);
      for (const line of lines) {
        if (line.startsWith(this.#mark)) this.#report(JSON.parse(line.slice(this.#mark.length)));
      }
    }
  }

  #report(answer: Answer | null): void {
    if (answer === null) this.#hasEnded = true;
    const answered = this.#answered;
    this.#answered = null;
    answered?.(answer);
  }

  /**
   * The answer to a question, or to the start (no question). A process that ends, or uses up `cpuMs`, is of no more use.
   */
  async ask(question: Question | null, cpuMs: number): Promise<Answer | Ending> {
    const answer = new Promise<Answer | null>((resolve) => this.#answered = resolve);
    if (this.#hasEnded) return "died";
    const watch = this.#watch(answer, cpuMs);
    if (question !== null) {
      // What cannot be asked is gone.
      const line = new TextEncoder().encode(`${JSON.stringify(question)}\n`);
      await this.#input.write(line).catch(() => this.#report(null));
    }
    const ending = await watch;
    if (ending === null) return await answer ?? "died";
    await this.end();
    return ending;
  }

  /** Null once there is an answer; otherwise why the process has to go. */
  async #watch(answer: Promise<unknown>, cpuMs: number): Promise<Ending | null> {
    let hasAnswer = false;
    answer.then(() => hasAnswer = true);
    const before = (await useOf(this.pid))?.cpuMs ?? 0;
    let lastCpuMs = before;
    // Counted in looks: on a busy machine this process may have had to wait as well.
    let asleepMs = 0;
    while (true) {
      let timer: ReturnType<typeof setTimeout> | undefined;
      await Promise.race([answer, new Promise((resolve) => timer = setTimeout(resolve, LOOK_MS))]);
      clearTimeout(timer);
      if (hasAnswer) return null;
      const use = await useOf(this.pid);
      if (use === null) continue;
      if (use.cpuMs - before > cpuMs) return "endless";
      if (use.residentBytes > this.#limits.residentMb * 2 ** 20) return "memory";
      const isAwake = !use.isAsleep || use.cpuMs !== lastCpuMs || this.#hasPrinted;
      asleepMs = isAwake ? 0 : asleepMs + LOOK_MS;
      lastCpuMs = use.cpuMs;
      this.#hasPrinted = false;
      if (asleepMs > this.#limits.asleepMs) return "waits for ever";
    }
  }

  /** Ends the process, whatever it does. */
  async end(): Promise<void> {
    try {
      this.#process.kill("SIGKILL");
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
    }
    await this.#ended;
    await this.#input.abort();
  }
}
