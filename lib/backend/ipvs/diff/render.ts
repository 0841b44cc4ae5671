/**
 * Plans and operations as text for `ipset restore`, `iptables-restore --noflush`, `ipvsadm -R` and `ip -batch -`.
 *
 * @module
 */
import { compareBytes } from "../../../model/names.ts";
import { formatSets } from "../../../netfilter/ipset.ts";
import { addAddressLine, addDummyLine } from "../../../netfilter/ip_batch.ts";
import { chainLine, type Table, tableBlock } from "../../../netfilter/iptables_jumps.ts";
import {
  addRealServerLine,
  addVirtualServerLine,
  deleteRealServerLine,
  deleteVirtualServerLine,
  updateRealServerLine,
  updateVirtualServerLine,
} from "../../../netfilter/ipvs.ts";
import { OUT_FILTER_CHAIN } from "../plan/base_rules.ts";
import { CommittedIpvs } from "./committed.ts";
import { realServerOf } from "./operations.ts";
import { DEVICE, type IpvsPlan, type Operations, type ServerChange, type Step } from "../plan/ruleset.ts";
import { capacityFor, SET_KINDS, setDefinition, setName } from "../plan/sets.ts";
import { ruleLines } from "./table_text.ts";
import type { ClaimUnion } from "../plan/union.ts";

/** The line of `ipvsadm -R` that makes the change; a real server that is to leave is deleted at once. */
export function serverLine(change: ServerChange): string {
  switch (change.kind) {
    case "addServer":
      return addVirtualServerLine(change.server);
    case "updateServer":
      return updateVirtualServerLine(change.server);
    case "deleteServer":
      return deleteVirtualServerLine(change.server);
    case "addReal":
      return addRealServerLine(change.server, change.real);
    case "updateReal":
      return updateRealServerLine(change.server, change.real);
    case "removeReal":
      return deleteRealServerLine(change.server, change.real);
    default:
      return change satisfies never;
  }
}

/** What the step's program reads from standard input. */
export function stepText(step: Step): string {
  switch (step.program) {
    case "iptables":
      return step.transactions.map(({ table, lines }) => tableBlock(table, lines)).join("");
    case "ipvsadm":
      return joined(step.changes.map(serverLine));
    default:
      return joined(step.lines);
  }
}

function joined(lines: readonly string[]): string {
  return lines.map((line) => line + "\n").join("");
}

/** What each part is read by; `iptables-restore` stands for both families' programs. */
const HEADINGS = {
  ipset: "ipset restore",
  iptables: "iptables-restore --noflush",
  ipvsadm: "ipvsadm -R",
  ip: "ip -batch -",
} as const;

/** All steps, in order, each under a heading; empty if nothing needs to be done. */
export function renderOperations(operations: Operations): string {
  return operations.steps.map((step) => `### ${HEADINGS[step.program]}\n${stepText(step)}`).join("");
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
 * The texts of a plan of all Services, sorted so that the same objects give the same text. The jumps from the kernel's
 * own chains are not in them.
 *
 * @throws {TypeError} if the plan is not one of all Services
 */
export function planTexts(plan: IpvsPlan): PlanTexts {
  const { union } = CommittedIpvs.of(plan);
  const { family } = plan.base;
  const entries = [...union.entries].sort(compareBytes);
  const ofSet = (set: string): string[] =>
    entries.filter((entry) => entry.startsWith(`${set} `)).map((entry) => entry.slice(set.length + 1));
  const sets = SET_KINDS.map((kind) => {
    const own = ofSet(setName(kind, family));
    return { definition: setDefinition(kind, family, capacityFor(own.length)), entries: own };
  });
  const servers = [...union.servers()].sort((left, right) => compareBytes(left.key, right.key));
  return {
    ipset: formatSets(sets),
    iptables: (["nat", "filter"] as const)
      .map((table) => tableBlock(table, tableLines(plan, table, union))).join(""),
    ipvsadm: joined(
      servers.flatMap(({ server, realServers }) => [
        addVirtualServerLine(server),
        ...realServers.map((key) => addRealServerLine(server, realServerOf(key))),
      ]),
    ),
    ip: joined([
      addDummyLine(DEVICE),
      ...ofSet(setName("KUBE-IPVS-IPS", family)).map((address) => addAddressLine(DEVICE, address)),
    ]),
  };
}

/** The lines of one table: all chains, then the rules, those of Services in their place. */
function tableLines({ base }: IpvsPlan, table: Table, union: ClaimUnion): string[] {
  const filled = (set: string): boolean => union.setSize(set) > 0;
  const outFilters = table === "filter" ? union.outFilters().sort(compareBytes) : [];
  return [
    ...base.chains[table].map(chainLine),
    ...ruleLines(base.head[table], filled),
    ...outFilters.map((rule) => `-A ${OUT_FILTER_CHAIN} ${rule}`),
    ...ruleLines(base.tail[table], filled),
  ];
}

/**
 * A plan of all Services as one text, in the order of loading; each part stands under the program that reads it. It
 * contains the jumps from the kernel's own chains, each inserted at the top.
 *
 * @throws {TypeError} if the plan is not one of all Services
 */
export function renderPlan(plan: IpvsPlan): string {
  const texts = { ...planTexts(plan), iptables: "" };
  const { union } = CommittedIpvs.of(plan);
  for (const table of ["nat", "filter"] as const) {
    const jumps = plan.base.jumps.filter((jump) => jump.table === table)
      .map(({ chain, args }) => `-I ${chain} ${args}`);
    texts.iptables += tableBlock(table, [...tableLines(plan, table, union), ...jumps]);
  }
  return (["ipset", "iptables", "ipvsadm", "ip"] as const)
    .map((program) => `### ${HEADINGS[program]}\n${texts[program]}`).join("");
}
