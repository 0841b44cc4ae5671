/**
 * Transaction of a sync: the difference of wanted and held objects, in an order in which every packet has the old or
 * the new path, printed as input of `ipset restore`, `iptables-restore --noflush`, `ipvsadm -R` and `ip -batch -`.
 *
 * @module
 */
import { addAddressLine, addDummyLine, deleteAddressLine } from "../../../netfilter/ip_batch.ts";
import type { Table } from "../../../netfilter/iptables_jumps.ts";
import type { RealServer, VirtualServer } from "../../../netfilter/ipvs.ts";
import { IptablesTransaction } from "../../iptables/store/transaction.ts";
import { DEVICE } from "../plan/ruleset.ts";

export const TABLES: readonly Table[] = ["nat", "filter"];

/** Evidence for another process that a virtual server is ours. */
export interface Evidence {
  /** True if its address is on the device. */
  readonly isBound: boolean;
  /** True if entries of the sets name it. */
  readonly isNamed: boolean;
}

/** One change of IPVS. */
export type ServerChange =
  & {
    readonly server: VirtualServer;
    /** Line for `ipvsadm -R`. */
    readonly line: string;
  }
  & (
    | { readonly kind: "addServer" | "updateServer" }
    | { readonly kind: "deleteServer"; readonly evidence: Evidence }
    /** `addReal`: it may still be there, drained of new connections by an earlier `removeReal`. */
    | { readonly kind: "addReal" | "updateReal"; readonly real: RealServer }
    /** `graceful`: only after the connections of its clients are gone. */
    | { readonly kind: "removeReal"; readonly real: RealServer; readonly graceful: boolean }
  );

/** Changes of one set; lines of `ipset restore`. */
export interface SetChange {
  readonly set: string;
  /** Lines that create, fill or replace it. */
  readonly lines: readonly string[];
  /** Deletions of entries, written after all additions to any set. */
  readonly deletions: readonly string[];
}

/** One start of a program. */
export interface Step {
  readonly program: "ipset" | "iptables" | "ipvsadm" | "ip";
  /** Lines of its standard input, without line ends. */
  readonly lines: readonly string[];
  /** The changes of IPVS that the lines of `ipvsadm` make, one each; empty for other programs. */
  readonly changes: readonly ServerChange[];
}

/** Program that reads each step; `iptables-restore` stands for both families' programs. */
const HEADINGS = {
  ipset: "ipset restore",
  iptables: "iptables-restore --noflush",
  ipvsadm: "ipvsadm -R",
  ip: "ip -batch -",
} as const;

/** Transaction of one sync; see the module. */
export class IpvsTransaction {
  readonly sets: SetChange[] = [];
  rules = new IptablesTransaction();
  servers: ServerChange[] = [];
  /** True if the dummy device is to be created. */
  makesDevice = false;
  /** Addresses to add to the device. */
  readonly bound: string[] = [];
  /** Addresses to delete from the device. */
  readonly unbound: string[] = [];
  /** Rules of iptables mode serve the same addresses until ours replace them: they translate addresses before IPVS sees them. */
  replacesIptablesMode = false;

  /** All steps as text, each under the program that reads it, in order; empty if nothing needs to be done. */
  get text(): string {
    return this.steps.map((step) => `### ${HEADINGS[step.program]}\n${stepText(step)}`).join("");
  }

  /**
   * One step for each program that has something to do; one more of `ipvsadm` where one server goes before entries that another one
   * comes after.
   *
   * Usually sets, rules, servers, addresses: a packet to an address that is not complete is refused or passes
   * untouched. In deletions the address goes first. A server goes before the last evidence that it is ours, and
   * comes after the first one, so that nothing of ours is left behind if the process is killed between two steps.
   */
  get steps(): readonly Step[] {
    const [ipset, iptables, ip] = [this.#setStep, this.#ruleStep, this.#addressStep];
    const addsEntries = ipset.lines.some((line) => line.startsWith("add "));
    const named = this.servers.filter(isNamedOnly);
    if (!this.replacesIptablesMode && !addsEntries && this.unbound.length + named.length > 0) {
      const servers = serverStep(this.servers);
      const dropsBound = this.servers.some((change) =>
        change.kind === "deleteServer" && change.evidence.isBound && !change.evidence.isNamed
      );
      return (dropsBound ? [servers, ip, iptables, ipset] : [ip, servers, iptables, ipset]).filter(isWork);
    }
    const addsServers = this.servers.some(({ kind }) => kind === "addServer");
    const early = named.length === 0 ? [] : addsEntries && addsServers ? named : this.servers;
    const late = early.length === 0
      ? this.servers
      : early === named
      ? this.servers.filter((one) => !isNamedOnly(one))
      : [];
    const [before, after] = [serverStep(early), serverStep(late)];
    return (this.replacesIptablesMode
      ? [before, ipset, after, ip, iptables]
      : [before, ipset, iptables, after, ip]).filter(isWork);
  }

  get #setStep(): Step {
    return step("ipset", [
      ...this.sets.flatMap(({ lines }) => lines),
      ...this.sets.flatMap(({ deletions }) => deletions),
    ]);
  }

  get #ruleStep(): Step {
    return step(
      "iptables",
      TABLES.flatMap((table) => {
        const lines = this.rules.lines(table);
        return lines.length === 0 ? [] : [`*${table}`, ...lines, "COMMIT"];
      }),
    );
  }

  get #addressStep(): Step {
    return step("ip", [
      ...this.makesDevice ? [addDummyLine(DEVICE)] : [],
      ...this.unbound.map((address) => deleteAddressLine(DEVICE, address)),
      ...this.bound.map((address) => addAddressLine(DEVICE, address)),
    ]);
  }
}

/** True if a server is deleted whose address is not on the device, so that only set entries show that it is ours. */
function isNamedOnly(change: ServerChange): boolean {
  return change.kind === "deleteServer" && !change.evidence.isBound;
}

function step(program: Step["program"], lines: readonly string[]): Step {
  return { program, lines, changes: [] };
}

function serverStep(changes: readonly ServerChange[]): Step {
  return { program: "ipvsadm", lines: changes.map(({ line }) => line), changes };
}

function isWork({ lines }: Step): boolean {
  return lines.length > 0;
}

/** Standard input of the step's program. */
export function stepText({ lines }: Pick<Step, "lines">): string {
  return lines.map((line) => line + "\n").join("");
}
