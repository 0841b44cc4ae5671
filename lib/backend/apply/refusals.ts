/**
 * What becomes of Services whose rules iptables, ipset or ipvsadm refuses: whose they are is found, these are quarantined and keep what
 * they had, all others are written. A mode says how it writes and how it tries; a change that is refused fails first, because only what
 * was read in the same sync can say that a Service is to blame. (Mode nftables writes a full sync in portions, each of which is such a
 * trial: `nftables/apply/table_writer`.)
 *
 * @module
 */
import type { NamespacedName } from "../../model/objects.ts";
import type { Logger } from "../../observe/log.ts";
import type { RefusedService } from "../quarantine.ts";
import type { FamilySession } from "./family_session.ts";

/** How everything is written. */
export interface FullWrite<Reached> {
  /** Reads, and writes what differs, but nothing new of what is refused. */
  readonly write: (refused: ReadonlySet<NamespacedName>) => Promise<Reached>;
  /** True if an error of `write` says that something in what was written is refused. */
  readonly isRefusal: (error: unknown) => boolean;
  /** Finds whose it is after `write` failed so; rejects if no Service is to blame. */
  readonly find: (error: unknown) => Promise<readonly RefusedService[]>;
  /** How often `write` is called once more because of what was found. Default 1: `find` finds all. */
  readonly rounds?: number;
}

/** Writes everything, and without what is refused if there is something: its Services are quarantined, and no others. */
export async function writeAll<Reached>(
  { quarantine }: Pick<FamilySession<unknown, unknown>, "quarantine">,
  { write, isRefusal, find, rounds = 1 }: FullWrite<Reached>,
): Promise<Reached> {
  quarantine.replace([]);
  const refused = new Set<NamespacedName>();
  for (let round = 0;; round++) {
    try {
      return await write(refused);
    } catch (error) {
      if (round === rounds || !isRefusal(error)) throw error;
      for (const { item, problem, part } of await find(error)) {
        refused.add(item);
        quarantine.refused({ service: item, problem }, part);
      }
    }
  }
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
