/**
 * A chaos run: random changes and faults while clients connect; whenever it is quiet, the rules are those of a fresh start, and packets
 * fare by them as the objects say.
 *
 * @module
 */
import { busyness } from "../support/busyness.ts";
import { faultsOf } from "./faults.ts";
import { chaosMode, type ChaosModeName } from "./mode.ts";
import { ChaosNode } from "./node.ts";
import { planStep, QUIET_EVERY, type Step } from "./plan.ts";
import { type Soak, soakProblems } from "./soak.ts";
import type { FailedConnection, Outage } from "./windows.ts";

/** What to do. */
export interface ChaosOptions {
  readonly mode: ChaosModeName;
  readonly minutes: number;
  readonly seed: number;
  /** What the steps of the last tenth of the time are drawn from instead. */
  readonly lastSeed?: number;
  /** Faults with one of these in their names are left out; everything else stays as it is with them. */
  readonly without?: readonly string[];
  /** Hears of everything as it goes. */
  readonly log: (line: string) => void;
  /** Looks at the process in every quiet moment, in which it must take no more than before. */
  readonly soak?: Soak | undefined;
  /** Called before each step: for how long it has run, and how many steps and faults there were. */
  readonly onStep?: (
    progress: { readonly ms: number; readonly steps: number; readonly faults: number },
  ) => void;
}

/** One kind of fault in a run. */
export interface FaultReport extends Outage {
  readonly times: number;
}

/** What happened. */
export interface ChaosReport {
  readonly mode: ChaosModeName;
  readonly seed: number;
  readonly minutes: number;
  readonly steps: number;
  readonly changes: number;
  /** What happened of each fault, and what it has cost. */
  readonly faults: Readonly<Record<string, FaultReport>>;
  readonly starts: number;
  /** Starts that ended because a program which they need misbehaved. */
  readonly failedStarts: number;
  /** How often the rules were found to be those of a fresh start. */
  readonly comparisons: number;
  readonly connections: number;
  /** For how much of the time another process had taken rules away. */
  readonly damagedMs: number;
  /** The longest time without service that a damage may cost, unless something hinders its repair. Other faults may cost none. */
  readonly repairMs: number;
  /** Everything that must not happen; empty if all is well. */
  readonly problems: readonly string[];
}

const SHOWN = 30;
const POLL_MS = 250;
/** Of the time, after which the last tenth begins. */
const LAST_SHARE = 0.9;
/** How often it looks whether it runs, and a pause that is none of its own. */
const [TICK_MS, STILL_MS] = [50, 300];

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, Math.max(0, ms)));

/** Runs until the time is over or something is wrong. */
export async function runChaos(options: ChaosOptions): Promise<ChaosReport> {
  const node = await ChaosNode.create(chaosMode(options.mode));
  const run = new ChaosRun(node, options);
  try {
    return await run.all();
  } finally {
    await node[Symbol.asyncDispose]();
  }
}

class ChaosRun {
  readonly #node: ChaosNode;
  readonly #options: ChaosOptions;
  readonly #startMs = performance.now();
  readonly #faults: Record<string, number> = {};
  readonly #problems: string[] = [];
  #changes = 0;
  #comparisons = 0;
  /** Failed connections that have been judged. */
  #judged = 0;

  constructor(node: ChaosNode, options: ChaosOptions) {
    this.#node = node;
    this.#options = options;
  }

  async all(): Promise<ChaosReport> {
    let steps = 0;
    const watching = this.#watchStandstills();
    try {
      steps = await this.#untilTime();
    } catch (error) {
      if (!(error instanceof Error)) throw error;
      this.#problem(error.message.split("\n").filter((line) => !line.includes("FLAG: ")).join("\n"));
    } finally {
      clearInterval(watching);
    }
    return await this.#report(steps);
  }

