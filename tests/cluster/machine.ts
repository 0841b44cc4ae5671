/**
 * Programs of the cluster that outlive the process that started them, and commands beside them.
 *
 * @module
 */
import { type ExecOptions, runOk, systemExec } from "../../lib/kernel/exec.ts";
import { readUnlessGone } from "../support/processes.ts";
import { until } from "../support/until.ts";

/** Runs a command to its end. @throws {ExecError} if its status is not 0 */
export function run(argv: readonly string[], options?: ExecOptions): Promise<string> {
  return runOk(systemExec, argv, options);
}

/** A line for `sh`, where one program after the other is simpler than a process for each. */
export function script(lines: readonly string[]): Promise<string> {
  return run(["sh", "-ec", lines.join("\n")]);
}

/** Programs that run in the background, by name, of one folder. */
export class Programs {
  readonly #folder: string;

  constructor(folder: string) {
    this.#folder = folder;
  }

  /** Starts a program in a session of its own; its output goes to `log/NAME.log`. */
  async start(name: string, argv: readonly string[]): Promise<void> {
    await Deno.mkdir(`${this.#folder}/run`, { recursive: true });
    await Deno.mkdir(`${this.#folder}/log`, { recursive: true });
    const line = 'echo $$ > "$1"; log=$2; shift 2; exec "$@" > "$log" 2>&1 < /dev/null';
    const files = [`${this.#folder}/run/${name}.pid`, `${this.#folder}/log/${name}.log`];
    await Deno.writeTextFile(files[0] ?? "", "");
    new Deno.Command("setsid", {
      args: ["sh", "-c", line, "sh", ...files, ...argv],
      stdin: "null",
      stdout: "null",
      stderr: "null",
    }).spawn().unref();
    await until(async () => await this.pid(name) !== null, `${name} to be started`, { limitMs: 10_000 });
  }

  /** Its process id; null if it does not run. */
  async pid(name: string): Promise<number | null> {
    const pid = Number((await readUnlessGone(`${this.#folder}/run/${name}.pid`)).trim());
    if (!(pid > 0)) return null;
    const stat = await readUnlessGone(`/proc/${pid}/stat`);
    return stat === "" || /\) Z /.test(stat) ? null : pid;
  }

  /** Ends it, and waits for that. */
  async end(name: string, signal: Deno.Signal = "SIGTERM"): Promise<void> {
    const pid = await this.pid(name);
    if (pid === null) return;
    Deno.kill(pid, signal);
    const isGone = async (): Promise<boolean> => await this.pid(name) === null;
    try {
      await until(isGone, `${name} to end`, { limitMs: 15_000, everyMs: 50 });
    } catch {
      Deno.kill(pid, "SIGKILL");
      await until(isGone, `${name} to end`, { limitMs: 15_000, everyMs: 50 });
    }
  }
}
