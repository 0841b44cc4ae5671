/**
 * Programs that misbehave: wrappers which stand before the real ones on kproxy's PATH and do as they are told, once each.
 *
 * @module
 */
import { saysGone } from "../support/processes.ts";
import { findProgram } from "../../tools/setup.ts";

/** What a program may do instead of its work. */
export const MISBEHAVIOURS = [
  /** Nothing, with status 1. */
  "fails",
  /** Nothing, killed. */
  "dies",
  /** Prints garbage, with status 0. */
  "garbage",
  /** Nothing, until it is killed or the fault is over. */
  "hangs",
  /** Ends, but a child of its own goes on holding its output. */
  "leaves a child",
  /** All of its work, and then it says that it failed. */
  "reports failure",
  /** The first half of its input's lines, and then it is killed. */
  "dies half-way",
] as const;
export type Misbehaviour = typeof MISBEHAVIOURS[number];

const LEFT_CHILD_SECONDS = 4;

/** What is planned for a program holds for all of its variants: only kproxy knows which one it takes. */
function planName(program: string): string {
  return program.replace(/-(?:nft|legacy)(?=-|$)/, "");
}

function script(name: string, real: string, plans: string): string {
  return `#!/bin/sh
for plan in "${plans}/${planName(name)}".*; do
  [ -e "$plan" ] || break
  read -r how <"$plan"
  mv "$plan" "${plans}/taken-$$" 2>/dev/null || continue
  case $how in
    fails) echo "${name}: not today" >&2; exit 1 ;;
    dies) kill -KILL $$ ;;
    garbage) printf '\\001\\377]} *nat\\ntable garbage {\\n'; exit 0 ;;
    hangs) mv "${plans}/taken-$$" "${plans}/hangs-$$"; exec sleep 600 ;;
    leaves*) sleep ${LEFT_CHILD_SECONDS} & exit 1 ;;
    reports*) "${real}" "$@"; echo "${name}: it went wrong" >&2; exit 1 ;;
    *half-way)
      text=$(cat)
      lines=$(printf '%s\\n' "$text" | wc -l)
      printf '%s\\n' "$text" | head -n $((lines / 2)) | "${real}" "$@" >/dev/null 2>&1
      kill -KILL $$ ;;
  esac
done
exec "${real}" "$@"
`;
}

/** A folder of wrappers. */
export class ChaosTools {
  readonly #folder: string;
  #planned = 0;
  #isActive = false;

  private constructor(folder: string) {
    this.#folder = folder;
  }

  /** Makes wrappers of those of these programs that there are. */
  static async create(folder: string, programs: readonly string[]): Promise<ChaosTools> {
    const tools = new ChaosTools(folder);
    await Deno.mkdir(tools.#plans, { recursive: true });
    await Deno.mkdir(tools.path, { recursive: true });
    for (const name of programs) {
      const real = findProgram(name);
      if (real === undefined) continue;
      await Deno.writeTextFile(`${tools.path}/${name}`, script(name, real, tools.#plans), { mode: 0o755 });
    }
    return tools;
  }

  /** For the front of a PATH. */
  get path(): string {
    return `${this.#folder}/bin`;
  }

  get #plans(): string {
    return `${this.#folder}/plans`;
  }

  /** True while programs may misbehave. */
  get isActive(): boolean {
    return this.#isActive;
  }

  /** The next start of this program goes wrong in this way, and so do as many after it as it is said. */
  async plan(program: string, how: Misbehaviour): Promise<void> {
    this.#isActive = true;
    await Deno.writeTextFile(`${this.#plans}/${planName(program)}.${this.#planned++}`, `${how}\n`);
  }

  /** Forgets what hurt no client, ends what hangs, and says how many programs misbehaved. */
  async end(): Promise<number> {
    let suffered = 0;
    for await (const { name } of Deno.readDir(this.#plans)) {
      const [kind, pid] = /^(taken|hangs)-(\d+)$/.exec(name)?.slice(1) ?? [];
      if (kind !== undefined) suffered++;
      if (kind === "hangs") await this.#kill(Number(pid));
      await this.#remove(name);
    }
    this.#isActive = false;
    return suffered;
  }

  /** Unless kproxy has done so, and the number belongs to another process. */
  async #kill(pid: number): Promise<void> {
    try {
      const line = await Deno.readTextFile(`/proc/${pid}/cmdline`);
      if (line.startsWith("sleep\0")) Deno.kill(pid, "SIGKILL");
    } catch (error) {
      if (!saysGone(error)) throw error;
    }
  }

  async #remove(name: string): Promise<void> {
    try {
      await Deno.remove(`${this.#plans}/${name}`);
    } catch (error) {
      // A program that has just taken it.
      if (!(error instanceof Deno.errors.NotFound)) throw error;
    }
  }
}
