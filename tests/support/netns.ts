/**
 * Network namespaces for tests: everything that touches rules or packets happens in one, never in the machine's own.
 *
 * @module
 */
import { dirname } from "node:path";
import { type Exec, type ExecOptions, runOk, systemExec } from "../../lib/kernel/exec.ts";
import { killPrograms } from "../../tools/end_programs.ts";
import { pathExists } from "./path_exists.ts";
import { LabGuard } from "./lab_guard.ts";

/** A network namespace of this test. */
export interface Netns {
  /** Name in `ip netns`; begins with `kp`. */
  readonly name: string;
  /** Runs programs inside. */
  readonly exec: Exec;
  /** Runs a program inside and returns its standard output; rejects on a status other than 0. */
  run(argv: readonly string[], options?: ExecOptions): Promise<string>;
}

/** One end of a link between two namespaces. */
export interface LinkEnd {
  readonly netns: Netns;
  /** Interface name inside, at most 15 characters. */
  readonly name: string;
  /** With prefix length, e.g. `10.0.0.1/24`. */
  readonly addresses: readonly string[];
}

/** Part of the names: parallel tests are workers of one process, each with a counter of its own. */
const WORKER = crypto.randomUUID().slice(0, 6);
let counter = 0;

/** Runs `work` in a new namespace with loopback up, and removes it in any case. */
export function withNetns<T>(work: (netns: Netns) => Promise<T>): Promise<T> {
  return withNamespaces(1, ([netns]) => {
    if (netns === undefined) throw new TypeError("No namespace was made");
    return work(netns);
  });
}

/** Runs `work` with `count` new namespaces, and removes them and their processes in any case. */
export async function withNamespaces<T>(
  count: number,
  work: (namespaces: readonly Netns[]) => Promise<T>,
): Promise<T> {
  const namespaces: Netns[] = [];
  await using _guard = new LabGuard();
  try {
    for (let i = 0; i < count; i++) namespaces.push(await createNetns());
    return await work(namespaces);
  } finally {
    for (const netns of namespaces.toReversed()) await removeNetns(netns);
  }
}

/** Connects two namespaces by a veth pair; both ends are up when it resolves. */
export async function link(a: LinkEnd, b: LinkEnd): Promise<void> {
  const argv = ["ip", "link", "add", a.name, "netns", a.netns.name, "type", "veth"];
  await runOk(systemExec, [...argv, "peer", "name", b.name, "netns", b.netns.name]);
  for (const end of [a, b]) {
    for (const address of end.addresses) {
      // Without nodad an IPv6 address cannot be used for its first second.
      const nodad = address.includes(":") ? ["nodad"] : [];
      await end.netns.run(["ip", "addr", "add", address, "dev", end.name, ...nodad]);
    }
    await end.netns.run(["ip", "link", "set", end.name, "up"]);
  }
}

/** Creates a namespace. Prefer {@linkcode withNetns}, which also removes it. */
export async function createNetns(): Promise<Netns> {
  const name = nextName();
  await runOk(systemExec, ["ip", "netns", "add", name]);
  const exec: Exec = {
    run: (argv, options) => systemExec.run(["ip", "netns", "exec", name, ...argv], options),
  };
  const netns: Netns = { name, exec, run: (argv, options) => runOk(exec, argv, options) };
  await netns.run(["ip", "link", "set", "lo", "up"]);
  return netns;
}

/** Kills the processes in a namespace and removes it. */
export async function removeNetns(netns: Netns): Promise<void> {
  killPrograms(await runOk(systemExec, ["ip", "netns", "pids", netns.name]));
  await runOk(systemExec, ["ip", "netns", "del", netns.name]);
  const folder = dirname(socketIn(netns.name));
  if (await pathExists(folder)) await Deno.remove(folder, { recursive: true });
}

/** Path of kproxy's socket for a namespace: namespaces share the machine's files. kproxy creates the folder. */
export function socketIn(netns: string): string {
  return `/tmp/kproxy-${netns}/kproxy.sock`;
}

/** Commands that query a running kproxy. */
const ASKING = ["check", "diff", "trace", "explain", "service", "doctor", "status", "sysdump", "cleanup"];

/** Arguments of a command, extended so that it queries the namespace's kproxy and no other. */
export function askingIn(netns: string, [command = "", ...args]: readonly string[]): readonly string[] {
  return ASKING.includes(command) ? [command, `--socket=${socketIn(netns)}`, ...args] : [command, ...args];
}

function nextName(): string {
  return `kp${Deno.pid}-${WORKER}-${counter++}`;
}
