/**
 * UDP flows of connection tracking, through the program `conntrack`.
 *
 * @module
 */
import { countLines } from "../text/lines.ts";
import { ExecError } from "../errors.ts";
import type { IpFamily } from "../model/objects.ts";
import type { Exec, ExecOptions, ExecResult } from "./exec.ts";

/** UDP flows as the program lists them. */
export interface ConntrackDump {
  readonly text: string;
  /** False if the table changed under every try, so that flows may be missing. */
  readonly complete: boolean;
}

/** How often the program is started again when the table changed under it (kube-proxy's number). */
const TRIES = 5;
const TIMEOUT_MS = 30_000;

/** Reads and deletes UDP flows. */
export class Conntrack {
  readonly #exec: Exec;
  /** False once the program said that it cannot read deletions from its input. */
  #batches = true;

  constructor(exec: Exec) {
    this.#exec = exec;
  }

  /**
   * Every UDP flow of a family, one line each.
   *
   * @throws {ExecError} if nothing can be read
   */
  async dump(family: IpFamily): Promise<ConntrackDump> {
    const argv = ["conntrack", "-L", "-p", "udp", "-f", family === "IPv4" ? "ipv4" : "ipv6"];
    const result = await this.#tries(argv);
    if (result.code === 0) return { text: result.stdout, complete: true };
    if (isDisturbed(result)) return { text: result.stdout, complete: false };
    throw new ExecError(argv, result.code, result.stderr);
  }

  /**
   * Deletes all flows that match one of the deletions, each given as options of `conntrack -D`; none to match is fine.
   *
   * @returns how many flows it deleted
   * @throws {ExecError} if the program failed; some may be deleted
   */
  async delete(deletions: readonly (readonly string[])[]): Promise<number> {
    if (deletions.length === 0) return 0;
    if (this.#batches) {
      const argv = ["conntrack", "--load-file", "-"];
      const stdin = deletions.map((options) => `-D ${options.join(" ")}\n`).join("");
      const result = await this.#tries(argv, { stdin });
      // Every flow that is deleted is written on a line of its own.
      if (result.code === 0) return countLines(result.stdout);
      if (!cannotReadInput(result)) throw new ExecError(argv, result.code, result.stderr);
      this.#batches = false;
    }
    let deleted = 0;
    for (const options of deletions) deleted += await this.#deleteOne(options);
    return deleted;
  }

  async #deleteOne(options: readonly string[]): Promise<number> {
    const argv = ["conntrack", "-D", ...options];
    const result = await this.#tries(argv);
    if (result.code === 0) return countLines(result.stdout);
    // Alone, a deletion that matches nothing ends with 1; in a batch it does not.
    if (result.stderr.includes("0 flow entries have been deleted")) return 0;
    throw new ExecError(argv, result.code, result.stderr);
  }

  /** Runs again until the table does not change meanwhile; output of earlier tries counts, too. */
  async #tries(argv: readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    const isDeletion = !argv.includes("-L");
    let stdout = "";
    for (let tries = 1;; tries++) {
      const result = await this.#exec.run(argv, { timeoutMs: TIMEOUT_MS, ...options });
      stdout = isDeletion ? stdout + result.stdout : result.stdout;
      if (tries === TRIES || !isDisturbed(result)) return { ...result, stdout };
    }
  }
}

/**
 * True if the program gave up because of what others did meanwhile: a table that was resized, a flow that ended by itself
 * just before it was deleted, an answer that did not fit.
 */
function isDisturbed({ code, stderr }: ExecResult): boolean {
  return code !== 0 &&
    /Interrupted system call|No buffer space available|such conntrack doesn't exist|No such file or directory/
      .test(stderr);
}

/** True if the program does not know the option (before 1.4.7), or there is no /dev/stdin, which it reads by that name. */
function cannotReadInput({ code, stderr }: ExecResult): boolean {
  return code === 2 &&
    /Failed to open file|unknown option|unrecognized option|[Uu]nknown argument|[Bb]ad option/.test(stderr);
}
