/**
 * `kproxy selftest`: real packets, sent through temporary namespaces, show whether this node can run a mode.
 *
 * @module
 */
import type { ProxyMode } from "../../config/types.ts";
import { ExecError } from "../../errors.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Exec } from "../../kernel/exec.ts";
import type { IpFamily } from "../../model/objects.ts";
import { RulesetSimulator } from "../../sim/ruleset_simulator.ts";
import { liveOfKernel } from "../live/kernel_rules.ts";
import type { LiveNode } from "../live/live.ts";
import {
  type ApplyAnswer,
  type AskAnswer,
  type ChildRights,
  type Job,
  type OwnProgram,
  READY_LINE,
} from "./agent.ts";
import {
  type EndpointName,
  endpointServers,
  type HostName,
  nodeAddresses,
  packetOfProbe,
  type Probe,
  probesOf,
  selftestObjects,
} from "./cases.ts";
import { removeLeft, TestNetwork } from "./network.ts";
import { type Attempt, failedCheck, judge, type Predict, type SelftestReport } from "./report.ts";

export interface SelftestOptions {
  readonly mode: ProxyMode;
  /** Families of the node. */
  readonly families: readonly IpFamily[];
  readonly exec: Exec;
  readonly clock: Pick<Clock, "nowMs">;
  /** Wall clock, in milliseconds since the epoch. */
  readonly nowMs: () => number;
  /** Hexadecimal digits that are unique to the test. */
  readonly random: string;
  readonly program: OwnProgram;
  /** Limit of the whole test, in milliseconds. */
  readonly limitMs: number;
  /** Ends the test; all namespaces are removed first. */
  readonly signal: AbortSignal;
  /** Receives each step before it begins. */
  readonly say: (text: string) => void;
}

/** Command of a child in messages, without the runtime's arguments. */
const SHOWN_CHILD = ["kproxy", "selftest", "agent"];
const SERVER_LIMIT_MS = 20_000;
/** A SYN is sent again after one second, three and seven; a loaded machine may stand still for some more. */
const ANSWER_LIMIT_MS = 10_000;
/** Time without an answer that counts as dropped: the packet is repeated after a second. */
const SILENCE_LIMIT_MS = 1_500;

/** A test that was ended early; its namespaces are removed, except those in `left`. */
export class SelftestError extends Error {
  override readonly name = "SelftestError";

  constructor(message: string, readonly left: readonly string[], options?: ErrorOptions) {
    super(message, options);
  }
}

/**
 * Tests a mode.
 *
 * @throws {UnsupportedError} if this process may not make namespaces
 * @throws {SelftestError} if it was ended, or the test itself failed
 */
export async function selftest(options: SelftestOptions): Promise<SelftestReport> {
  const { exec, nowMs, limitMs, signal, say, clock } = options;
  const startMs = clock.nowMs();
  const notes: string[] = [];
  const limit = AbortSignal.timeout(limitMs);
  const until = AbortSignal.any([signal, limit]);
  const network = new TestNetwork(options, until);
  let outcome: TestResult | Error;
  try {
    say("Making namespaces");
    const removed = await removeLeft(exec, nowMs());
    if (removed > 0) notes.push(`removed ${removed} namespaces that a killed selftest had left`);
    await network.build();
    outcome = await test(options, network, until);
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    outcome = error;
  }
  say("Taking everything away");
  const left = await network.remove();
  if (!(outcome instanceof Error)) {
    const stays = left.map((problem) => failedCheck("taking everything away", problem));
    return {
      ...outcome,
      checks: [...outcome.checks, ...stays],
      notes: [...notes, ...outcome.notes],
      tookMs: clock.nowMs() - startMs,
    };
  }
  const cause = outcome;
  if (signal.aborted) throw new SelftestError("selftest was ended before it was done", left, { cause });
  if (limit.aborted) {
    throw new SelftestError(`selftest was not done within ${limitMs / 1_000} s`, left, { cause });
  }
  throw left.length > 0 || cause instanceof ExecError
    ? new SelftestError(cause.message, left, { cause })
    : cause;
}

type TestResult = Omit<SelftestReport, "tookMs">;

