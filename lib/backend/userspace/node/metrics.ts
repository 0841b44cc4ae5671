/**
 * Metrics of the traffic that userspace mode forwards.
 *
 * @module
 */
import { Counter, Gauge, type Registry } from "../../../observe/prom_client.ts";
import { type AllRelayCounts, MOST_SESSIONS, type RelayCounts } from "../forward/relay.ts";
import type { PortalProtocol } from "../plan/plan.ts";

/** One metric, with a value for each protocol. */
interface RelayMetric {
  readonly name: string;
  readonly help: string;
  /** Label beside `protocol`. */
  readonly label?: string;
  /** Values by the value of `label`, or the one value. */
  readonly values: (
    counts: RelayCounts,
    protocol: PortalProtocol,
  ) => number | Readonly<Record<string, number>>;
}

const GAUGES: readonly RelayMetric[] = [
  {
    name: "kproxy_userspace_sessions",
    help: "Connections of TCP, and clients of UDP, that mode userspace forwards now",
    values: ({ open }) => open,
  },
  {
    name: "kproxy_userspace_session_limit",
    help: "How many sessions mode userspace takes at most at a time, if there are descriptors for them",
    values: (_, protocol) => MOST_SESSIONS[protocol],
  },
];

const COUNTERS: readonly RelayMetric[] = [
  {
    name: "kproxy_userspace_sessions_total",
    help: "Connections of TCP, and clients of UDP, that mode userspace has taken",
    values: ({ opened }) => opened,
  },
  {
    name: "kproxy_userspace_refused_total",
    help: "Clients that mode userspace did not serve, by what was lacking",
    label: "reason",
    values: ({ refused }) => refused,
  },
  {
    name: "kproxy_userspace_evicted_total",
    help: "Sessions that mode userspace ended for another client's, when there was no room for it",
    values: ({ evicted }) => evicted,
  },
  {
    name: "kproxy_userspace_dial_failures_total",
    help: "Tries to reach an endpoint that failed in mode userspace",
    values: ({ dialFailures }) => dialFailures,
  },
  {
    name: "kproxy_userspace_bytes_total",
    help: "Bytes that mode userspace has forwarded from clients (in) and to them (out)",
    label: "direction",
    values: ({ bytes }) => bytes,
  },
];

/** Adds the metrics; `counts` is asked at every scrape. */
export function addRelayMetrics(registry: Registry, counts: () => AllRelayCounts): void {
  for (const metric of [...GAUGES, ...COUNTERS]) {
    const { name, help, label, values } = metric;
    const Metric = GAUGES.includes(metric) ? Gauge : Counter;
    new Metric({
      name,
      help: `[ALPHA] ${help}`,
      labelNames: ["protocol", ...label === undefined ? [] : [label]],
      registers: [registry],
      collect(): void {
        this.reset();
        for (const protocol of ["TCP", "UDP"] as const) {
          const found = values(counts()[protocol], protocol);
          if (typeof found === "number") this.inc({ protocol }, found);
          else {
            for (const [value, count] of Object.entries(found)) {
              this.inc({ protocol, [label ?? ""]: value.replaceAll(" ", "_") }, count);
            }
          }
        }
      },
    });
  }
}
