/**
 * The status of a running kproxy as text for people.
 *
 * @module
 */
import type { FamilyStatus, StatusDocument, SyncStatus } from "../../serve/status/status_document.ts";
import { sumOf } from "../../text/record.ts";
import { counted } from "../../text/words.ts";
import { alignColumns } from "../../text/columns.ts";
import { escaped } from "../../text/quote.ts";

const SHOWN_PROBLEMS = 5;
const SHOWN_QUARANTINED = 10;
const SHOWN_REFUSED = 10;
const MIB = 1024 * 1024;

/** Lines without line ends; empty sections are left out. */
export function statusLines(status: StatusDocument): string[] {
  const nowMs = Date.parse(status.time);
  const sections = [
    headLines(status),
    reasonLines(status),
    familyLines(status, nowMs),
    syncLines(status),
    watchLines(status),
    refusedLines(status),
    quarantineLines(status, nowMs),
    unservedLines(status),
    otherLines(status, nowMs),
    problemLines(status, nowMs),
  ];
  const filled = sections.filter((lines) => lines.length > 0);
  return filled.flatMap((lines, index) => index === 0 ? lines : ["", ...lines]).map(escaped);
}

/** True if kproxy is ready, and no sync has been waiting for too long. */
export function isWell({ readiness, healthy }: StatusDocument): boolean {
  return readiness.ready && healthy;
}

function headLines({ program, node, mode, source, readiness, healthy, listening }: StatusDocument): string[] {
  const { resident, heapUsed } = program.memory;
  const health = healthy ? "" : ", a sync has been waiting for too long";
  const eligible = node.eligible ? "" : "; load balancers are told to send nothing new";
  const servers = [
    ...listening.metrics.map((address) => `metrics ${address}`),
    ...listening.healthz.map((address) => `health ${address}`),
  ];
  return [
    `kproxy ${program.version} on node ${node.name}: ${
      readiness.ready ? "ready" : "NOT READY"
    }${health}${eligible}`,
    ...alignColumns([
      ["", "Mode", modeText(mode)],
      [
        "",
        "Objects",
        source.name +
        (source.refused.count === 0 ? "" : `; ${counted(source.refused.count, "object")} refused`),
      ],
      ["", "Process", `${program.pid}, up ${durationText(program.uptimeSeconds)}`],
      ["", "Memory", `${Math.round(resident / MIB)} MiB resident, heap ${Math.round(heapUsed / MIB)} MiB`],
      ...(servers.length === 0 ? [] : [["", "Listening", servers.join(", ")]]),
    ]),
  ];
}

function modeText({ used, configured, fallback }: StatusDocument["mode"]): string {
  if (fallback !== null) return `${used}, in place of ${configured}: ${fallback}`;
  return used;
}

function reasonLines({ readiness }: StatusDocument): string[] {
  const unserved = Object.entries(readiness.unserved ?? {}).map(([family, { reason, use }]) =>
    `  ${family} is not served: ${reason}${use === undefined ? "" : `; ${use}`}`
  );
  const reasons = readiness.reasons.map((reason) => `  ${reason}`);
  return [...(reasons.length === 0 ? [] : ["Not ready:", ...reasons]), ...unserved];
}

function familyLines({ families }: StatusDocument, nowMs: number): string[] {
  const rows = Object.entries(families).map(([family, of]) => [
    family,
    String(of.services),
    String(of.endpoints),
    String(sumOf(of.rules)),
    of.lastSync === null ? "none yet" : `${of.lastSync.kind}, ${agoText(of.lastSync.time, nowMs)}`,
    of.lastSync === null ? "" : millisText(of.lastSync.durationMs),
    `${of.syncs.full}/${of.syncs.partial}/${of.syncs.failed}`,
    latencyText(of),
  ]);
  const heads = ["FAMILY", "SERVICES", "ENDPOINTS", "RULES", "LAST SYNC", "TOOK", "FULL/PARTIAL/FAILED"];
  return alignColumns([[...heads, "LATENCY P50/P99"], ...rows]);
}

function latencyText({ latency: { p50Ms, p99Ms } }: FamilyStatus): string {
  return p50Ms === null || p99Ms === null ? "-" : `${millisText(p50Ms)}/${millisText(p99Ms)}`;
}

function syncLines({ families }: StatusDocument): string[] {
  return Object.entries(families).flatMap(([family, { lastSync, lastFailure }]) => [
    ...(lastSync === null ? [] : [`${family} last sync: ${syncText(lastSync)}`]),
    ...(lastFailure === null
      ? []
      : [`${family} last failure: ${timeText(lastFailure.time)}: ${lastFailure.error}`]),
  ]);
}

function syncText({ kind, changed, services, phasesMs, commands }: SyncStatus): string {
  const more = changed - services.length;
  const names = services.join(", ") + (more > 0 && services.length > 0 ? ` and ${more} more` : "");
  const what = kind === "full" ? `all ${changed} Services` : names === "" ? "nothing changed" : names;
  const phases = Object.entries(phasesMs).map(([phase, ms]) => `${phase} ${millisText(ms)}`);
  return [what, ...phases, counted(commands, "command")].join("; ");
}

