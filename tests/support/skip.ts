/**
 * Tests that need more than the runtime: root, programs, a toolchain. If a need is not met they are registered as ignored
 * and the reason is reported; in CI (`CI=true`) an avoidable unmet need is a failure instead.
 *
 * @module
 */
import { UnsupportedError } from "../../lib/errors.ts";
import { writeErrorLine } from "../../tools/output.ts";
import { findProgram, whyNotInstallable } from "../../tools/setup.ts";

/** A need of a test. */
export interface Need {
  /** Purpose of the need, in the words of the report, e.g. "packet tests". */
  readonly feature: string;
  /** The required thing, e.g. "root". */
  readonly needs: string;
  /** Found instead; undefined if the need is met. Called once per process. */
  readonly probe: () => string | undefined;
  /** True if a CI machine can meet the need, or must, so that a skip there is a failure. */
  readonly avoidable: () => boolean;
}

/** Root, and the right to make network namespaces. */
export const ROOT_NAMESPACES: Need = {
  feature: "network namespaces",
  needs: "root that may make namespaces",
  probe: () => {
    if (Deno.build.os !== "linux") return Deno.build.os;
    if (Deno.uid() !== 0) return `user ${Deno.uid()}`;
    const { code, stderr } = new Deno.Command("unshare", { args: ["--net", "true"], stdin: "null" })
      .outputSync();
    return code === 0 ? undefined : new TextDecoder().decode(stderr).trim();
  },
  avoidable: () => Deno.build.os === "linux" && Deno.uid() === 0,
};

/** A program on the PATH. All of them are in some package, even if `tools/setup.ts` does not install it. */
export function program(name: string): Need {
  return {
    feature: `the program ${name}`,
    needs: name,
    probe: () => findProgram(name) === undefined ? "none on the PATH" : undefined,
    avoidable: () => whyNotInstallable() === undefined,
  };
}

/** Go of at least this minor version, which builds kapi. */
export function go(minor = 25): Need {
  return {
    feature: "kapi, the API server of tests/lab",
    needs: `Go 1.${minor} or newer to build it`,
    probe: () => {
      const path = findProgram("go") ?? ["/usr/local/go/bin/go", "/usr/lib/go/bin/go"].find(isExecutable);
      if (path === undefined) return "no Go";
      const { code, stdout } = new Deno.Command(path, { args: ["env", "GOVERSION"], stdin: "null" })
        .outputSync();
      const version = new TextDecoder().decode(stdout).trim();
      const found = /^go1\.(\d+)/.exec(version);
      if (code !== 0 || found === null) return `${path} does not say its version`;
      return Number(found[1]) >= minor ? undefined : version;
    },
    // `tools/setup.ts` does not install Go; CI has it.
    avoidable: () => true,
  };
}

/** A need of a single suite. `avoidable` is for needs that CI can always meet. */
export function need(
  feature: string,
  needs: string,
  probe: () => string | undefined,
  avoidable = false,
): Need {
  return { feature, needs, probe, avoidable: () => avoidable };
}

function isExecutable(path: string): boolean {
  const { success } = new Deno.Command("test", { args: ["-x", path] }).outputSync();
  return success;
}

const met = new Map<string, UnsupportedError | undefined>();

/** Why a need is not met; undefined if it is. */
export function unmet({ feature, needs, probe }: Need): UnsupportedError | undefined {
  const key = `${feature}\n${needs}`;
  if (!met.has(key)) {
    const found = probe();
    met.set(key, found === undefined ? undefined : new UnsupportedError(feature, needs, found));
  }
  return met.get(key);
}

/** A skipped test, as the test task reads it: one JSON object per line of the file named by `KPROXY_SKIPS`. */
export interface Skip {
  readonly test: string;
  readonly reason: string;
}

/**
 * Registers a test that runs only if its needs are met.
 *
 * ```ts
 * e2eTest("a ClusterIP reaches all endpoints", [ROOT_NAMESPACES, program("iptables")], async (t) => {});
 * ```
 */
export function e2eTest(
  name: string,
  needs: readonly Need[],
  fn: (t: Deno.TestContext) => void | Promise<void>,
  options: Omit<Deno.TestDefinition, "name" | "fn"> = {},
): void {
  const missing = needs.flatMap((wanted) => {
    const error = unmet(wanted);
    return error === undefined ? [] : [{ error, avoidable: wanted.avoidable() }];
  });
  if (missing.length === 0) {
    Deno.test({ ...options, name, fn: (t) => onceMoreIfExcused(name, () => fn(t)) });
    return;
  }
  const inCi = missing.find(({ avoidable }) => avoidable && Deno.env.get("CI") === "true");
  if (inCi !== undefined) {
    Deno.test({
      ...options,
      name,
      fn: () => {
        throw new Error(`In CI this must run: ${inCi.error.message}`, { cause: inCi.error });
      },
    });
    return;
  }
  report({ test: name, reason: missing.map(({ error }) => error.message).join("; ") });
  Deno.test({ ...options, name, fn, ignore: true });
}

/** No failure, but the machine was too busy for the test to prove anything. */
export class ExcusedError extends Error {}

/** Runs `fn` a second time if the machine was too busy for a connect loop to prove anything; then it must. */
export async function onceMoreIfExcused<T>(name: string, fn: () => T | Promise<T>): Promise<T> {
  try {
    return await fn();
  } catch (error) {
    if (!(error instanceof ExcusedError)) throw error;
    writeErrorLine(`once more: ${name}: ${error.message}`);
  }
  return await fn();
}

function report(skip: Skip): void {
  const file = Deno.env.get("KPROXY_SKIPS");
  if (file === undefined) writeErrorLine(`skipped: ${skip.test}: ${skip.reason}`);
  else Deno.writeTextFileSync(file, `${JSON.stringify(skip)}\n`, { append: true });
}
