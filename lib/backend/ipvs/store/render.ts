/**
 * A plan of all Services as text, as it is written into an empty kernel.
 *
 * @module
 */
import { tableBlock } from "../../../netfilter/iptables_jumps.ts";
import { planLines } from "../../iptables/plan/render.ts";
import type { IpvsPlan } from "../plan/ruleset.ts";
import { NOTHING_HELD } from "../../iptables/store/full_sync.ts";
import { diffObjects, type Ownership } from "./objects.ts";
import { IpvsStore } from "./store.ts";
import { stepText, TABLES } from "./transaction.ts";

/** A kernel without anything of ours. */
const NOTHING = { ...NOTHING_HELD, addresses: null, virtualServers: new Map(), sets: new Map() };

/**
 * A plan of all Services as one text, in the order of loading; each part stands under the program that reads it. It
 * contains the jumps from the kernel's own chains.
 *
 * @throws {TypeError} if the plan is not one of all Services
 */
export function renderPlan(plan: IpvsPlan): string {
  return IpvsStore.of(plan).fullSync(NOTHING, ownershipOf(plan)).text;
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
  const { objects, rulesPlan } = IpvsStore.of(plan);
  const iptables = TABLES.map((table) => tableBlock(table, planLines(rulesPlan, table))).join("");
  const texts = { ipset: "", iptables, ipvsadm: "", ip: "" };
  for (const step of diffObjects(objects, NOTHING, ownershipOf(plan)).steps) {
    texts[step.program] = stepText(step);
  }
  return texts;
}

function ownershipOf({ base: { family } }: IpvsPlan): Ownership {
  return { family, excludeCIDRs: [], hostIps: [] };
}