function watchLines({ readiness: { watches, snapshot } }: StatusDocument): string[] {
  const rows = Object.entries(watches).map(([kind, { ageSeconds, problem }]) => [
    kind,
    ageSeconds === undefined ? "never" : `${durationText(ageSeconds)} ago`,
    problem ?? "",
  ]);
  const served = snapshot === undefined ? [] : [
    `Snapshot of ${snapshot.time} ${snapshot.served ? "stands in for" : "is too old for"} ${
      snapshot.kinds.join(", ")
    }`,
  ];
  return [...(rows.length === 0 ? [] : alignColumns([["WATCH", "HEARD", ""], ...rows])), ...served];
}

/** A title and the first of `count` lines below it; nothing where there are none. */
function listLines(title: string, lines: readonly string[], count: number): string[] {
  if (count === 0) return [];
  const more = count - lines.length;
  return [title, ...lines, ...(more > 0 ? [`  and ${more} more`] : [])];
}

function refusedLines({ source: { refused: { count, objects } } }: StatusDocument): string[] {
  const lines = objects.slice(0, SHOWN_REFUSED).map(({ where, object, message }) =>
    `  ${object}: ${message} (${where})`
  );
  return listLines(`Objects that are refused, as they are now: ${count}`, lines, count);
}

function quarantineLines({ quarantine: { count, services } }: StatusDocument, nowMs: number): string[] {
  const rows = services.slice(0, SHOWN_QUARANTINED).map((
    { family, service, problem, since },
  ) => ["", family, service, agoText(since, nowMs), problem]);
  const title = `In quarantine, refused by the kernel in part: ${counted(count, "Service")}`;
  return listLines(title, alignColumns(rows), count);
}

function unservedLines({ unserved = { count: 0, destinations: [] } }: StatusDocument): string[] {
  const { count, destinations } = unserved;
  const lines = destinations.slice(0, SHOWN_REFUSED).map(({ service, destination, reason }) =>
    `  ${service}: ${destination}: ${reason}`
  );
  return listLines(
    `Not served, although Services ask for it: ${counted(count, "destination")}`,
    lines,
    count,
  );
}

function otherLines(status: StatusDocument, nowMs: number): string[] {
  const { drift, otherProxyTables, refusedSettings, configReload } = status;
  const lines: string[] = [];
  const last = drift.recent.at(-1);
  if (last !== undefined) {
    lines.push(
      `Rules changed by others: found ${drift.found}, written again with success ${drift.repaired}; ` +
        `last ${agoText(last.time, nowMs)}, ${last.family}, ${last.outcome}: ${last.damaged.join(", ")}`,
    );
  }
  if (otherProxyTables.length > 0) {
    lines.push(`Another service proxy makes tables: ${otherProxyTables.join(", ")}`);
  }
  for (const { name, reason } of refusedSettings) {
    lines.push(`Kernel setting not as wanted: ${name}: ${reason}`);
  }
  if (configReload !== null && !configReload.inForce) {
    lines.push(
      `The configuration file as it is now was refused; in force is that of ${
        timeText(configReload.lastSuccess)
      }`,
    );
  }
  return lines;
}

function problemLines({ problems: { total, recent } }: StatusDocument, nowMs: number): string[] {
  if (recent.length === 0) return [];
  const rows = recent.slice(-SHOWN_PROBLEMS).map(({ last, severity, message, values, count }) => [
    "",
    agoText(last, nowMs),
    severity,
    `${message}${count > 1 ? ` (${count} times)` : ""}${values === "" ? "" : ` ${values}`}`,
  ]);
  return [`Warnings and errors since the start: ${total}`, ...alignColumns(rows)];
}

function agoText(time: string, nowMs: number): string {
  return `${durationText(Math.max(0, nowMs - Date.parse(time)) / 1000)} ago`;
}

/** To the second, in UTC. */
function timeText(time: string): string {
  return time.replace(/\.\d+Z$/, "Z");
}

/** The two largest units: `3d 4h`, `12m 5s`, `4s`. */
export function durationText(seconds: number): string {
  const whole = Math.floor(seconds);
  const parts: readonly [number, string][] = [
    [Math.floor(whole / 86_400), "d"],
    [Math.floor(whole / 3_600) % 24, "h"],
    [Math.floor(whole / 60) % 60, "m"],
    [whole % 60, "s"],
  ];
  const first = parts.findIndex(([count]) => count > 0);
  if (first < 0) return "0s";
  return parts.slice(first, first + 2).filter(([count]) => count > 0).map((part) => part.join("")).join(" ");
}

/** `0.4 ms`, `12 ms`, `1.3 s`. */
export function millisText(ms: number): string {
  if (ms >= 999.5) return `${(ms / 1_000).toFixed(1)} s`;
  return ms >= 9.95 ? `${Math.round(ms)} ms` : `${ms.toFixed(1)} ms`;
}
