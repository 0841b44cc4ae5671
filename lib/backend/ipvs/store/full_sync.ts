/**
 * From what the tools list, or from nothing, to a plan of all Services: a full sync writes that, a drift check looks whether there is any.
 *
 * @module
 */
import type { IpvsPlan } from "../plan/ruleset.ts";
import { diffObjects, type HeldObjects, type Ownership, type WantedObjects } from "./objects.ts";
import { IpvsStore } from "./store.ts";
import { type IpvsTransaction, stepText } from "./transaction.ts";

/** A full sync. */
export interface FullSync {
  readonly transaction: IpvsTransaction;
  /** What is held once it was written. */
  readonly store: IpvsStore;
}

/**
 * What must be written so that a kernel in which `held` was found holds exactly `plan` of what is ours.
 *
 * @throws {TypeError} if the plan is not one of all Services
 */
export function fullSync(plan: IpvsPlan, held: HeldObjects, ownership: Ownership): FullSync {
  const store = IpvsStore.of(plan);
  return { store, transaction: diffObjects(store.objects, held, ownership) };
}

/** Chains in which kubelets before 1.28 write, too. */
export const KUBELETS_CHAINS: ReadonlySet<string> = new Set([
  "KUBE-POSTROUTING",
  "KUBE-MARK-MASQ",
  "KUBE-FORWARD",
]);

/**
 * What a full sync would write, without what is no damage: rules of older kubelets beside ours, and real servers on their way out. What else
 * is in our chains and sets, on our device and behind our servers is ours alone.
 */
export function findDrift(wanted: WantedObjects, held: HeldObjects, ownership: Ownership): IpvsTransaction {
  const transaction = diffObjects(wanted, held, { ...ownership, sharedChains: KUBELETS_CHAINS });
  const damage = transaction.servers.filter((change) =>
    change.kind !== "removeReal" || change.real.weight !== 0
  );
  transaction.servers.splice(0, transaction.servers.length, ...damage);
  return transaction;
}

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
  return diffObjects(IpvsStore.of(plan).objects, NOTHING, ownershipOf(plan)).text;
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
  const objects = { ...IpvsStore.of(plan).objects, jumps: [] };
  const texts = { ipset: "", iptables: "", ipvsadm: "", ip: "" };
  for (const step of diffObjects(objects, NOTHING, ownershipOf(plan)).steps) {
    texts[step.program] = stepText(step);
  }
  return texts;
}

function ownershipOf({ base: { family } }: IpvsPlan): Ownership {
  return { family, excludeCIDRs: [], hostIps: [] };
}
