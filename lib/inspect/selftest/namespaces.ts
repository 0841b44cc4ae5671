/**
 * Names of the namespaces of a test. Each has the time in it by which it is gone, so that what a killed test has left can be told from what
 * another one uses.
 *
 * @module
 */
import { type HostName, HOSTS } from "./topology.ts";

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
