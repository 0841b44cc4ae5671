/**
 * Proxy modes of tests with real packets, and how each mode's rules are read.
 *
 * @module
 */
import { DEVICE } from "../../lib/backend/ipvs/plan/ruleset.ts";
import { IMPLEMENTED_MODES } from "../../lib/backend/node/registry.ts";
import { readDevices } from "../../lib/kernel/ip_address.ts";
import type { LoopPace } from "./connect_loop.ts";
import { saveAll } from "./lab_rules.ts";
import type { Netns } from "./netns.ts";
import { type Need, program } from "./skip.ts";

/** A proxy mode in a lab. */
export interface LabMode {
  readonly name: "iptables" | "nftables" | "ipvs" | "userspace";
  /** Needs beyond those of every lab. */
  readonly needs: readonly Need[];
  /** Pace of connect loops; absent: the usual one. */
  readonly pace?: LoopPace;
  /** Round robin: of clients that run in step, each may always get the same endpoint. */
  readonly takesTurns?: true;
  /** All rules of both families as text: equal if and only if the rules are. */
  rules(netns: Netns): Promise<string>;
  /** Rule for a Service port without endpoints, which is rejected. */
  refusal(servicePort: string, ip: string, port: number): string | RegExp;
}

export const IPTABLES: LabMode = {
  name: "iptables",
  needs: [],
  rules: (netns) => saveAll(netns),
  refusal: (servicePort) => `${servicePort} has no`,
};

/** Tables as `nft list ruleset` prints them: all but kproxy's, or kproxy's alone. */
export async function nftTables(netns: Netns, whose: "kproxy" | "others"): Promise<string[]> {
  const tables = (await netns.run(["nft", "list", "ruleset"])).trim().split(/\n(?=table )/);
  return tables.filter((table) => /^table ip6? kproxy \{/.test(table) === (whose === "kproxy"));
}

/** Names of all tables, one per line, sorted. */
export async function nftTableNames(netns: Netns): Promise<string> {
  return (await netns.run(["nft", "list", "tables"])).trim().split("\n").sort().join("\n");
}

/** The table without expiry times, in an order that does not depend on when chains were created. */
function inComparableForm(table: string): string {
  const parts = table.replace(/ expires [0-9dhms]+/g, "").split(/\n(?=\t(?:chain|set|map) )/);
  return parts.map((part) => part.replace(/\n}\s*$/, "").trimEnd()).sort().join("\n");
}

export const NFTABLES: LabMode = {
  name: "nftables",
  needs: [program("nft")],
  rules: async (netns) => (await nftTables(netns, "kproxy")).map(inComparableForm).sort().join("\n"),
  refusal: (_, ip, port) => new RegExp(`${RegExp.escape(`${ip} . tcp . ${port} `)}.*goto reject-chain`),
};

/**
 * Servers, sets, addresses and rules, each kind sorted. Drained real servers are left out: they go by themselves, with the
 * last of their connections.
 */
async function ipvsRules(netns: Netns): Promise<string> {
  const lines = async (program: string, kept: RegExp): Promise<string[]> =>
    (await netns.run(program.split(" "))).split("\n").map((line) => line.trim())
      .filter((line) => kept.test(line) && !line.endsWith(" -w 0"));
  const { addresses } = await readDevices(netns.exec);
  const bound = addresses.filter(({ device }) => device === DEVICE).map(({ address }) => address);
  return [
    ...(await lines("ipvsadm -Sn", /^-[Aa] /)).sort(),
    ...(await lines("ipset save", /^add /)).sort(),
    ...bound.sort(),
    // Rules keep their order.
    ...await lines("iptables-save", /^-A /),
    ...await lines("ip6tables-save", /^-A /),
  ].join("\n");
}

/**
 * For the user-mode Linux, which has all programs. Its one CPU is slow, and starts of programs delay loops for so long that only
 * lost packets are failures.
 */
export const IPVS: LabMode = {
  name: "ipvs",
  needs: [],
  pace: { perSecond: 20, limitMs: 10_000 },
  rules: ipvsRules,
  // A virtual server without real servers.
  refusal: (_, ip, port) =>
    new RegExp(`^-A -t ${RegExp.escape(`${ip}:${port}`)} -s rr\\n(?!-a -t ${RegExp.escape(ip)})`, "m"),
};

/**
 * Not among {@linkcode LAB_MODES}: without endpoints a client is accepted and closed, not rejected. kproxy itself forwards, with as
 * much CPU as others leave it, so that only refused or lost packets are failures, not slow ones.
 */
export const USERSPACE: LabMode = {
  name: "userspace",
  needs: [],
  pace: { perSecond: 30, limitMs: 10_000 },
  takesTurns: true,
  rules: (netns) => saveAll(netns),
  refusal: () => {
    throw new TypeError("Mode userspace refuses nobody");
  },
};

/** Modes of this release that run on any kernel. */
export const LAB_MODES: readonly LabMode[] = [IPTABLES, NFTABLES].filter(({ name }) =>
  IMPLEMENTED_MODES.includes(name)
);
