/**
 * What becomes of Services whose rules a tool refuses, in every mode: whose they are is found, these are quarantined and keep what they
 * had, all others are written. A mode says how it writes and how it tries; a change that is refused fails first, because only what was
 * read in the same sync can say that a Service is to blame.
 *
 * @module
 */
import type { NamespacedName } from "../../model/objects.ts";
import type { Logger } from "../../observe/log.ts";
import type { Refused } from "../isolate.ts";
import type { FamilySession } from "./family_session.ts";

/** How everything is written. */
export interface FullWrite<Reached> {
  /** Reads, and writes what differs, but nothing new of the refused Services. Called once more where the first call is refused. */
  readonly write: (refused: ReadonlySet<NamespacedName>) => Promise<Reached>;
  /** True if an error of `write` says that something in what was written is refused. */
  readonly isRefusal: (error: unknown) => boolean;
  /** Finds whose it is after `write` failed so; rejects if no Service is to blame. */
  readonly find: (error: unknown) => Promise<readonly Refused<NamespacedName>[]>;
}

/** Writes everything, and without the Services that are refused if there are any: they are quarantined, and no others. */
export async function writeAll<Reached>(
  { quarantine }: Pick<FamilySession<unknown, unknown>, "quarantine">,
  { write, isRefusal, find }: FullWrite<Reached>,
): Promise<Reached> {
  let refused: readonly Refused<NamespacedName>[] = [];
  let reached: Reached;
  try {
    reached = await write(new Set());
  } catch (error) {
    if (!isRefusal(error)) throw error;
    refused = await find(error);
    reached = await write(new Set(refused.map(({ item }) => item)));
  }
  quarantine.replace(refused.map(({ item, problem }) => ({ service: item, problem })));
  return reached;
}

/** How a change is written. */
export interface ChangeWrite<Reached> {
  readonly change: () => Promise<Reached>;
  /** What a refused change says; null for every other error. */
  readonly problem: (error: unknown) => string | null;
  readonly all: () => Promise<Reached>;
}

/** Writes a change, and everything where that is refused. */
export async function writeChange<Reached>(
  { change, problem, all }: ChangeWrite<Reached>,
  { logger, family }: { readonly logger: Logger; readonly family: string },
): Promise<Reached> {
  try {
    return await change();
  } catch (error) {
    const refusal = problem(error);
    if (refusal === null) throw error;
    logger.info("A change was refused, everything is written again without what is refused", {
      family,
      problem: refusal,
    });
    return await all();
  }
}
