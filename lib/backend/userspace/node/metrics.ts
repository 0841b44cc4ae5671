/**
 * What userspace mode forwards, as metrics.
 *
 * @module
 */
import { Counter, Gauge, type Registry } from "../../../observe/prom_client.ts";
import { type AllRelayCounts, MOST_SESSIONS } from "../forward/relay.ts";
import type { PortalProtocol } from "../plan/ruleset.ts";

const PROTOCOLS: readonly PortalProtocol[] = ["TCP", "UDP"];

/** Adds the metrics; `counts` is asked at every scrape. */
export function addRelayMetrics(registry: Registry, counts: () => AllRelayCounts): void {
  new Gauge({
    name: "kproxy_userspace_sessions",
    help: "[ALPHA] Connections of TCP, and clients of UDP, that mode userspace forwards now",
    labelNames: ["protocol"],
    registers: [registry],
    collect(): void {
      for (const protocol of PROTOCOLS) this.set({ protocol }, counts()[protocol].open);
    },
  });
  new Gauge({
    name: "kproxy_userspace_session_limit",
    help:
      "[ALPHA] How many sessions mode userspace takes at most at a time, if there are descriptors for them",
    labelNames: ["protocol"],
    registers: [registry],
    collect(): void {
      for (const protocol of PROTOCOLS) this.set({ protocol }, MOST_SESSIONS[protocol]);
    },
  });
  addCounter(registry, {
    name: "kproxy_userspace_sessions_total",
    help: "Connections of TCP, and clients of UDP, that mode userspace has taken",
  }, (inc) => PROTOCOLS.forEach((protocol) => inc({ protocol }, counts()[protocol].opened)));
  addCounter(registry, {
    name: "kproxy_userspace_refused_total",
    help: "Clients that mode userspace did not serve, by what was lacking",
    labels: ["reason"],
  }, (inc) => {
    for (const protocol of PROTOCOLS) {
      for (const [reason, count] of Object.entries(counts()[protocol].refused)) {
        inc({ protocol, reason: reason.replaceAll(" ", "_") }, count);
      }
    }
  });
  addCounter(registry, {
    name: "kproxy_userspace_evicted_total",
    help: "Sessions that mode userspace ended for another client's, when there was no room for it",
  }, (inc) => PROTOCOLS.forEach((protocol) => inc({ protocol }, counts()[protocol].evicted)));
  addCounter(registry, {
    name: "kproxy_userspace_dial_failures_total",
    help: "Tries to reach an endpoint that failed in mode userspace",
  }, (inc) => PROTOCOLS.forEach((protocol) => inc({ protocol }, counts()[protocol].dialFailures)));
  addCounter(registry, {
    name: "kproxy_userspace_bytes_total",
    help: "Bytes that mode userspace has forwarded from clients (in) and to them (out)",
    labels: ["direction"],
  }, (inc) => {
    for (const protocol of PROTOCOLS) {
      for (const direction of ["in", "out"] as const) {
        inc({ protocol, direction }, counts()[protocol].bytes[direction]);
      }
    }
  });
}

interface CounterSpec {
  readonly name: string;
  readonly help: string;
  /** Beside `protocol`. */
  readonly labels?: readonly string[];
}

/** A counter whose values are others' to count. */
function addCounter(
  registry: Registry,
  { name, help, labels = [] }: CounterSpec,
  collect: (inc: (labels: Record<string, string>, count: number) => void) => void,
): void {
  new Counter({
    name,
    help: `[ALPHA] ${help}`,
    labelNames: ["protocol", ...labels],
    registers: [registry],
    collect(): void {
      this.reset();
      collect((labels, count) => this.inc(labels, count));
    },
  });
}
