/**
 * The network of a test, made of namespaces: built, and taken away in any case.
 *
 * @module
 */
import { ExecError, UnsupportedError } from "../../errors.ts";
import { type Exec, type ExecOptions, runOk } from "../../kernel/exec.ts";
import {
  addNamespace,
  deleteNamespace,
  execInNamespace,
  listNamespaces,
  runIpLines,
} from "../../kernel/network_namespaces.ts";
import { isPermissionProblem } from "../../kernel/tool_errors.ts";
import type { IpFamily } from "../../model/objects.ts";
import { type HostName, HOSTS, neighbourLines, NEIGHBOURS, nodeLines, settingsOf } from "./topology.ts";

const NAME = /^kproxy-selftest-(?<until>[0-9a-z]+)-[0-9a-f]+-[a-z-]+$/;
/** Clocks may be set, and machines may stand still. */
const GRACE_MS = 60_000;

/** @param untilMs when the test will be over, in milliseconds since the epoch */
export function namespaceNames(untilMs: number, random: string): Readonly<Record<HostName, string>> {
  const until = Math.ceil(untilMs / 1_000).toString(36);
  const entries = HOSTS.map((host) => [host, `kproxy-selftest-${until}-${random}-${host}`]);
  return Object.fromEntries(entries) as Record<HostName, string>;
}

/** Those that a test has left which cannot be running any more. */
export function leftNamespaces(names: readonly string[], nowMs: number): readonly string[] {
  return names.filter((name) => {
    const until = NAME.exec(name)?.groups?.until;
    return until !== undefined && Number.parseInt(until, 36) * 1_000 + GRACE_MS < nowMs;
  });
}

export interface NetworkOptions {
  readonly exec: Exec;
  readonly families: readonly IpFamily[];
  readonly ownProgram: string;
  /** When the test will be over, in milliseconds since the epoch. */
  readonly untilMs: number;
  /** Hexadecimal digits that no other test has. */
  readonly random: string;
  /** Ends the building. */
  readonly signal: AbortSignal;
}

/** The namespaces of one test, from the first to the last. */
export class TestNetwork {
  readonly #options: NetworkOptions;
  readonly #names: Readonly<Record<HostName, string>>;
  /** Perhaps made. */
  readonly #begun: string[] = [];

  constructor(options: NetworkOptions) {
    this.#options = options;
    this.#names = namespaceNames(options.untilMs, options.random);
  }

  /** Starts programs in the namespace of a host. */
  execOf(host: HostName): Exec {
    const { exec, ownProgram } = this.#options;
    return execInNamespace(exec, this.#names[host], ownProgram);
  }

  /**
   * Makes and wires all namespaces.
   *
   * @throws {UnsupportedError} if this process, or this machine, may not
   * @throws {ExecError} if something else fails
   */
  async build(): Promise<void> {
    const { exec, families, signal } = this.#options;
    const options: ExecOptions = { signal };
    for (const host of HOSTS) {
      this.#begun.push(this.#names[host]);
      await asRights(() => addNamespace(exec, this.#names[host], options));
      const settings = ["sysctl", "-w", ...settingsOf(host, families)];
      await runOk(this.execOf(host), settings, options);
    }
    await runIpLines(exec, this.#names.node, nodeLines(this.#names, families), options);
    for (const host of NEIGHBOURS) {
      await runIpLines(exec, this.#names[host], neighbourLines(host, families), options);
    }
  }

  /** Takes all of it away; yields what is still there, in sentences. */
  async remove(): Promise<readonly string[]> {
    const { exec } = this.#options;
    return await removeAll(exec, this.#begun.toReversed());
  }
}

/** Removes what earlier tests left that were killed; yields how many namespaces went. */
export async function removeLeft(exec: Exec, nowMs: number): Promise<number> {
  const left = leftNamespaces(await asRights(() => listNamespaces(exec)), nowMs);
  const failures = await removeAll(exec, left);
  return left.length - failures.length;
}

async function removeAll(exec: Exec, names: readonly string[]): Promise<readonly string[]> {
  const failures: string[] = [];
  for (const name of names) {
    try {
      await deleteNamespace(exec, name);
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      // One that could not be made cannot be removed, either.
      if (await isThere(exec, name)) failures.push(`namespace ${name} is left: ${error.message}`);
    }
  }
  return failures;
}

async function isThere(exec: Exec, name: string): Promise<boolean> {
  try {
    return (await listNamespaces(exec)).includes(name);
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    // A machine without the program has no namespaces by name, and otherwise it is not known.
    return !error.isMissing();
  }
}

/** One line where this process may not do this, instead of the words of the tool. */
async function asRights<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    const message = error.isMissing()
      ? `selftest needs the program ip (iproute2): ${error.message}`
      : isPermissionProblem(error.stderr)
      ? `selftest needs root, or CAP_NET_ADMIN and CAP_SYS_ADMIN, to make network namespaces: ${error.stderr.trim()}`
      : null;
    if (message === null) throw error;
    throw new UnsupportedError("selftest", "the right to make network namespaces", error.stderr, {
      message,
    });
  }
}