  /** Tells the windows when this process, and so the machine, did not come to run. */
  #watchStandstills(): ReturnType<typeof setInterval> {
    let lastMs = Date.now();
    return setInterval(() => {
      const nowMs = Date.now();
      if (nowMs - lastMs > STILL_MS) {
        this.#node.windows.stoodStill({ what: "the machine stood still", fromMs: lastMs, untilMs: nowMs });
      }
      lastMs = nowMs;
    }, TICK_MS);
  }

  /** Resolves to the number of steps. */
  async #untilTime(): Promise<number> {
    const { minutes, seed, lastSeed = seed, without = [] } = this.#options;
    const isLeftOut = (name: string): boolean => without.some((words) => name.includes(words));
    const faults = faultsOf(this.#node.mode);
    let steps = 0;
    let sinceQuiet = 0;
    while (this.#problems.length === 0 && performance.now() - this.#startMs < minutes * 60_000) {
      this.#options.onStep?.({
        ms: performance.now() - this.#startMs,
        steps,
        faults: Object.values(this.#faults).reduce((sum, times) => sum + times, 0),
      });
      const isLast = performance.now() - this.#startMs > LAST_SHARE * minutes * 60_000;
      const planned = planStep(isLast ? lastSeed : seed, steps++, faults);
      const step = { ...planned, faults: planned.faults.filter(({ fault }) => !isLeftOut(fault.name)) };
      await this.#step(steps, step);
      const isDamaged = step.faults.some(({ fault }) => fault.damages);
      if (!isDamaged && ++sinceQuiet < QUIET_EVERY) continue;
      sinceQuiet = 0;
      await this.#quiet();
    }
    if (this.#problems.length === 0 && sinceQuiet > 0) await this.#quiet();
    return steps;
  }

  async #report(steps: number): Promise<ChaosReport> {
    const { mode, seed, soak } = this.#options;
    for (const problem of soak === undefined ? [] : soakProblems(soak.samples)) this.#problem(problem);
    const { connections, failed } = await this.#node.endTraffic();
    await this.#endWell();
    return {
      mode,
      seed,
      minutes: (performance.now() - this.#startMs) / 60_000,
      steps,
      changes: this.#changes,
      faults: this.#faultReports(failed),
      starts: this.#node.starts,
      failedStarts: this.#node.failedStarts,
      comparisons: this.#comparisons,
      connections,
      damagedMs: this.#node.windows.openMs,
      repairMs: this.#node.mode.repairMs,
      problems: this.#problems,
    };
  }

  #faultReports(failed: readonly FailedConnection[]): Record<string, FaultReport> {
    const outages = this.#node.windows.outages(failed);
    return Object.fromEntries(
      Object.entries(this.#faults).map((
        [name, times],
      ) => [name, { times, ...outages.get(name) ?? { connections: 0, longestMs: 0 } }]),
    );
  }

  #log(line: string): void {
    const seconds = ((performance.now() - this.#startMs) / 1000).toFixed(1).padStart(7);
    this.#options.log(`${seconds} s (${new Date().toISOString().slice(11, -1)}) ${line}`);
  }

  #problem(text: string): void {
    this.#problems.push(text);
    this.#log(`WRONG: ${text}`);
  }

  async #step(number: number, { changesAtMs, random, faults }: Step): Promise<void> {
    const startMs = performance.now();
    const at = (ms: number): Promise<void> => sleep(ms - (performance.now() - startMs));
    const what: string[] = [];
    const changing = (async () => {
      for (const changeAtMs of changesAtMs) {
        await at(changeAtMs);
        const change = this.#node.cluster.change(random);
        for (const object of change.remove) this.#node.api.remove(object);
        for (const object of change.put) this.#node.api.put(object);
        this.#changes++;
        what.push(change.what);
      }
    })();
    const failing = faults.map(async ({ fault, afterMs, random }) => {
      await at(afterMs);
      this.#faults[fault.name] = (this.#faults[fault.name] ?? 0) + 1;
      const fromMs = Date.now();
      const detail = await fault.run(this.#node, random);
      const span = { what: fault.name, fromMs, untilMs: Date.now() };
      if (fault.damages) this.#node.windows.damaged(span);
      if (fault.hinders) this.#node.windows.hindered(span);
      const took = `${span.untilMs - fromMs} ms`;
      this.#log(`step ${number}: ${fault.name}${detail === "" ? "" : `: ${detail}`} (${took})`);
    });
    await Promise.all([changing, ...failing]);
    if (what.length > 0) this.#log(`step ${number}: ${what.length} changes: ${what.join("; ")}`);
    this.#node.noteEnd();
    for (const end of this.#node.unexpectedEnds) this.#problem(end);
  }

  /** Waits until the rules are those of a fresh start, and judges the connections so far. */
  async #quiet(): Promise<void> {
    if (this.#problems.length > 0) return;
    const { mode } = this.#node;
    const startMs = performance.now();
    this.#log("quiet: a fresh start somewhere else");
    const wanted = await this.#node.freshRules();
    const wantedMs = performance.now();
    let found: string[] = [];
    for (;;) {
      found = await mode.rules(this.#node.netns);
      if (found.join("\n") === wanted.join("\n")) break;
      const tookMs = performance.now() - wantedMs;
      if (tookMs > mode.settleMs && tookMs > mode.settleMs * await busyness()) {
        this.#problem(
          `the rules are not those of a fresh start:\n${difference(found, wanted)}\n${this.#node.tail()}`,
        );
        break;
      }
      await sleep(POLL_MS);
    }
    const broken = await this.#node.brokenPromises();
    if (broken.length > 0) {
      this.#problem(`packets fare otherwise than the objects say:\n${broken.slice(0, SHOWN).join("\n")}`);
    }
    // Until then some connection may have found what was there before.
    this.#node.windows.repaired(Date.now());
    this.#comparisons++;
    await this.#options.soak?.look(this.#node.kproxy.pid, performance.now() - this.#startMs);
    await this.#judge();
    this.#log(
      `quiet: ${wanted.length} lines of rules, the same after ${(performance.now() - startMs).toFixed(0)} ms`,
    );
  }

  async #judge(): Promise<void> {
    const { failed, connections } = await this.#node.traffic();
    const bad = failed.filter((one) => this.#node.windows.causes(one).length === 0);
    if (bad.length > 0) {
      const shown = bad.slice(0, SHOWN).map(({ what }) => what).join("\n");
      this.#problem(
        `${bad.length} of ${connections} connections failed without a cause:\n${shown}\n${
          this.#node.tail(60)
        }`,
      );
    }
    if (failed.length > this.#judged) {
      this.#log(`${failed.length - this.#judged} connections failed by damages`);
    }
    this.#judged = failed.length;
  }

  /** A last SIGTERM, after which nothing runs on the node. */
  async #endWell(): Promise<void> {
    const node = this.#node;
    await node.tools.end();
    await node.withKproxy(() => node.end("SIGTERM"));
    if (this.#problems.length === 0) {
      for (const end of node.unexpectedEnds) this.#problem(end);
    }
    // What programs left behind ends by itself.
    const deadlineMs = performance.now() + 60_000;
    const pids = async (): Promise<string> => {
      const { stdout } = await node.lab.world.netns.exec.run(["ip", "netns", "pids", node.netns.name]);
      return stdout.trim();
    };
    while (await pids() !== "" && performance.now() < deadlineMs) await sleep(POLL_MS);
    const left = await pids();
    if (left !== "") this.#problem(`programs are left on the node: ${left.split("\n").join(", ")}`);
  }
}

/** Lines that one has and the other has not. */
function difference(found: readonly string[], wanted: readonly string[]): string {
  const [has, wants] = [new Set(found), new Set(wanted)];
  const lines = [
    ...found.filter((line) => !wants.has(line)).map((line) => `there:   ${line}`),
    ...wanted.filter((line) => !has.has(line)).map((line) => `missing: ${line}`),
  ];
  if (lines.length === 0) lines.push("the same lines in another order or number");
  return lines.slice(0, SHOWN).join("\n");
}
