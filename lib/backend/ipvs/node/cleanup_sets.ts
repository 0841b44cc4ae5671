/**
 * Removes the sets of IPVS mode, as far as no rule uses them.
 *
 * @module
 */
import { ExecError } from "../../../errors.ts";
import type { Exec } from "../../../kernel/exec.ts";
import { destroySets, isSetInUse, listSets } from "../../../kernel/ipset.ts";
import type { IpFamily } from "../../../model/objects.ts";
import { SET_TYPES } from "../../../netfilter/ipset.ts";
import type {
  CleanupContext,
  KeptLeftover,
  Leftover,
  LeftoverFailure,
  LeftoverReport,
} from "../../node/cleanup.ts";
import { growingSetName, probeSetName, setNames } from "../plan/sets.ts";

/** Sets that a family may have, those that are there for a moment among them. */
function ownSetNames(family: IpFamily): readonly string[] {
  return [
    ...setNames(family),
    growingSetName(family),
    ...SET_TYPES.map((type) => probeSetName(type, family)),
  ];
}

/** Removes the sets of the families. */
export async function cleanupSets({ exec, families, dryRun }: CleanupContext): Promise<LeftoverReport> {
  const failed: LeftoverFailure[] = [];
  const kept: KeptLeftover[] = [];
  const own = families.flatMap(ownSetNames);
  let names: readonly string[] = [];
  try {
    const isOwn = (name: string): boolean => own.includes(name);
    names = (await listSets(exec)).filter(isOwn);
    if (!dryRun && names.length > 0) names = await destroyAll(exec, names, { kept, failed }, isOwn);
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    failed.push({ place: "ipset", error });
  }
  return { removed: names.map(leftoverSet), kept, failed };
}

/** Resolves to those that are gone. */
async function destroyAll(
  exec: Exec,
  names: readonly string[],
  report: { readonly kept: KeptLeftover[]; readonly failed: LeftoverFailure[] },
  isOwn: (name: string) => boolean,
): Promise<readonly string[]> {
  try {
    await destroySets(exec, names);
    return names;
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    // One of them is in the way; the others go one by one.
  }
  const left = (await listSets(exec)).filter(isOwn);
  const stays = new Set<string>();
  for (const name of left) {
    try {
      await destroySets(exec, [name]);
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      stays.add(name);
      const { place, command } = leftoverSet(name);
      if (isSetInUse(error)) report.kept.push({ place, command, reason: "a rule still uses this set" });
      else report.failed.push({ place, error });
    }
  }
  return names.filter((name) => !stays.has(name));
}

function leftoverSet(name: string): Leftover {
  return { place: "ipset", command: `destroy ${name}`, kind: "sets of ipset" };
}
