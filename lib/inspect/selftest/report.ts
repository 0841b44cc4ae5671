/**
 * Results of a test, for people and for programs.
 *
 * @module
 */
import { joinHostPort } from "../../model/ip.ts";
import type { IpFamily } from "../../model/objects.ts";
import { API_VERSION } from "../../serve/status/status_document.ts";
import { alignColumns } from "../../text/columns.ts";
import { type Flow, type FlowOutcome, formatFlow } from "../../sim/flow.ts";
import { type AffinityMemory, rememberOutcome } from "../../sim/packet_walk.ts";
import {
  ADDRESSES,
  endpointIp,
  type EndpointName,
  endpointPort,
  packetOfProbe,
  type Probe,
  type SeenSource,
} from "./cases.ts";

/** Result of one connection. */
export type Attempt =
  | {
    readonly kind: "answer";
    /** Address and port that the server reports: `10.244.0.2:8080`. */
    readonly server: string;
    /** Source address as the server saw it, without the port. */
    readonly client: string;
  }
  | { readonly kind: "refused" }
  | { readonly kind: "silence" }
  | { readonly kind: "error"; readonly message: string };

/** Simulates the probe's next connection by the live rules. */
export type Predict = (affinity: AffinityMemory) => Flow;

/** One row of the result. */
export interface Check {
  readonly name: string;
  /** Null: both families. */
  readonly family: IpFamily | null;
  readonly ok: boolean;
  /** E.g. `pod-a → 10.96.0.11:80/tcp`; `""` where nothing was sent. */
  readonly way: string;
  readonly wanted: string;
  /** Simulated result of the first connection; null: the rules could not be read. */
  readonly rules: string | null;
  /** Measured result, e.g. `10.244.0.2:8080 (14), 10.244.0.3:8080 (13)`. */
  readonly real: string;
  /** Why it failed, in a sentence; `""` if it did not. */
  readonly reason: string;
}

const ENDPOINTS: readonly EndpointName[] = ["pod-a", "pod-b", "far-pod"];

/** Judges one probe. @param predict null: the rules could not be read */
export function judge(probe: Probe, attempts: readonly Attempt[], predict: Predict | null): Check {
  const { name, family, from, ip, port, protocol } = probe;
  const real = attemptsText(attempts);
  const rules = predict === null ? null : formatFlow(predict(new Map()));
  const reasons = [
    wrongByProbe(probe, attempts, real),
    predict === null ? null : wrongByRules(probe, attempts, predict, rules ?? "", real),
  ].filter((reason) => reason !== null);
  const way = `${from} → ${joinHostPort(ip, port)}/${protocol}`;
  const wanted = wantedText(probe);
  return { name, family, ok: reasons.length === 0, way, wanted, rules, real, reason: reasons.join("; ") };
}

/** A failure that is not about packets. */
export function failedCheck(name: string, reason: string, family: IpFamily | null = null): Check {
  return { name, family, ok: false, way: "", wanted: "", rules: null, real: "", reason };
}

/** The probe's expected result, in words. */
function wantedText(probe: Probe): string {
  const { wanted } = probe;
  switch (wanted.kind) {
    case "refused":
      return "a refusal";
    case "silence":
      return "no answer";
    default: {
      const servers = Object.entries(wanted.by).map(([name, source]) =>
        `${serverOf(probe, name as EndpointName)} (${
          source === "own" ? "source kept" : "source of the node"
        })`
      );
      if (servers.length === 1) return `answers by ${servers.join("")}`;
      return `answers by ${wanted.kind === "one answers" ? "one of" : "each of"} ${servers.join(", ")}`;
    }
  }
}

function serverOf({ family, service }: Probe, name: EndpointName): string {
  return joinHostPort(endpointIp(family, name), endpointPort(service));
}

function attemptsText(attempts: readonly Attempt[]): string {
  const counts = new Map<string, number>();
  for (const attempt of attempts) {
    const text = attemptText(attempt);
    counts.set(text, (counts.get(text) ?? 0) + 1);
  }
  if (counts.size === 0) return "nothing was sent";
  return [...counts].map(([text, count]) => counts.size === 1 && count === 1 ? text : `${text} (${count})`)
    .toSorted().join(", ");
}

function attemptText(attempt: Attempt): string {
  switch (attempt.kind) {
    case "answer":
      return `${attempt.server} from ${attempt.client}`;
    case "error":
      return attempt.message;
    case "refused":
      return "refused";
    case "silence":
      return "no answer";
  }
}

