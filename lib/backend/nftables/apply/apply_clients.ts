/**
 * Carries clients that stick to endpoints over from one table to another, each with the time that it has left.
 *
 * @module
 */
import { ExecError } from "../../../errors.ts";
import { describeNftFailure } from "../../../kernel/nft_failure.ts";
import type { Logger } from "../../../observe/log.ts";
import type { Refused } from "../../isolate.ts";
import type { Writer } from "./apply_writer.ts";
import { parseClients } from "../diff/parse.ts";
import type { ServiceText } from "../diff/transactions.ts";
import type { NftablesPlan } from "../plan/ruleset.ts";

/** What {@linkcode carryClients} needs. */
export interface CarriedClients {
  /** Lists the table that they are in; null if it is gone. */
  readonly read: () => Promise<string | null>;
  readonly plan: NftablesPlan;
  /** Whose sets are not in the new table. */
  readonly refused: readonly Refused<ServiceText>[];
  /** For the new table, which has the sets. */
  readonly writer: Writer;
  readonly logger: Logger;
}

/**
 * Only into sets of the same name and timeout: the kernel takes nobody who would stay for longer than a newcomer. If nft fails,
 * clients choose anew, and nothing else comes of it.
 */
export async function carryClients(
  { read, plan, refused, writer, logger }: CarriedClients,
): Promise<void> {
  const without = new Set(refused.map(({ item: { name } }) => name));
  const timeouts = new Map<string, number>();
  for (const [name, rules] of plan.services) {
    if (without.has(name)) continue;
    for (const set of rules?.affinitySets ?? []) timeouts.set(set.name, set.timeoutSeconds);
  }
  if (timeouts.size === 0) return;
  try {
    const found = parseClients(await read() ?? "");
    await writer.writeClients(
      found.filter(({ name, timeoutSeconds }) => timeouts.get(name) === timeoutSeconds),
    );
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    logger.warn("Clients may get another endpoint: they could not be carried over to the new table", {
      family: plan.family,
      problem: describeNftFailure(error),
    });
  }
}
