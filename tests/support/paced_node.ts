/**
 * A node whose programs run until the test ends them: to count how often one waits for others.
 *
 * @module
 */
import type { Exec, ExecOptions, ExecResult } from "../../lib/kernel/exec.ts";
import type { DoctorNode } from "./doctor_node.ts";

/** A machine whose programs all end when the test says so. */
export class PacedNode implements Exec {
  #running: (() => void)[] = [];

  constructor(readonly node: DoctorNode) {}

  async run(argv: readonly string[], options?: ExecOptions): Promise<ExecResult> {
    await new Promise<void>((resolve) => void this.#running.push(resolve));
    return await this.node.run(argv, options);
  }

  get running(): number {
    return this.#running.length;
  }

  /** Ends all running programs. */
  endAll(): void {
    for (const end of this.#running.splice(0)) end();
  }
}

/** Waits until all callers have started their next program: none starts for some turns, on a busy machine, too. */
export async function settled(paced: PacedNode, isDone: () => boolean): Promise<void> {
  for (let before = -1, quiet = 0; quiet < 25 && !isDone();) {
    await new Promise((resolve) => setTimeout(resolve, 3));
    quiet = paced.running > 0 && paced.running === before ? quiet + 1 : 0;
    before = paced.running;
  }
}
