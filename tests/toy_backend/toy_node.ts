/**
 * The toy's half that acts: one family's proxier, getting a node ready, cleaning up.
 *
 * @module
 */
import { FamilySession } from "../../lib/backend/apply/family_session.ts";
import type { ApplyReport, FamilyProxier, SyncRequest } from "../../lib/backend/backend.ts";
import { type Damage, damageOf } from "../../lib/backend/damage.ts";
import type { CleanupContext, LeftoverReport, ModeCleanup } from "../../lib/backend/node/cleanup.ts";
import type { ModeContext, PreparedMode } from "../../lib/backend/node/mode.ts";
import { ExecError, UnsupportedError } from "../../lib/errors.ts";
import type { Exec } from "../../lib/kernel/exec.ts";
import {
  committedAfter,
  diffToy,
  parseToy,
  planToy,
  rulesOf,
  type ToyCommitted,
  type ToyOperations,
  type ToyRules,
} from "./toy_plan.ts";

const NOTHING: ToyCommitted = new Map();

async function runToyctl(exec: Exec, verb: string, stdin = ""): Promise<string> {
  const argv = ["toyctl", verb];
  const { code, stdout, stderr } = await exec.run(argv, { stdin });
  if (code !== 0) throw new ExecError(argv, code, stderr);
  return stdout;
}

/** IPv4 of the toy. */
export class ToyProxier implements FamilyProxier {
  readonly family = "IPv4";
  readonly #exec: Exec;
  readonly #session: FamilySession<null, ToyCommitted>;

  constructor(exec: Exec) {
    this.#exec = exec;
    this.#session = new FamilySession({
      mode: "toy",
      family: this.family,
      settings: null,
      nowMs: () => performance.now(),
    });
  }

  async sync({ state, changed }: SyncRequest): Promise<ApplyReport> {
    const { operations, committed } = await this.#session.sync(changed, async (since) => {
      // After a failure nobody knows what is there: then it is read, and everything is written that differs.
      const there = since === null
        ? await this.#session.run("read", () => this.#read())
        : rulesOf(since.committed);
      const plan = await this.#session.run("plan", () => planToy(state, since?.changed ?? "all"));
      const committed = committedAfter(plan, since?.committed ?? NOTHING);
      const operations = diffToy(rulesOf(committed), there);
      await this.#session.run("apply", () => this.#write(operations));
      return { operations, committed };
    });
    return this.#session.report({
      commands: operations.length === 0 ? 0 : 1,
      bytes: operations.join("\n").length,
      written: { rules: operations.length },
      total: { rules: rulesOf(committed).size },
    });
  }

  findDamage(): Promise<false | null | Damage> {
    return this.#session.look(async (committed) =>
      damageOf("all", diffToy(rulesOf(committed), await this.#read()))
    );
  }

  async #read(): Promise<ToyRules> {
    return parseToy(await runToyctl(this.#exec, "show"));
  }

  async #write(operations: ToyOperations): Promise<void> {
    if (operations.length > 0) await runToyctl(this.#exec, "load", `${operations.join("\n")}\n`);
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
  tellsApart: ["kproxy"],
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
