/**
 * The toy's half that acts: one family's proxier, getting a node ready, cleaning up.
 *
 * @module
 */
import { addWritten, Proxier } from "../../lib/backend/apply/proxier.ts";
import { type Damage, damageOf } from "../../lib/backend/backend.ts";
import type { CleanupContext, LeftoverReport, ModeCleanup } from "../../lib/backend/node/cleanup.ts";
import type { ModeContext, PreparedMode } from "../../lib/backend/node/mode.ts";
import { ExecError, UnsupportedError } from "../../lib/errors.ts";
import type { Exec } from "../../lib/kernel/exec.ts";
import type { Changed, ProxyState } from "../../lib/model/state.ts";
import { silentLogger } from "../../lib/observe/log.ts";
import {
  committedAfter,
  diffToy,
  parseToy,
  planToy,
  rulesOf,
  type ToyCommitted,
  type ToyPlan,
  type ToyRules,
} from "./toy_plan.ts";

/** What is known to be there. */
interface ToyStore {
  committed: ToyCommitted;
}

async function runToyctl(exec: Exec, verb: string, stdin = ""): Promise<string> {
  const argv = ["toyctl", verb];
  const { code, stdout, stderr } = await exec.run(argv, { stdin });
  if (code !== 0) throw new ExecError(argv, code, stderr);
  return stdout;
}

/** IPv4 of the toy. */
export class ToyProxier extends Proxier<null, ToyStore> {
  readonly #exec: Exec;

  constructor(exec: Exec) {
    super({ mode: "toy", family: "IPv4", settings: null, logger: silentLogger, kinds: ["rules"] });
    this.#exec = exec;
  }

  /** After a failure it is unknown what is there: then it is read, and everything is written that differs. */
  protected override async writeAll(state: ProxyState): Promise<ToyStore> {
    const there = await this.run("read", () => this.#read());
    const store: ToyStore = { committed: new Map() };
    await this.#write(store, await this.run("plan", () => planToy(state, "all")), there);
    return store;
  }

  protected override async writeChange(state: ProxyState, changed: Changed, store: ToyStore): Promise<void> {
    const plan = await this.run("plan", () => planToy(state, changed));
    await this.#write(store, plan, rulesOf(store.committed));
  }

  protected override async checkDrift({ committed }: ToyStore): Promise<false | Damage> {
    return damageOf(diffToy(rulesOf(committed), await this.#read()));
  }

  protected override total({ committed }: ToyStore): Readonly<Record<string, number>> {
    return { rules: rulesOf(committed).size };
  }

  async #read(): Promise<ToyRules> {
    return parseToy(await runToyctl(this.#exec, "show"));
  }

  async #write(store: ToyStore, plan: ToyPlan, there: ToyRules): Promise<void> {
    const committed = committedAfter(plan, store.committed);
    const operations = diffToy(rulesOf(committed), there);
    if (operations.length > 0) {
      await this.run("apply", () => runToyctl(this.#exec, "load", `${operations.join("\n")}\n`));
      this.progress.commands++;
    }
    addWritten(this.progress, { rules: operations.length });
    store.committed = committed;
  }
}

/** Gets a node ready for the toy. */
export async function prepareToy({ exec }: ModeContext): Promise<PreparedMode> {
  try {
    await runToyctl(exec, "show");
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    throw new UnsupportedError("Proxy mode toy", "the program toyctl", error.ending, { cause: error });
  }
  return { proxiers: [new ToyProxier(exec)], refused: [], reconfigure: () => [] };
}

/** What the toy leaves behind. Its rules have a store of their own, so all of them are its own. */
export const TOY_CLEANUP: ModeCleanup = {
  // The names of modes are fixed: the toy has one of those that keep nothing in iptables alone.
  mode: "nftables",
  distinct: ["kproxy"],
  async removeOthers({ exec, dryRun }: CleanupContext): Promise<LeftoverReport> {
    const operations = diffToy(new Map(), parseToy(await runToyctl(exec, "show")));
    if (!dryRun && operations.length > 0) await runToyctl(exec, "load", `${operations.join("\n")}\n`);
    return {
      removed: operations.map((command) => ({ place: "toy", command, kind: "rules of the toy" })),
      kept: [],
      failed: [],
    };
  },
};
