/**
 * Requests by curl to servers of a node, from inside its namespace.
 *
 * @module
 */
import type { Netns } from "./netns.ts";

/** Answer; without one the status is 0. */
export interface Got {
  readonly status: number;
  readonly body: string;
}

/** @param options further options of curl */
export async function httpGet({ exec }: Netns, url: string, ...options: readonly string[]): Promise<Got> {
  const curl = ["curl", "-sg", "--max-time", "120", "--noproxy", "*", "-w", "\n%{http_code}"];
  const { stdout } = await exec.run([...curl, ...options, url]);
  const end = stdout.lastIndexOf("\n");
  return { status: Number(stdout.slice(end + 1)), body: stdout.slice(0, end) };
}

/** All metrics of the node's kproxy. */
export async function metricsOf(netns: Netns): Promise<string> {
  return (await httpGet(netns, "http://127.0.0.1:10249/metrics")).body;
}

/** Value of a series, named with its labels as written; undefined if it does not exist. */
export async function metricOf(netns: Netns, series: string): Promise<number | undefined> {
  const line = (await metricsOf(netns)).split("\n").find((one) => one.startsWith(`${series} `));
  return line === undefined ? undefined : Number(line.slice(series.length));
}
