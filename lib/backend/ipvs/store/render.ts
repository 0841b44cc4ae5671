/**
 * A plan of all Services as text, as it is written into an empty kernel.
 *
 * @module
 */
import { tableBlock } from "../../../netfilter/iptables_jumps.ts";
import { planLines } from "../../iptables/plan/render.ts";
import type { IpvsPlan } from "../plan/ruleset.ts";
import { diffObjects, type HeldObjects, type WantedObjects } from "./objects.ts";
import { IpvsStore } from "./store.ts";
import { type IpvsTransaction, stepText, TABLES } from "./transaction.ts";

/** A kernel without anything of ours. */
const NOTHING: HeldObjects = {
  addresses: null,
  virtualServers: new Map(),
  sets: new Map(),
  tables: new Map(),
};

/**
 * A plan of all Services as one text, in the order of loading; each part stands under the program that reads it. It
 * contains the jumps from the kernel's own chains.
 *
 * @throws {TypeError} if the plan is not one of all Services
 */
export function renderPlan(plan: IpvsPlan): string {
  return intoNothing(IpvsStore.of(plan).objects).text;
}

/** The four texts that make an empty kernel hold a plan, each loadable by its tool. */
export interface PlanTexts {
  /** For `ipset restore`. */
  readonly ipset: string;
  /** For `iptables-restore --noflush` (`ip6tables-restore`). */
  readonly iptables: string;
  /** For `ipvsadm -R`. */
  readonly ipvsadm: string;
  /** For `ip -batch -`. */
  readonly ip: string;
}

/**
 * The texts of a plan of all Services. The jumps from the kernel's own chains are not in them.
 *
 * @throws {TypeError} if the plan is not one of all Services
 */
export function planTexts(plan: IpvsPlan): PlanTexts {
  const { objects } = IpvsStore.of(plan);
  const texts = { ipset: "", iptables: "", ipvsadm: "", ip: "" };
  for (const step of intoNothing(objects).steps) texts[step.program] = stepText(step);
  return {
    ...texts,
    iptables: TABLES.map((table) => tableBlock(table, planLines(objects.rules!, table))).join(""),
  };
}

function intoNothing(wanted: WantedObjects): IpvsTransaction {
  return diffObjects(wanted, NOTHING, { family: wanted.family, excludeCIDRs: [], hostIps: [] });
}
