/**
 * Gives an input to a target, and says what was wrong with what came of it.
 *
 * @module
 */
import { startWork } from "../support/spent.ts";
import { bytesOf, type FuzzTarget, type Input, randomOf, type Repeated, wholeOf } from "./target.ts";

const MIB = 2 ** 20;
const DEFAULT_LIMIT_MS = 100;
/** A garbage collection may fall into one try: what is slow is slow each time. */
const TRIES = 3;

/** Undefined: it was read or refused, as it should. */
export async function findIn(
  target: FuzzTarget,
  input: Input,
  { slack = 1 } = {},
): Promise<string | undefined> {
  const bytes = bytesOf(input);
  const { passes = 1, limitMs: ofPassMs = DEFAULT_LIMIT_MS } = target;
  const limitMs = slack * passes * ofPassMs * Math.max(1, bytes.length / MIB);
  let shortestMs = Infinity;
  for (let tries = 0; tries < TRIES; tries++) {
    const spentMs = startWork();
    try {
      await target.read(bytes, randomOf(bytes));
    } catch (error) {
      if (!target.refusals.some((refusal) => error instanceof refusal)) return described(error);
    }
    shortestMs = Math.min(shortestMs, spentMs());
    if (shortestMs <= limitMs) return undefined;
  }
  return `took ${Math.round(shortestMs)} ms, may take ${Math.round(limitMs)}`;
}

/** With the first place in the project: what differs in nothing else is one find. */
function described(error: unknown): string {
  if (!(error instanceof Error)) return `threw ${String(error)}`;
  const place = /\b(?:lib|tests)\/[\w/]+\.ts:\d+/.exec(error.stack ?? "")?.[0] ?? "";
  return `${error.name} at ${place}: ${error.message.slice(0, 400)}`;
}

/** What two finds have in common that are one. */
export function kindOf(find: string): string {
  return find.startsWith("took ") ? "took" : find.split(": ", 1)[0]!;
}

const MOST_TRIES = 500;
const MOST_MS = 10_000;

/** A smaller input that does the same, as far as it is found soon. */
export async function minimized(
  target: FuzzTarget,
  input: Input | Repeated,
  kind: string,
): Promise<Input | Repeated> {
  const spentMs = startWork();
  let tries = 0;
  const doesSame = async (other: Input | Repeated): Promise<boolean> => {
    if (++tries > MOST_TRIES || spentMs() > MOST_MS) return false;
    const find = await findIn(target, wholeOf(other));
    return find !== undefined && kindOf(find) === kind;
  };
  if (typeof input !== "string") return await fewerTimes(input, doesSame);
  let smallest = input;
  for (let length = Math.ceil(input.length / 2); length >= 1; length = Math.floor(length / 2)) {
    for (let at = 0; at < smallest.length;) {
      const without = smallest.slice(0, at) + smallest.slice(at + length);
      if (await doesSame(without)) smallest = without;
      else at += length;
    }
  }
  return smallest;
}

async function fewerTimes(
  input: Repeated,
  doesSame: (input: Repeated) => Promise<boolean>,
): Promise<Repeated> {
  let smallest = input;
  for (const [at, [part]] of input.entries()) {
    for (let [, times] = smallest[at]!; times > 0;) {
      times = Math.floor(times / 2);
      const fewer = smallest.with(at, [part, times]);
      if (!await doesSame(fewer)) break;
      smallest = fewer;
    }
  }
  return smallest.filter(([part, times]) => part !== "" && times > 0);
}
