/**
 * Stand-in for `jsr:@std/testing/time`, for builders that cannot reach JSR. Same names and signatures as the real package.
 * As there, `Date`, the timer functions and `AbortSignal.timeout` are faked, `performance.now` is not.
 *
 * @module
 */

/** Wrong use of fake time. */
export class TimeError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "TimeError";
  }
}

/** Options of {@linkcode FakeTime}. */
export interface FakeTimeOptions {
  /** Fake milliseconds that pass per real one; 0 moves time only by calls. @default {0} */
  advanceRate: number;
  /** Real milliseconds between two moves, if there is a rate. @default {10} */
  advanceFrequency?: number;
}

/** Options of {@linkcode FakeTime.delay}. */
export interface DelayOptions {
  /** Gives up the wait. */
  signal?: AbortSignal;
}

type Callback = (...args: unknown[]) => void;

interface Timer {
  readonly callback: Callback;
  readonly args: readonly unknown[];
  /** Repeats after this many milliseconds; undefined runs once. */
  readonly everyMs: number | undefined;
  dueMs: number;
  /** Among timers due at the same time, the one set first runs first. */
  order: number;
}

const real = {
  Date: globalThis.Date,
  setTimeout: globalThis.setTimeout,
  clearTimeout: globalThis.clearTimeout,
  setInterval: globalThis.setInterval,
  clearInterval: globalThis.clearInterval,
  abortSignalTimeout: AbortSignal.timeout,
};

let current: FakeTime | undefined;

/** Replaces the clock and the timers until {@linkcode FakeTime.restore}; time moves only as the test says. */
export class FakeTime {
  readonly #startMs: number;
  #nowMs: number;
  #timers = new Map<number, Timer>();
  #lastId = 0;
  #lastOrder = 0;
  #advance: ReturnType<typeof setInterval> | undefined;