/** Difference from the expectation; null: none. */
function wrongByProbe(probe: Probe, attempts: readonly Attempt[], real: string): string | null {
  const { wanted } = probe;
  const problem = `wanted ${wantedText(probe)}, got ${real}`;
  if (attempts.length === 0) return problem;
  if (wanted.kind === "refused" || wanted.kind === "silence") {
    return attempts.every(({ kind }) => kind === wanted.kind) ? null : problem;
  }
  const seen = new Set<string>();
  for (const attempt of attempts) {
    const name = attempt.kind === "answer" ? endpointOf(probe, attempt.server) : null;
    const source = name === null ? undefined : wanted.by[name];
    if (attempt.kind !== "answer" || source === undefined) return problem;
    if (!isSource(probe, attempt.client, source)) return problem;
    seen.add(attempt.server);
  }
  // A probe that was cut short has failed by its last attempt already.
  const servers = wanted.kind === "one answers" ? 1 : Object.keys(wanted.by).length;
  return seen.size === servers ? null : problem;
}

function endpointOf(probe: Probe, server: string): EndpointName | null {
  return ENDPOINTS.find((name) => serverOf(probe, name) === server) ?? null;
}

function isSource(probe: Probe, client: string, source: SeenSource): boolean {
  const { hosts, gateways } = ADDRESSES[probe.family];
  if (source === "own") return client === hosts[probe.from];
  return Object.values(gateways).includes(client);
}

/** Difference from the live rules; null: none. */
function wrongByRules(
  probe: Probe,
  attempts: readonly Attempt[],
  predict: Predict,
  rules: string,
  real: string,
): string | null {
  const packet = packetOfProbe(probe);
  let affinity: AffinityMemory = new Map();
  let problems: readonly string[] = [];
  for (const [index, attempt] of attempts.entries()) {
    const flow = predict(affinity);
    problems = flow.problems;
    const outcome = flow.outcomes.find((one) => isOutcome(probe, attempt, one));
    if (outcome === undefined) {
      const now = formatFlow(flow);
      const later = now === rules ? "" : ` (of connection ${index + 1}: ${now})`;
      return `the rules say ${rules}${later}, what happened is ${real}${notes(problems)}`;
    }
    affinity = rememberOutcome(affinity, packet, outcome, 0);
  }
  return null;
}

function notes(problems: readonly string[]): string {
  return problems.length === 0 ? "" : ` (not all of them can be read: ${problems.join("; ")})`;
}

/** True if the attempt is this simulated outcome. */
function isOutcome(probe: Probe, attempt: Attempt, outcome: FlowOutcome): boolean {
  switch (outcome.verdict) {
    case "drop":
      return attempt.kind === "silence";
    case "reject":
      return attempt.kind === "refused";
    case "accept":
      if (attempt.kind !== "answer" || outcome.translatedTo !== attempt.server) return false;
      // Packets of the node have one of its addresses, masqueraded or not.
      return isSource(probe, attempt.client, outcome.masquerade || probe.from === "node" ? "node" : "own");
  }
}

/** Result of a whole test. */
export interface SelftestReport {
  /** The requested mode. */
  readonly wantedMode: string;
  /** Mode that ran; null: none could. */
  readonly mode: string | null;
  readonly families: readonly IpFamily[];
  readonly checks: readonly Check[];
  /** Notes: what the test could not do, and other remarks, in sentences. */
  readonly notes: readonly string[];
  readonly tookMs: number;
}

/** True if the node can run the mode: something was tested, and everything passed. */
export function isPassed({ mode, checks }: SelftestReport): boolean {
  return mode !== null && checks.length > 0 && checks.every(({ ok }) => ok);
}

export function reportLines(report: SelftestReport): readonly string[] {
  const { checks, notes, mode, wantedMode, families, tookMs } = report;
  const failed = checks.filter(({ ok }) => !ok);
  const name = mode ?? wantedMode;
  const seconds = (tookMs / 1_000).toFixed(1);
  const rows = checks.map((check) => [
    check.ok ? "ok" : "failed",
    check.family ?? "",
    check.name,
    check.ok
      ? `${check.way}: ${check.real}`
      : check.way === ""
      ? check.reason
      : `${check.way}: ${check.reason}`,
  ]);
  return [
    `Mode ${name}, ${families.join(" and ")}`,
    "",
    ...alignColumns(rows),
    "",
    ...notes.map((note) => `Note: ${note}`),
    isPassed(report)
      ? `All ${checks.length} checks passed in ${seconds} s: this node can run mode ${name}.`
      : `${failed.length} of ${checks.length} checks failed in ${seconds} s: mode ${name} does not work here as it should.`,
  ];
}

/** Document of `-o json`. */
export function reportDocument(report: SelftestReport): unknown {
  const { wantedMode, mode, families, checks, notes, tookMs } = report;
  return {
    apiVersion: API_VERSION,
    kind: "Selftest",
    passed: isPassed(report),
    wantedMode,
    mode,
    families,
    tookMs: Math.round(tookMs),
    checks: checks.map(({ ok, ...check }) => ({ result: ok ? "ok" : "failed", ...check })),
    notes,
  };
}
