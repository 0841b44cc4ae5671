/**
 * Plans and operations as text for `nft -f -`.
 *
 * @module
 */
import type { IpFamily } from "../../../model/objects.ts";
import { FAMILY_WORDS, TABLE_NAME } from "../plan/chains.ts";
import { diffObserved, NO_TABLE } from "./diff_observed.ts";
import type { NftablesPlan, Operations } from "../plan/ruleset.ts";
import { baseLines, leftoverLines, serviceLines } from "./transactions.ts";

/** The operations as one transaction, with a comment before what each Service contributes; empty if nothing needs to be done. */
export function renderOperations(operations: Operations, family: IpFamily): string {
  const { ip, addressType } = FAMILY_WORDS[family];
  const address = { table: `${ip} ${TABLE_NAME}`, addressType };
  const lines = [...baseLines(address, operations.base, true)];
  for (const service of operations.services) {
    lines.push(`# ${[service.name, ...service.others].join(", ")}`);
    for (const line of serviceLines(address, service)) lines.push(line);
  }
  lines.push(...leftoverLines(address, operations.leftover));
  return lines.length === 0 ? "" : lines.join("\n") + "\n";
}

/** The whole plan as text, for a table that is not there yet. */
export function renderPlan(plan: NftablesPlan): string {
  const { operations } = diffObserved(plan, NO_TABLE);
  const { comment } = plan.base;
  const table = `add table ${FAMILY_WORDS[plan.family].ip} ${TABLE_NAME}`;
  const said = comment === "" ? "" : ` { comment "${comment}" ; }`;
  return `${table}${said}\n${renderOperations(operations, plan.family)}`;
}