  constructor(start?: number | string | Date | null, options?: FakeTimeOptions) {
    if (current !== undefined) throw new TimeError("Cannot construct FakeTime: time is already faked");
    this.#startMs = start === undefined || start === null
      ? real.Date.now()
      : typeof start === "number"
      ? Math.floor(start)
      : new real.Date(start).valueOf();
    if (Number.isNaN(this.#startMs)) {
      throw new TypeError(`Cannot construct FakeTime: invalid start time ${String(start)}`);
    }
    this.#nowMs = this.#startMs;
    current = this;
    this.#override();
    const rate = Math.max(0, options?.advanceRate ?? 0);
    const everyMs = Math.max(0, options?.advanceFrequency ?? 10);
    if (rate > 0) this.#advance = real.setInterval(() => this.tick(rate * everyMs), everyMs);
  }

  /** Restores real time. */
  static restore(): void {
    if (current === undefined) throw new TimeError("Cannot restore time: time is already restored");
    current.restore();
  }

  /** Runs `callback` with real time and fakes it again once its promise has settled. */
  static async restoreFor<T, A extends unknown[]>(
    callback: (...args: A) => Promise<T> | T,
    ...args: A
  ): Promise<T> {
    if (current === undefined) throw new TimeError("Cannot restore time: time is not faked");
    const time = current;
    restoreGlobals();
    try {
      return await callback(...args);
    } finally {
      if (current === time) time.#override();
    }
  }

  /** Fake milliseconds since 1970. Setting it runs every timer due until then; it cannot go backwards. */
  get now(): number {
    return this.#nowMs;
  }
  set now(value: number) {
    if (value < this.#nowMs) {
      throw new RangeError(
        `Cannot set time in the past: time must not go backwards (${value} < ${this.#nowMs})`,
      );
    }
    for (let due = this.#nextDue(); due !== undefined && due[1].dueMs <= value; due = this.#nextDue()) {
      this.#nowMs = due[1].dueMs;
      this.#fire(...due);
    }
    this.#nowMs = value;
  }

  /** Fake milliseconds since 1970 at the start. */
  get start(): number {
    return this.#startMs;
  }
  set start(_value: number) {
    throw new TypeError("Cannot change start time after initialization");
  }

  /** Resolves after that many real milliseconds. */
  async delay(ms: number, options: DelayOptions = {}): Promise<void> {
    const { signal } = options;
    signal?.throwIfAborted();
    await new Promise<void>((resolve, reject) => {
      const abort = (): void => {
        real.clearTimeout(timer);
        reject(signal?.reason);
      };
      const timer = real.setTimeout(() => {
        signal?.removeEventListener("abort", abort);
        resolve();
      }, ms);
      signal?.addEventListener("abort", abort, { once: true });
    });
  }

  /** Runs what is pending in promises. */
  async runMicrotasks(): Promise<void> {
    await this.delay(0);
  }

  /** Moves time forward by `ms`, running every timer that becomes due. */
  tick(ms = 0): void {
    this.now += ms;
  }

  /** Runs what is pending in promises, then moves time forward. */
  async tickAsync(ms = 0): Promise<void> {
    await this.runMicrotasks();
    this.now += ms;
  }

  /** Moves time to the next timer and runs it. False if there is none. */
  next(): boolean {
    const due = this.#nextDue();
    if (due === undefined) return false;
    this.now = Math.max(this.#nowMs, due[1].dueMs);
    return true;
  }

  /** As {@linkcode FakeTime.next}, after running what is pending in promises. */
  async nextAsync(): Promise<boolean> {
    await this.runMicrotasks();
    return this.next();
  }

  /** Runs timers until none is left, and before each of them what is pending in promises. */
  async runAllAsync(): Promise<void> {
    while (this.#timers.size > 0) await this.nextAsync();
  }

  /** Restores real time; timers that are still set are forgotten. */
  restore(): void {
    if (current !== this) throw new TimeError("Cannot restore time: time is already restored");
    current = undefined;
    restoreGlobals();
    if (this.#advance !== undefined) real.clearInterval(this.#advance);
  }

  /** Restores real time if it is still faked. */
  [Symbol.dispose](): void {
    if (current === this) this.restore();
  }

  #override(): void {
    const clear = (id?: unknown): void => {
      if (typeof id === "number") this.#timers.delete(id);
    };
    const fakes = {
      Date: fakeDate(this),
      setTimeout: (callback: Callback, ms?: number, ...args: unknown[]) =>
        this.#set(callback, ms, args, false),
      setInterval: (callback: Callback, ms?: number, ...args: unknown[]) =>
        this.#set(callback, ms, args, true),
      clearTimeout: clear,
      clearInterval: clear,
    };
    Object.assign(globalThis, fakes);
    AbortSignal.timeout = (ms: number): AbortSignal => {
      const controller = new AbortController();
      const expire = (): void => controller.abort(new DOMException("Signal timed out.", "TimeoutError"));
      this.#set(expire, ms, [], false);
      return controller.signal;
    };
  }

  #set(callback: Callback, ms: number | undefined, args: readonly unknown[], repeat: boolean): number {
    const wanted = Math.floor(Number(ms ?? 0));
    // A timer of 0 ms that repeats would never let time pass.
    const delayMs = Math.max(repeat ? 1 : 0, Number.isNaN(wanted) ? 0 : wanted);
    const id = ++this.#lastId;
    const everyMs = repeat ? delayMs : undefined;
    this.#timers.set(id, { callback, args, everyMs, dueMs: this.#nowMs + delayMs, order: ++this.#lastOrder });
    return id;
  }

  #nextDue(): [number, Timer] | undefined {
    let best: [number, Timer] | undefined;
    for (const entry of this.#timers) {
      const earlier = best === undefined || entry[1].dueMs < best[1].dueMs ||
        (entry[1].dueMs === best[1].dueMs && entry[1].order < best[1].order);
      if (earlier) best = entry;
    }
    return best;
  }

  #fire(id: number, timer: Timer): void {
    if (timer.everyMs === undefined) {
      this.#timers.delete(id);
    } else {
      timer.dueMs += timer.everyMs;
      timer.order = ++this.#lastOrder;
    }
    timer.callback(...timer.args);
  }
}

function restoreGlobals(): void {
  const { abortSignalTimeout, ...globals } = real;
  Object.assign(globalThis, globals);
  AbortSignal.timeout = abortSignalTimeout;
}

/** `Date` with the given clock. Real dates are instances of it, and its dates are real ones. */
function fakeDate(time: FakeTime): DateConstructor {
  return new Proxy(real.Date, {
    apply: () => new real.Date(time.now).toString(),
    construct: (target, args, newTarget) =>
      Reflect.construct(target, args.length === 0 ? [time.now] : args, newTarget),
    get: (target, key) => key === "now" ? () => time.now : Reflect.get(target, key),
  });
}