/** Sends the probes, once the network is built. */
async function test(
  { families, mode, say, limitMs }: SelftestOptions,
  network: TestNetwork,
  signal: AbortSignal,
): Promise<TestResult> {
  say("Starting servers and writing rules");
  const serve = (host: HostName, endpoint: EndpointName): Promise<void> =>
    startServers(network, host, {
      job: "serve",
      servers: families.flatMap((family) => endpointServers(family, [endpoint])),
      lifeMs: limitMs + SERVER_LIMIT_MS,
    });
  const objects = selftestObjects(families);
  const [applied] = await Promise.all([
    answerOf<ApplyAnswer>(network, "node", "node", { job: "apply", mode, families, objects }),
    serve("pod-a", "pod-a"),
    serve("pod-b", "pod-b"),
    serve("client", "far-pod"),
  ]);
  const failed = applied.failures.map(({ family, message }) =>
    failedCheck(`rules of mode ${applied.mode ?? mode}`, message, family)
  );
  const base = { wantedMode: mode, mode: applied.mode, families: applied.served };
  const notes = applied.refused.map(({ family, reason }) => `${family} cannot be served here: ${reason}`);
  if (applied.mode === null || applied.served.length === 0) {
    return { ...base, families, checks: failed, notes };
  }
  say("Sending packets");
  const probes = probesOf(applied.served);
  const live = await liveOfKernel(network.execOf("node"), { signal });
  const attempts = await attemptsOf(network, probes);
  const checks = probes.map((probe) =>
    judge(probe, attempts.get(probe.name + probe.family) ?? [], predictor(live, probe))
  );
  const unread = applied.served.flatMap((family) => live.get(family)?.problems ?? [])
    .map(({ place, message }) => `${place}: ${message}`);
  return { ...base, checks: [...failed, ...checks], notes: [...notes, ...new Set(unread)] };
}

/** Resolves once the servers listen. */
async function startServers(
  network: TestNetwork,
  host: HostName,
  job: Job & { readonly job: "serve" },
): Promise<void> {
  const ready = Promise.withResolvers<void>();
  const decoder = new TextDecoder();
  let said = "";
  const running = network.start(host, "network", job, {
    timeoutMs: job.lifeMs,
    onStdout: (bytes) => {
      if (said.includes(READY_LINE)) return;
      said += decoder.decode(bytes, { stream: true });
      if (said.includes(READY_LINE)) ready.resolve();
    },
  });
  // Once it has listened, its end does not matter.
  running.then(
    ({ code, stderr }) => ready.reject(new ExecError(SHOWN_CHILD, code, stderr)),
    (error) => ready.reject(error),
  );
  await ready.promise;
}

/** Sends all probes; senders run in parallel. */
async function attemptsOf(
  network: TestNetwork,
  probes: readonly Probe[],
): Promise<ReadonlyMap<string, readonly Attempt[]>> {
  const bySender = Map.groupBy(probes, ({ from }) => from);
  const answers = await Promise.all([...bySender].map(async ([host, own]) => {
    const questions = own.map(({ name, family, protocol, ip, port, count, wanted }) => ({
      id: name + family,
      protocol,
      ip,
      port,
      count,
      limitMs: wanted.kind === "silence" ? SILENCE_LIMIT_MS : ANSWER_LIMIT_MS,
    }));
    const { attempts } = await answerOf<AskAnswer>(network, host, "network", { job: "ask", questions });
    return Object.entries(attempts);
  }));
  return new Map(answers.flat());
}

/** The answer of a child. @throws {ExecError} if it fails, or its answer cannot be read */
async function answerOf<Answer>(
  network: TestNetwork,
  host: HostName,
  rights: ChildRights,
  job: Job,
): Promise<Answer> {
  const { code, stdout, stderr } = await network.start(host, rights, job);
  if (code !== 0) throw new ExecError(SHOWN_CHILD, code, stderr);
  try {
    return JSON.parse(stdout) as Answer;
  } catch (cause) {
    if (!(cause instanceof SyntaxError)) throw cause;
    throw new ExecError(SHOWN_CHILD, code, `it printed ${JSON.stringify(stdout.slice(0, 200))}`, { cause });
  }
}

/** Simulator of a probe by the live rules; null: they could not be read, which a note says. */
function predictor(live: LiveNode, probe: Probe): Predict | null {
  const rules = live.get(probe.family);
  if (rules === undefined) return null;
  const simulator = new RulesetSimulator(rules);
  const hostState = { nodeAddresses: nodeAddresses([probe.family]), nowSeconds: 0 };
  return (affinity) => simulator.send(packetOfProbe(probe), { ...hostState, affinity });
}
