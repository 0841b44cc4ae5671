/**
 * What was measured of forwarders, as text.
 *
 * @module
 */
import { alignColumns } from "../../lib/cli/terminal/columns.ts";
import type { ForwarderFigures, ForwardingResult, RequestFigures, StreamFigures } from "./forwarding.ts";

function streamCell({ mbPerSecond, cpuSecondsPerGb }: StreamFigures): string {
  const cpu = cpuSecondsPerGb === null ? "" : `, ${cpuSecondsPerGb.toFixed(2)} s/GB`;
  return `${mbPerSecond.toFixed(0)} MB/s${cpu}`;
}

function requestCell({ p50Us, p99Us, cpuUs }: RequestFigures): string {
  const cpu = cpuUs === null ? "" : `, CPU ${cpuUs.toFixed(0)} µs`;
  return `${p50Us.toFixed(0)} / ${p99Us.toFixed(0)} µs${cpu}`;
}

function row({ name, streams, newConnection, keptConnection }: ForwarderFigures): string[] {
  return [name, ...streams.map(streamCell), requestCell(newConnection), requestCell(keptConnection)];
}

/** How kproxy stands to HAProxy, if both were measured: below 1 is better in both. */
function ratios({ forwarders }: ForwardingResult): string[] {
  const kproxy = forwarders.find(({ name }) => name === "kproxy");
  const haproxy = forwarders.find(({ name }) => name === "HAProxy");
  if (kproxy === undefined || haproxy === undefined) return [];
  const streams = kproxy.streams.map(({ streams, mbPerSecond }) => {
    const other = haproxy.streams.find((of) => of.streams === streams)?.mbPerSecond ?? NaN;
    return `${streams} stream${streams === 1 ? "" : "s"} ${(other / mbPerSecond).toFixed(2)} × slower`;
  });
  const times = (["newConnection", "keptConnection"] as const).map((of) =>
    `${of === "newConnection" ? "new" : "kept"} connection ${
      (kproxy[of].p50Us / haproxy[of].p50Us).toFixed(2)
    } × the p50`
  );
  return [`kproxy beside HAProxy: ${[...streams, ...times].join(", ")}`];
}

/** The result as a table for people. */
export function forwardingTable(result: ForwardingResult): string[] {
  const { rounds, streamMs, load, missing, forwarders } = result;
  const streamHeads =
    forwarders[0]?.streams.map(({ streams }) => `${streams} stream${streams === 1 ? "" : "s"}`) ?? [];
  return [
    `mode userspace, ${rounds} rounds, streams of ${streamMs / 1000} s in writes of 64 KiB, load ${
      load.map((value) => value.toFixed(2)).join(" ")
    }`,
    ...alignColumns([
      ["", ...streamHeads, "new connection, p50 / p99", "kept connection, p50 / p99"],
      ...forwarders.map(row),
    ]),
    ...ratios(result),
    ...forwarders.flatMap(({ name, streams }) =>
      streams.map(({ streams, cores, clientCores, backendCores }) =>
        `processors, ${name}, ${streams}: ${cores === null ? "" : `${cores.toFixed(2)} forwarding, `}client ${
          clientCores.toFixed(2)
        }, backend ${backendCores.toFixed(2)}`
      )
    ),
    ...forwarders.flatMap(({ name, idle }) =>
      idle === null ? [] : [
        `${name}, ${idle.connections} idle connections: ${
          (["before", "holding", "after"] as const).map((when) =>
            `${when} ${idle[when].residentMb.toFixed(0)} MB (anonymous ${
              idle[when].anonymousMb.toFixed(0)
            } MB)`
          ).join(", ")
        }`,
      ]
    ),
    ...missing.map((program) => `${program} is not installed and was left out (deno task setup installs it)`),
  ];
}
