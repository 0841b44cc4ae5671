import { assertEquals } from "@std/assert";
import { pure } from "../../../tests/support/decode_objects.ts";
import { RetryBackoff } from "./reflector.ts";

function backoff(random = 0): RetryBackoff {
  return new RetryBackoff({ backoffInitialMs: 800, backoffMaxMs: 30_000 }, () => random);
}

/** The waits of the steps, one after another. */
function waits(steps: readonly ((backoff: RetryBackoff) => void)[], random = 0): number[] {
  const one = backoff(random);
  return steps.map((step) => {
    step(one);
    return one.waitMs();
  });
}

function times<T>(count: number, value: T): T[] {
  return Array.from({ length: count }, () => value);
}

const LIST_FAILS = (one: RetryBackoff): void => one.failed("list");
const WATCH_FAILS = (one: RetryBackoff): void => one.failed("watch");
const EXPIRES = (one: RetryBackoff): void => {
  one.listed();
  one.expired();
};

pure("waits double up to the longest, each up to twice as long by chance", () => {
  assertEquals(waits(times(8, LIST_FAILS)), [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
  assertEquals(waits(times(3, LIST_FAILS), 0.5), [1200, 2400, 4800]);
  assertEquals(backoff().waitMs(5_000), 5_000);
});

pure("a good list ends the waits for lists, not those for watches or for versions that expire", () => {
  const listed = (one: RetryBackoff): void => one.listed();
  assertEquals(waits([...times(5, LIST_FAILS), listed, LIST_FAILS]).slice(-2), [800, 800]);
  assertEquals(waits([...times(5, WATCH_FAILS), listed, WATCH_FAILS]).slice(-2), [12_800, 25_600]);
  // The first one in a row costs no wait at all.
  assertEquals(waits(times(7, EXPIRES)).slice(1), [800, 1600, 3200, 6400, 12_800, 25_600]);
});

pure("a good watch ends the waits for watches, one that lives long those for versions", () => {
  const watched = (one: RetryBackoff): void => one.watched();
  assertEquals(waits([...times(5, WATCH_FAILS), watched, WATCH_FAILS]).at(-1), 800);
  assertEquals(waits([...times(5, EXPIRES), watched, EXPIRES]).at(-1), 12_800);
  const one = backoff();
  assertEquals([one.expired(), one.expired(), one.expired()], [true, false, false]);
  one.calm();
  assertEquals(one.expired(), true);
});

pure("a version that expires is an answer: watches that failed before it make no wait longer", () => {
  assertEquals(waits([...times(6, WATCH_FAILS), EXPIRES, EXPIRES, EXPIRES]).slice(-2), [800, 1600]);
  assertEquals(waits([...times(6, WATCH_FAILS), EXPIRES, WATCH_FAILS]).at(-1), 800);
  // A server that gives now the one, now the other is left in peace all the same.
  assertEquals(
    waits(times(6, [EXPIRES, WATCH_FAILS]).flat()).slice(-6),
    [3200, 3200, 6400, 6400, 12_800, 12_800],
  );
});

pure("every fourth watch that fails is tried from a new list, with waits that go on growing", () => {
  const one = backoff();
  const needed = times(9, 0).map(() => {
    one.failed("watch");
    const needsList = one.needsList;
    if (needsList) one.listed();
    return needsList;
  });
  assertEquals(needed, [false, false, false, true, false, false, false, true, false]);
  assertEquals(one.waitMs(), 30_000);
});
