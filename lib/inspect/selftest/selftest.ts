/**
 * `kproxy selftest`: real packets, through namespaces of its own, show whether this node can run a proxy mode.
 *
 * @module
 */
import type { ProxyMode } from "../../config/types.ts";
import { ExecError } from "../../errors.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Exec, ExecOptions, ExecResult } from "../../kernel/exec.ts";
import type { IpFamily } from "../../model/objects.ts";
import type { HostState } from "../../sim/packet_walk.ts";
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
  type Attempt,
  type Check,
  checkOf,
  failedCheck,
  judge,
  type Predict,
  type SelftestReport,
} from "./report.ts";
import { removeLeft, TestNetwork } from "./network.ts";
import {
  type EndpointName,
  endpointServers,
  type HostName,
  nodeAddresses,
  selftestObjects,
} from "./topology.ts";
import { packetOfProbe, type Probe, probesOf } from "./probes.ts";

export interface SelftestOptions {
  readonly mode: ProxyMode;
  /** Those that the node has. */
  readonly families: readonly IpFamily[];
  readonly exec: Exec;
  readonly clock: Pick<Clock, "nowMs">;
  /** Milliseconds since the epoch. */
  readonly nowMs: () => number;
  /** Hexadecimal digits that no other test has. */
  readonly random: string;
  readonly program: OwnProgram;
  /** For all of it, in milliseconds. */
  readonly limitMs: number;
  /** Ends it; everything is taken away first. */
  readonly signal: AbortSignal;
  /** Says what is being done. */
  readonly say: (text: string) => void;
}

/** The words of a child in messages, without those of the runtime. */
const SHOWN_CHILD = ["kproxy", "selftest", "agent"];
const SERVER_LIMIT_MS = 20_000;
/** A SYN is sent again after a second, and on a slow machine an answer may take some. */
const ANSWER_LIMIT_MS = 5_000;
/** A packet that is dropped is sent again after a second, and dropped again. */
const SILENCE_LIMIT_MS = 1_500;

/** What is left of a test that did not come to its end; what it made is gone, as far as it says nothing else. */
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
 * @throws {SelftestError} if it was ended, or something of the test itself failed
 */
