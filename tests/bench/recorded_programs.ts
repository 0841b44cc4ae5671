/**
 * Records every program that kproxy starts, with its arguments and standard input: a folder of small scripts that stand
 * before the real programs on the PATH. It slows each start by milliseconds, so nothing is timed with it.
 *
 * @module
 */
import { PERMISSIONS } from "../../tools/permissions.ts";
import { findProgram } from "../../tools/setup.ts";

/** One program that was started. */
export interface RecordedRun {
  readonly argv: readonly string[];
  /** What it read; empty for programs that read nothing. */
  readonly stdin: string;
}

/** The pause between two programs of a start stays far below this, also where others take most of the processor. */
const QUIET_MS = 4_000;
const READS_STDIN = /-restore$|^(nft|ipset|ipvsadm|ip)$/;

/** Scripts in a folder, and what they wrote down. */
export class RecordedPrograms {
  readonly #folder: string;

  private constructor(folder: string) {
    this.#folder = folder;
  }

  /** Writes a script for each program that kproxy may start and the machine has. */
  static async create(folder: string): Promise<RecordedPrograms> {
    await Deno.mkdir(`${folder}/bin`, { recursive: true });
    await Deno.mkdir(`${folder}/runs`);
    const programs = PERMISSIONS.find(({ flag }) => flag === "--allow-run")?.grants ?? [];
    for (const { value: name } of programs) {
      const real = findProgram(name);
      if (real === undefined) continue;
      await Deno.writeTextFile(`${folder}/bin/${name}`, script(folder, name, real), { mode: 0o755 });
    }
    return new RecordedPrograms(folder);
  }

  /** The PATH with the scripts first. */
  get path(): string {
    return `${this.#folder}/bin:${Deno.env.get("PATH") ?? ""}`;
  }

  /** How many programs were started until now. */
  async count(): Promise<number> {
    return (await this.#lines()).length;
  }

  /** Resolves when no program has been started for so long that a busy machine is no explanation. */
  async quiet(): Promise<void> {
    for (let count = -1; count !== await this.count();) {
      count = await this.count();
      await new Promise((resolve) => setTimeout(resolve, QUIET_MS));
    }
  }

  /** The programs started since number `from`, in order. */
  async since(from: number): Promise<RecordedRun[]> {
    return await Promise.all((await this.#lines()).slice(from).map((line) => this.#recorded(line)));
  }

  async #recorded(line: string): Promise<RecordedRun> {
    const [id = "", ...argv] = line.split("\t");
    const name = argv[0] ?? "";
    const stdin = READS_STDIN.test(name) ? await Deno.readTextFile(`${this.#folder}/runs/${id}`) : "";
    return { argv, stdin };
  }

  async #lines(): Promise<string[]> {
    try {
      const text = await Deno.readTextFile(`${this.#folder}/started`);
      return text.split("\n").filter((line) => line !== "");
    } catch (error) {
      if (error instanceof Deno.errors.NotFound) return [];
      throw error;
    }
  }
}

function script(folder: string, name: string, real: string): string {
  // One write of one line: those of programs that run side by side do not mix. The input is complete before it is noted.
  const read = READS_STDIN.test(name) ? `cat > "${folder}/runs/$$"\n` : "";
  const input = READS_STDIN.test(name) ? ` < "${folder}/runs/$$"` : "";
  return `#!/bin/sh
${read}line="$$	${name}"
for argument in "$@"; do line="$line	$argument"; done
printf '%s\\n' "$line" >> "${folder}/started"
exec "${real}" "$@"${input}
`;
}
