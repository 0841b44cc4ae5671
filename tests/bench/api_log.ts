/**
 * The requests that an API server has logged.
 *
 * @module
 */

/** One request that has ended. */
export interface LoggedRequest {
  /** `LIST`, `WATCH`, `POST`, … */
  readonly verb: string;
  /** With query. */
  readonly uri: string;
  readonly userAgent: string;
  /** Address of who asked, without port. */
  readonly from: string;
  readonly status: number;
  /** When it began, in milliseconds since the epoch; to a few milliseconds. */
  readonly startedMs: number;
}

const LINE = /^I(\d{2})(\d{2}) (\d{2}):(\d{2}):(\d{2})\.(\d{3})\d* .*"HTTP" (.*)$/;
const UNITS: Readonly<Record<string, number>> = {
  h: 3_600_000,
  m: 60_000,
  s: 1000,
  ms: 1,
  "µs": 0.001,
  ns: 1e-6,
};

/** Milliseconds of a duration as Go prints it, e.g. `1m2.5s`. */
export function goDurationMs(text: string): number {
  let ms = 0;
  for (const [, number, unit] of text.matchAll(/([\d.]+)(h|ms|µs|ns|m|s)/g)) {
    ms += Number(number) * UNITS[unit!]!;
  }
  return ms;
}

/**
 * The requests in a log of klog, level 3, in the order in which they ended. Its times have no year and are local ones: `nowMs` says
 * which year it is.
 */
export function loggedRequests(log: string, nowMs: number): readonly LoggedRequest[] {
  const year = new Date(nowMs).getFullYear();
  return log.split("\n").flatMap((line) => {
    const [, month, day, hour, minute, second, ms, rest = ""] = LINE.exec(line) ?? [];
    if (month === undefined) return [];
    const value = (key: string): string => new RegExp(`\\b${key}="([^"]*)"`).exec(rest)?.[1] ?? "";
    const endedMs = new Date(
      year,
      Number(month) - 1,
      Number(day),
      Number(hour),
      Number(minute),
      Number(second),
      Number(ms),
    ).getTime();
    return [{
      verb: value("verb"),
      uri: value("URI"),
      userAgent: value("userAgent"),
      from: value("srcIP").replace(/:\d+$/, ""),
      status: Number(/\bresp=(\d+)/.exec(rest)?.[1]),
      startedMs: endedMs - goDurationMs(value("latency")),
    }];
  });
}

/** How many requests of `from` began in a time, by verb and resource: `WATCH services`, … */
export function countRequests(
  requests: readonly LoggedRequest[],
  from: string,
  [beginMs, endMs]: readonly [number, number],
): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const { verb, uri, from: who, startedMs } of requests) {
    if (who !== from || startedMs < beginMs || startedMs >= endMs) continue;
    const path = uri.split("?", 1)[0]!.replace(/^\/apis?\/([^/]+\/)?v\w+\//, "");
    const [first = "", , inNamespace] = path.split("/");
    const key = `${verb} ${first === "namespaces" ? inNamespace ?? first : first}`;
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  return counts;
}
