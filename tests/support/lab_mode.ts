/**
 * The proxy modes that tests with real packets run in, and how each one's rules are looked at.
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

/** A mode as the labs see it. */
export interface LabMode {
  readonly name: "iptables" | "nftables" | "ipvs" | "userspace";
  /** Beside what every lab needs. */
  readonly needs: readonly Need[];
  /** Of connect loops; their usual one unless said. */
  readonly pace?: LoopPace;
  /** Endpoints take turns, so that of clients that are in step with one another each may get one of its own. */
  readonly takesTurns?: true;
  /** All rules of both families as text: equal if and only if the rules are. */
  rules(netns: Netns): Promise<string>;
  /** What its rules say of a Service port without endpoints, which refuses. */
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

/** The names of all tables, a line each, sorted. */
export async function nftTableNames(netns: Netns): Promise<string> {
  return (await netns.run(["nft", "list", "tables"])).trim().split("\n").sort().join("\n");
}

/** Without what the clock writes and without the order of chains, which is that of their making. */
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
 * Servers, sets, addresses and rules, each kind sorted. Real servers on their way out are left out: they go by themselves, with the
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
    // Their order counts.
    ...await lines("iptables-save", /^-A /),
    ...await lines("ip6tables-save", /^-A /),
  ].join("\n");
}

/**
 * For the user-mode Linux, which has all programs. Its one CPU is slow, and starts of programs keep loops waiting for so long that only
 * lost packets tell a failure.
 */
export const IPVS: LabMode = {
  name: "ipvs",
  needs: [],
  pace: { perSecond: 20, limitMs: 10_000 },
  rules: ipvsRules,
  // A virtual server without real ones.
  refusal: (_, ip, port) =>
    new RegExp(`^-A -t ${RegExp.escape(`${ip}:${port}`)} -s rr\\n(?!-a -t ${RegExp.escape(ip)})`, "m"),
};

/**
 * Not among {@linkcode LAB_MODES}: who finds no endpoint there is let in and closed, not refused. Kproxy itself forwards, with as much of
 * a processor as others leave it, so that not time but only what is refused or lost tells a failure.
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

/** The modes of this release among those that run on any kernel. */
export const LAB_MODES: readonly LabMode[] = [IPTABLES, NFTABLES].filter(({ name }) =>
  IMPLEMENTED_MODES.includes(name)
);