export async function selftest(options: SelftestOptions): Promise<SelftestReport> {
  const { exec, families, program, nowMs, limitMs, random, signal, say, clock } = options;
  const startMs = clock.nowMs();
  const notes: string[] = [];
  const limit = AbortSignal.timeout(limitMs);
  const until = AbortSignal.any([signal, limit]);
  const network = new TestNetwork({
    exec,
    families,
    ownProgram: program("network")[0] ?? "",
    untilMs: nowMs() + limitMs,
    random,
    signal: until,
  });
  let run: TestRun | null = null;
  let outcome: TestResult | Error;
  try {
    say("Making namespaces");
    const removed = await removeLeft(exec, nowMs());
    if (removed > 0) notes.push(`removed ${removed} namespaces that a killed selftest had left`);
    await network.build();
    run = new TestRun(options, network, until);
    outcome = await run.run();
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    outcome = error;
  }
  say("Taking everything away");
  await run?.end();
  const left = await network.remove();
  if (!(outcome instanceof Error)) {
    const checks = [
      ...outcome.checks,
      ...left.map((problem) => failedCheck("taking everything away", problem)),
    ];
    return { ...outcome, checks, notes: [...notes, ...outcome.notes], tookMs: clock.nowMs() - startMs };
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

/** The test itself, on a network that stands. */
class TestRun {
  readonly #options: SelftestOptions;
  readonly #network: TestNetwork;
  readonly #until: AbortSignal;
  /** Aborted: the children are to end. */
  readonly #over = new AbortController();
  readonly #children: Promise<ExecResult>[] = [];

  constructor(options: SelftestOptions, network: TestNetwork, until: AbortSignal) {
    this.#options = options;
    this.#network = network;
    this.#until = until;
  }

  async run(): Promise<TestResult> {
    const { families, mode, say } = this.#options;
    say("Starting servers and writing rules");
    const [applied] = await Promise.all([
      this.#apply(),
      this.#serve("pod-a", ["pod-a"]),
      this.#serve("pod-b", ["pod-b"]),
      this.#serve("client", ["far-pod"]),
    ]);
    const failed: Check[] = applied.failures.map(({ family, message }) =>
      failedCheck(`rules of mode ${applied.mode ?? mode}`, message, family)
    );
    const base = { wantedMode: mode, mode: applied.mode, families: applied.served };
    const notes = applied.refused.map(({ family, reason }) => `${family} cannot be served here: ${reason}`);
    if (applied.mode === null || applied.served.length === 0) {
      return { ...base, families, checks: failed, notes };
    }
    say("Sending packets");
    const probes = probesOf(applied.served);
    const live = await liveOfKernel(this.#network.execOf("node"), { signal: this.#until });
    const attempts = await this.#ask(probes);
    const checks = probes.map((probe) =>
      checkOf(probe, judge(probe, attempts.get(probe.name + probe.family) ?? [], predictor(live, probe)))
    );
    const unread = applied.served.flatMap((family) => live.get(family)?.problems ?? [])
      .map(({ place, message }) => `${place}: ${message}`);
    return { ...base, checks: [...failed, ...checks], notes: [...notes, ...new Set(unread)] };
  }

  /** Ends all children and waits until they have gone. */
  async end(): Promise<void> {
    this.#over.abort(new Error("the test is over"));
    await Promise.allSettled(this.#children);
  }

  /** Starts a child inside the namespace of a host. */
  #start(host: HostName, rights: ChildRights, job: Job, options: ExecOptions = {}): Promise<ExecResult> {
    const child = this.#network.execOf(host).run([...this.#options.program(rights), "selftest", "agent"], {
      ...options,
      stdin: JSON.stringify(job),
      signal: AbortSignal.any([this.#until, this.#over.signal]),
    });
    this.#children.push(child);
    return child;
  }

  async #apply(): Promise<ApplyAnswer> {
    const { mode, families } = this.#options;
    const objects = selftestObjects(families);
    return await this.#answer("node", "node", { job: "apply", mode, families, objects });
  }

  /** Resolves once the servers listen. */
  async #serve(host: HostName, endpoints: readonly EndpointName[]): Promise<void> {
    const { families, limitMs } = this.#options;
    const servers = families.flatMap((family) => endpointServers(family, endpoints));
    const ready = Promise.withResolvers<void>();
    const decoder = new TextDecoder();
    let said = "";
    const job: Job = { job: "serve", servers, lifeMs: limitMs + SERVER_LIMIT_MS };
    const running = this.#start(host, "network", job, {
      timeoutMs: limitMs + SERVER_LIMIT_MS,
      onStdout: (bytes) => {
        if (said.includes(READY_LINE)) return;
        said += decoder.decode(bytes, { stream: true });
        if (said.includes(READY_LINE)) ready.resolve();
      },
    });
    // After it has listened, its end means nothing.
    running.then(
      ({ code, stderr }) => ready.reject(new ExecError(SHOWN_CHILD, code, stderr)),
      (error) => ready.reject(error),
    );
    await ready.promise;
  }

  /** Each sender asks on its own, all at once. */
  async #ask(probes: readonly Probe[]): Promise<ReadonlyMap<string, readonly Attempt[]>> {
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
      const { attempts } = await this.#answer<AskAnswer>(host, "network", { job: "ask", questions });
      return Object.entries(attempts);
    }));
    return new Map(answers.flat());
  }

  /** @throws {ExecError} if the child fails or says nothing that can be read */
  async #answer<Answer>(host: HostName, rights: ChildRights, job: Job): Promise<Answer> {
    const { code, stdout, stderr } = await this.#start(host, rights, job);
    if (code !== 0) throw new ExecError(SHOWN_CHILD, code, stderr);
    try {
      return JSON.parse(stdout) as Answer;
    } catch (cause) {
      if (!(cause instanceof SyntaxError)) throw cause;
      throw new ExecError(SHOWN_CHILD, code, `it printed ${JSON.stringify(stdout.slice(0, 200))}`, { cause });
    }
  }
}

/** What the rules in the kernel say of a probe. */
function predictor(live: LiveNode, probe: Probe): Predict | null {
  const rules = live.get(probe.family);
  if (rules === undefined) return null;
  const simulator = new RulesetSimulator(rules);
  const packet = packetOfProbe(probe);
  return (affinity) => {
    const hostState: HostState = {
      nodeAddresses: nodeAddresses([probe.family]),
      affinity,
      nowSeconds: 0,
    };
    return simulator.send(packet, hostState);
  };
}
