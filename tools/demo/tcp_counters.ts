/**
 * What the kernel counts of TCP in a network namespace.
 *
 * @module
 */

/**
 * Counters of one namespace by their names, e.g. `TCPSynRetrans`.
 *
 * @param text of its `/proc/net/netstat`: for each protocol a line of names, and one of values
 */
export function tcpCounters(text: string): ReadonlyMap<string, number> {
  const [names = [], values = []] = text.split("\n").filter((line) => line.startsWith("TcpExt:"))
    .map((line) => line.split(" ").slice(1));
  return new Map(names.map((name, at) => [name, Number(values[at])]));
}
