import { type Clock, systemClock } from "../../lib/kernel/clock.ts";

/** The system's clock, but waits begin to pass only once it is released. */
export class HeldClock implements Clock {
  #release: () => void = () => {};
  readonly #released = new Promise<void>((resolve) => this.#release = resolve);

  nowMs(): number {
    return systemClock.nowMs();
  }

  async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    const aborted = new Promise<void>((resolve) => signal?.addEventListener("abort", () => resolve()));
    await Promise.race([this.#released, aborted]);
    await systemClock.sleep(ms, signal);
  }

  release(): void {
    this.#release();
  }
}
