/**
 * What IPVS mode leaves behind in iptables and ipset. Its virtual servers and their device are not touched in this
 * release; that they are there is told.
 *
 * @module
 */
import { ExecError } from "../../errors.ts";
import type { Exec } from "../../kernel/exec.ts";
import { destroySets, isSetInUse, listSets } from "../../kernel/ipset.ts";
import type {
  CleanupContext,
  KeptLeftover,
  Leftover,
  LeftoverFailure,
  LeftoverReport,
  ModeCleanup,
} from "../cleanup.ts";
import { setNames } from "./sets.ts";

/** The device that carries the addresses of Services. */
const DEVICE = "kube-ipvs0";

export const IPVS_CLEANUP: ModeCleanup = {
  mode: "ipvs",
  chains: {
    // KUBE-FIREWALL in nat is of kube-proxy before 1.24; kubelet's chain of this name is in filter.
    nat: ["KUBE-FIREWALL", "KUBE-LOAD-BALANCER", "KUBE-NODE-PORT"],
    filter: [
      "KUBE-IPVS-FILTER",
      "KUBE-IPVS-OUT-FILTER",
      "KUBE-NODE-PORT",
      "KUBE-SOURCE-RANGES-FIREWALL",
    ],
    mangle: [],
  },
  removeOthers: async (context) => {
    const sets = await removeSets(context);
    const device = context.families.includes("IPv4") ? await findDevice(context.exec) : [];
    return { ...sets, failed: [...sets.failed, ...device] };
  },
};

async function removeSets({ exec, families, dryRun }: CleanupContext): Promise<LeftoverReport> {
  const failed: LeftoverFailure[] = [];
  const kept: KeptLeftover[] = [];
  const own = families.flatMap(setNames);
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

/** Says that the device is there: what hangs on it stays, and nobody may take that for cleaned up. */
async function findDevice(exec: Exec): Promise<LeftoverFailure[]> {
  try {
    const { code } = await exec.run(["ip", "link", "show", "dev", DEVICE]);
    if (code !== 0) return [];
    const message = `device ${DEVICE} is there: this release removes neither it nor IPVS virtual servers; ` +
      `see them with "ipvsadm -Ln"`;
    return [{ place: "ipvs", error: new Error(message) }];
  } catch (error) {
    if (error instanceof ExecError && error.isMissing()) return [];
    throw error;
  }
}
