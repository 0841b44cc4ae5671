/**
 * The objects that a running proxy holds, as a stream: made piece by piece while it is read, so that neither memory nor the loop has to
 * bear the whole.
 *
 * @module
 */
import { type Clock, systemClock } from "../../kernel/clock.ts";

/**
 * Lets many take pieces that cost time to make: one piece at a time for all of them, and after each as long a rest as it took, so
 * that everything else in the process goes on, however many read.
 */
export class PiecePace {
  readonly #clock: Clock;
  #last: Promise<unknown> = Promise.resolve();

  constructor(clock: Clock = systemClock) {
    this.#clock = clock;
  }

  /** What `make` makes, when it is its turn. */
  take<Piece>(make: () => Piece, stopping: AbortSignal): Promise<Piece> {
    const clock = this.#clock;
    let tookMs = 0;
    const piece = this.#last.then(() => {
      const startMs = clock.nowMs();
      try {
        return make();
      } finally {
        tookMs = clock.nowMs() - startMs;
      }
    });
    const rest = (): Promise<void> => clock.sleep(tookMs, stopping);
    this.#last = piece.then(rest, rest);
    return piece;
  }
}

/** The pieces as a body, each made when it is wanted. */
export function pacedBody(
  pieces: Iterator<Uint8Array<ArrayBuffer>>,
  pace: PiecePace,
  stopping: AbortSignal,
): ReadableStream<Uint8Array<ArrayBuffer>> {
  return new ReadableStream({
    async pull(controller) {
      const next = await pace.take(() => pieces.next(), stopping);
      if (next.done === true) controller.close();
      else controller.enqueue(next.value);
    },
    cancel: () => void pieces.return?.(),
  }, { highWaterMark: 0 });
}
