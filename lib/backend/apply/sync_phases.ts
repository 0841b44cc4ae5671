/**
 * The phases of one sync: how long each took, and in which of them it failed.
 *
 * @module
 */
import { ExecError, SyncError, type SyncPhase } from "../../errors.ts";
import type { IpFamily } from "../../model/objects.ts";

/** Says what went wrong; null: it is no failure of the sync, and is thrown on as it is. */
export type DescribeFailure = (error: unknown) => string | null;

/** Times the phases of the sync under way, and makes {@linkcode SyncError}s of what fails in them. */
export class SyncPhases {
  readonly #mode: string;
  readonly #family: IpFamily;
  readonly #describe: DescribeFailure;
  #elapsedMs: Record<string, number> = {};

  constructor(mode: string, family: IpFamily, describe: DescribeFailure) {
    this.#mode = mode;
    this.#family = family;
    this.#describe = describe;
  }

  /** Begins a sync: nothing has taken any time yet. */
  restart(): void {
    this.#elapsedMs = {};
  }

  /** Milliseconds by phase, in the order in which each was first entered; absent ones took none. */
  get elapsedMs(): Readonly<Record<string, number>> {
    return this.#elapsedMs;
  }

  /**
   * Does the work and adds its time to the phase.
   *
   * @throws {SyncError} if it fails
   */
  async run<T>(phase: SyncPhase, work: () => T | Promise<T>): Promise<T> {
    const startMs = performance.now();
    try {
      return await work();
    } catch (error) {
      const problem = this.#describe(error);
      if (problem === null) throw error;
      throw new SyncError(this.#mode, phase, `${this.#family}: ${problem}`, { cause: error });
    } finally {
      this.#elapsedMs[phase] = (this.#elapsedMs[phase] ?? 0) + performance.now() - startMs;
    }
  }
}

/** Any error's message, and of a program's the rest of what it printed. */
export function describeProgramFailure(error: unknown): string | null {
  if (!(error instanceof Error)) return null;
  const around = error instanceof ExecError ? error.stderr.split("\n").slice(1) : [];
  return [error.message, ...around].join("\n").trimEnd();
}
