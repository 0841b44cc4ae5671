/**
 * What a proxy costs while it starts, rests and follows changes: processor and memory.
 *
 * @module
 */
import { tenths } from "./figures.ts";
import type { Memory, ProxyProcess } from "./proxy_process.ts";

/** Times in milliseconds, memory in megabytes. */
export interface ProxyCosts {
  readonly memoryAfterFirstSync: Memory;
  readonly memoryAtEnd: Memory;
  /** Resident size over the changes: the mean of each tenth of them, in MB, in order; fewer values if there are fewer changes. */
  readonly memoryByTenth: readonly number[];
  /** CPU time until nothing of the start was left to do, programs included. */
  readonly startCpuMs: number;
  readonly idleCpuPercent: number;
  /** How much of it programs took. */
  readonly idleProgramsPercent: number;
  readonly cpuMsPerTouch: number;
}

const SETTLE_TIMEOUT_MS = 300_000;

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Measures one proxy from its first sync on: the rest, then each change, then the end. */
export class CostMeter {
  readonly #process: ProxyProcess;
  readonly #memoryAfterFirstSync: Memory;
  readonly #sizesMb: number[] = [];
  #startCpuMs = 0;
  #idleCpuPercent = 0;
  #idleProgramsPercent = 0;
  #touchCpuMs = 0;
  #touches = 0;

  private constructor(process: ProxyProcess, memoryAfterFirstSync: Memory) {
    this.#process = process;
    this.#memoryAfterFirstSync = memoryAfterFirstSync;
  }

  /** To be called right after the first sync. */
  static async begin(process: ProxyProcess): Promise<CostMeter> {
    return new CostMeter(process, await process.memory());
  }

  /** Waits until the start is over and `restMs` more, then looks at the processor for `idleMs`. */
  async rest(restMs: number, idleMs: number): Promise<void> {
    await this.#process.settled(SETTLE_TIMEOUT_MS);
    this.#startCpuMs = await this.#process.cpuMs();
    await sleep(restMs);
    const from = await this.#process.cpuParts();
    await sleep(idleMs);
    const to = await this.#process.cpuParts();
    this.#idleProgramsPercent = 100 * (to.programsMs - from.programsMs) / idleMs;
    this.#idleCpuPercent = this.#idleProgramsPercent + 100 * (to.ownMs - from.ownMs) / idleMs;
  }

  /** Makes a change and waits `pauseMs` after it; yields what `change` does. */
  async change<T>(isTouch: boolean, pauseMs: number, change: () => Promise<T>): Promise<T> {
    const cpuFrom = await this.#process.cpuMs();
    const result = await change();
    await sleep(pauseMs);
    if (isTouch) {
      this.#touchCpuMs += await this.#process.cpuMs() - cpuFrom;
      this.#touches++;
    }
    this.#sizesMb.push((await this.#process.memory()).nowMb);
    return result;
  }

  /** To be called after the last change. */
  async end(): Promise<ProxyCosts> {
    return {
      memoryAfterFirstSync: this.#memoryAfterFirstSync,
      memoryAtEnd: await this.#process.memory(),
      memoryByTenth: tenths(this.#sizesMb),
      startCpuMs: this.#startCpuMs,
      idleCpuPercent: this.#idleCpuPercent,
      idleProgramsPercent: this.#idleProgramsPercent,
      cpuMsPerTouch: this.#touchCpuMs / this.#touches,
    };
  }
}
