/**
 * Stand-in for the part of `jsr:@std/assert` that kproxy's tests use, for builders that cannot reach JSR.
 * Same names and signatures as the real package, over `node:assert`.
 *
 * @module
 */
import assertion from "node:assert/strict";

/** The error every failing assertion throws. */
export class AssertionError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = "AssertionError";
  }
}

function run(check: () => void, msg?: string): void {
  try {
    check();
  } catch (error) {
    const detail = error instanceof Error ? error.message : String(error);
    throw new AssertionError(msg === undefined ? detail : `${detail}\n${msg}`, { cause: error });
  }
}

/** Fails unless `expr` is truthy. */
export function assert(expr: unknown, msg = ""): asserts expr {
  if (!expr) throw new AssertionError(msg || "Expected a truthy value");
}

/** Fails if `expr` is truthy. */
export function assertFalse(expr: unknown, msg = ""): asserts expr is false {
  if (expr) throw new AssertionError(msg || "Expected a falsy value");
}

/** Fails unless both values are deeply equal. */
export function assertEquals<T>(actual: T, expected: T, msg?: string): void {
  run(() => assertion.deepStrictEqual(actual, expected), msg);
}

/** Fails if both values are deeply equal. */
export function assertNotEquals<T>(actual: T, expected: T, msg?: string): void {
  run(() => assertion.notDeepStrictEqual(actual, expected), msg);
}

/** Fails unless both values are the same (`Object.is`). */
export function assertStrictEquals<T>(actual: unknown, expected: T, msg?: string): asserts actual is T {
  run(() => assertion.strictEqual(actual, expected), msg);
}

/** Fails if `actual` is null or undefined. */
export function assertExists<T>(actual: T, msg?: string): asserts actual is NonNullable<T> {
  if (actual === undefined || actual === null) {
    throw new AssertionError(msg ?? `Expected a value, but got ${actual}`);
  }
}

/** Fails unless `actual` contains `expected`. */
export function assertStringIncludes(actual: string, expected: string, msg?: string): void {
  if (!actual.includes(expected)) {
    throw new AssertionError(
      `Expected ${JSON.stringify(actual)} to include ${JSON.stringify(expected)}. ${msg ?? ""}`,
    );
  }
}

/** Fails unless `actual` matches `expected`. */
export function assertMatch(actual: string, expected: RegExp, msg?: string): void {
  if (!expected.test(actual)) {
    throw new AssertionError(`Expected ${JSON.stringify(actual)} to match ${expected}. ${msg ?? ""}`);
  }
}

/** Fails unless `actual` is an instance of `expectedType`. */
// deno-lint-ignore no-explicit-any -- the constructor's parameters do not matter here, as in the real package.
export function assertInstanceOf<T extends abstract new (...args: any[]) => any>(
  actual: unknown,
  expectedType: T,
  msg = "",
): asserts actual is InstanceType<T> {
  if (!(actual instanceof expectedType)) {
    throw new AssertionError(msg || `Expected an instance of ${expectedType.name}`);
  }
}

/** Fails unless `actual > expected`. */
export function assertGreater<T>(actual: T, expected: T, msg?: string): void {
  if (!(actual > expected)) throw new AssertionError(msg ?? `Expected ${actual} > ${expected}`);
}

/** Fails unless `actual >= expected`. */
export function assertGreaterOrEqual<T>(actual: T, expected: T, msg?: string): void {
  if (!(actual >= expected)) throw new AssertionError(msg ?? `Expected ${actual} >= ${expected}`);
}

/** Fails unless `actual < expected`. */
export function assertLess<T>(actual: T, expected: T, msg?: string): void {
  if (!(actual < expected)) throw new AssertionError(msg ?? `Expected ${actual} < ${expected}`);
}

/** Fails unless `actual <= expected`. */
export function assertLessOrEqual<T>(actual: T, expected: T, msg?: string): void {
  if (!(actual <= expected)) throw new AssertionError(msg ?? `Expected ${actual} <= ${expected}`);
}

/** Fails, always. */
export function fail(msg?: string): never {
  throw new AssertionError(`Failed assertion${msg ? `: ${msg}` : "."}`);
}

// deno-lint-ignore no-explicit-any -- as in the real package: any constructor of errors will do.
type ErrorClass<E extends Error> = new (...args: any[]) => E;

function checkThrown<E extends Error>(error: unknown, errorClass?: ErrorClass<E>, msgIncludes?: string): E {
  if (!(error instanceof Error)) throw new AssertionError("A non-Error object was thrown or rejected");
  if (errorClass && !(error instanceof errorClass)) {
    throw new AssertionError(`Expected ${errorClass.name}, but got ${error.name}: ${error.message}`, {
      cause: error,
    });
  }
  if (msgIncludes !== undefined && !error.message.includes(msgIncludes)) {
    throw new AssertionError(
      `Expected the error message to include ${JSON.stringify(msgIncludes)}, but got ${
        JSON.stringify(error.message)
      }`,
    );
  }
  return error as E;
}

/** Fails unless `fn` throws an error of the given class whose message includes `msgIncludes`. Returns that error. */
export function assertThrows<E extends Error = Error>(
  fn: () => unknown,
  errorClass?: ErrorClass<E>,
  msgIncludes?: string,
): E {
  try {
    fn();
  } catch (error) {
    return checkThrown(error, errorClass, msgIncludes);
  }
  throw new AssertionError("Expected function to throw");
}

/** Fails unless the promise of `fn` rejects with such an error. Resolves to that error. */
export async function assertRejects<E extends Error = Error>(
  fn: () => PromiseLike<unknown>,
  errorClass?: ErrorClass<E>,
  msgIncludes?: string,
): Promise<E> {
  try {
    await fn();
  } catch (error) {
    return checkThrown(error, errorClass, msgIncludes);
  }
  throw new AssertionError("Expected function to reject");
}
