/**
 * Does to a node what kube-proxy does when it starts and when Services change: takes away what its other modes left, then writes what
 * kube-proxy 1.36.2 wrote for the same Services (`tests/recorded/takeover.*.txt`) over whatever is there.
 *
 * @module
 */
import { COUNTERS } from "../../../lib/backend/iptables/plan/ruleset.ts";
import { ExecError } from "../../../lib/errors.ts";
import { NfacctCounters } from "../../../lib/kernel/nfacct.ts";
import { FAMILIES, type IpFamily } from "../../../lib/model/objects.ts";
import { recordedSections } from "../../recorded/recorded.ts";
import { saveTables, tablesIn } from "../lab_rules.ts";
import type { Netns } from "../netns.ts";

/** A mode of kube-proxy. */
export type KubeProxyMode = "iptables" | "ipvs" | "nftables";

/** Which Services it serves: those of a `Migration` before or after the Services change. */
export type RecordedState = "before" | "after";

/** What it holds: `iptables` and `ip6tables`, `nft`, `ipvs`, `ipset`, `addresses` → lines of the tool's listing. */
export type Holdings = ReadonlyMap<string, readonly string[]>;

const DEVICE = "kube-ipvs0";
const TOOLS = { IPv4: "iptables", IPv6: "ip6tables" } as const;
/** Chains of Services begin so. */
const SERVICE_CHAIN = /^KUBE-(?:SVC|SVL|EXT|FW|SEP)-/;

/** Where that is kept. */
export function recordedPath(mode: KubeProxyMode): string {
  return new URL(`../../recorded/${recordedName(mode)}`, import.meta.url).pathname;
}

function recordedName(mode: KubeProxyMode): string {
  return `takeover.${mode}.kube-proxy-1.36.2.txt`;
}

/** What kube-proxy held. @throws {Error} if it was not recorded */
export async function recordedHoldings(mode: KubeProxyMode, state: RecordedState): Promise<Holdings> {
  const sections = await recordedSections(recordedName(mode));
  return new Map(
    [...sections].filter(([name]) => name.startsWith(`${state} `)).map(([name, lines]) =>
      [name.slice(state.length + 1), lines] as const
    ),
  );
}

function chainsIn(lines: readonly string[]): string[] {
  return lines.flatMap((line) => /^:(KUBE-\S+) /.exec(line)?.[1] ?? []);
}

/** Rules that lead from the kernel's chains to kube-proxy's. */
function jumpsIn(lines: readonly string[]): string[] {
  return lines.filter((line) => /^-A (?!KUBE-)/.test(line));
}

/** One kube-proxy on a node. What it wrote stays when it is not called any more, as after its end. */
export class KubeProxy {
  #nfacct: boolean | undefined;

  constructor(readonly netns: Netns, readonly mode: KubeProxyMode) {}

  /** Starts it: what it does before its first sync, and that. */
  async start(state: RecordedState): Promise<void> {
    if (this.mode === "nftables") await this.#cleanUpIptables(state);
    else {
      // A table that is not there is what it wants; a kernel without tables has none.
      for (const ip of ["ip", "ip6"]) await this.netns.exec.run(["nft", "delete", "table", ip, "kube-proxy"]);
    }
    const settings = {
      iptables: ["net.ipv4.conf.all.route_localnet=1"],
      nftables: [],
      ipvs: ["conntrack", "expire_nodest_conn", "expire_quiescent_template"].map((name) =>
        `net.ipv4.vs.${name}=1`
      ),
    }[this.mode];
    if (settings.length > 0) await this.netns.run(["sysctl", "-q", "-w", ...settings]);
    await this.sync(state);
  }

  /** A full sync of both families. */
  async sync(state: RecordedState): Promise<void> {
    const held = await recordedHoldings(this.mode, state);
    if (this.mode === "nftables") {
      const anew = ["ip", "ip6"].flatMap((ip) => [
        `add table ${ip} kube-proxy`,
        `delete table ${ip} kube-proxy`,
      ]);
      await this.#given(["nft", "-f", "-"], [...anew, ...held.get("nft") ?? []]);
      return;
    }
    if (this.mode === "iptables") this.#nfacct ??= await this.#hasCounters();
    for (const family of FAMILIES) {
      const rules = (): Promise<void> => this.#writeRules(family, held.get(TOOLS[family]) ?? []);
      await (this.mode === "iptables" ? rules() : this.#syncIpvs(family, held, rules));
    }
  }

  /** Writes what `iptables-save` listed: own chains anew, jumps that are missing on top; chains of Services that are gone go. */
  async #writeRules(family: IpFamily, recorded: readonly string[]): Promise<void> {
    const saved = new Map(await saveTables(this.netns, TOOLS[family]));
    const text = tablesIn(recorded.join("\n")).flatMap(([table, lines]) => {
      const known = saved.get(table) ?? [];
      const own = chainsIn(lines);
      // Mode ipvs leaves those of mode iptables to a cleanup.
      const stale = this.mode !== "iptables"
        ? []
        : chainsIn(known).filter((chain) => SERVICE_CHAIN.test(chain) && !own.includes(chain));
      const missing = jumpsIn(lines).filter((line) => !known.includes(line)).toReversed();
      return [
        `*${table}`,
        ...[...own, ...stale].map((chain) => `:${chain} - [0:0]`),
        ...missing.map((line) => line.replace(/^-A/, "-I")),
        ...lines.filter((line) => line.startsWith("-A KUBE-")).flatMap((line) => this.#counted(line)),
        ...stale.map((chain) => `-X ${chain}`),
        "COMMIT",
      ];
    });
    await this.#given([`${TOOLS[family]}-restore`, "--noflush"], text);
  }

  /** A rule as kube-proxy writes it where the kernel may have no counters of nfacct. */
  #counted(line: string): readonly string[] {
    if (this.#nfacct === true || !line.includes(" -m nfacct ")) return [line];
    return line.includes(COUNTERS.invalidDropped) ? [line.replace(/ -m nfacct --nfacct-name +\S+/, "")] : [];
  }

  /** Makes the counters that rules add to; false where the kernel or the program is missing. */
  async #hasCounters(): Promise<boolean> {
    try {
      await new NfacctCounters(this.netns.exec, Object.values(COUNTERS)).ensure();
      const rule = `-A INPUT -m nfacct --nfacct-name ${COUNTERS.invalidDropped}`;
      await this.#given(["iptables-restore", "--noflush", "--test"], ["*filter", rule, "COMMIT"]);
      return true;
    } catch (error) {
      if (error instanceof ExecError) return false;
      throw error;
    }
  }

  /** Each kind of thing in its turn: what the rules need is there before them. */
  async #syncIpvs(family: IpFamily, held: Holdings, rules: () => Promise<void>): Promise<void> {
    const isSix = family === "IPv6";
    const ofFamily = (section: string, mark: string): string[] =>
      (held.get(section) ?? []).filter((line) => line.includes(mark) === isSix);
    // It may be there already.
    await this.netns.exec.run(["ip", "link", "add", DEVICE, "type", "dummy"]);
    const sets = ofFamily("ipset", " KUBE-6-");
    const entries = sets.filter((line) => line.startsWith("add "));
    const creates = sets.filter((line) => line.startsWith("create "));
    await this.#given(["ipset", "restore", "-exist"], creates);
    const { added, removed } = await this.#serverChanges(ofFamily("ipvs", " ["), family);
    await this.#given(["ipvsadm", "-R"], added);
    const bound = await this.#boundAddresses(family);
    const addresses = ofFamily("addresses", "inet6 ").map((line) => line.split(" ")[1]!);
    await this.#addresses("add", addresses.filter((address) => !bound.includes(address)));
    await this.#given(["ipset", "restore", "-exist"], await this.#entryChanges(entries, creates));
    await rules();
    await this.#addresses("del", bound.filter((address) => !addresses.includes(address)));
    await this.#given(["ipvsadm", "-R"], removed);
  }

  /** As it begins in mode nftables. The firewall chain is the kubelet's, and stays. */
  async #cleanUpIptables(state: RecordedState): Promise<void> {
    const recorded = await recordedHoldings("iptables", state);
    for (const tool of Object.values(TOOLS)) {
      const saved = new Map(await saveTables(this.netns, tool));
      const text = tablesIn((recorded.get(tool) ?? []).join("\n")).flatMap(([table, lines]) => {
        const known = saved.get(table) ?? [];
        const own = chainsIn(lines);
        const chains = chainsIn(known).filter((chain) =>
          chain !== "KUBE-FIREWALL" && (SERVICE_CHAIN.test(chain) || own.includes(chain))
        );
        const jumps = jumpsIn(lines).filter((line) =>
          !line.includes("KUBE-FIREWALL") && known.includes(line)
        );
        return [
          `*${table}`,
          ...chains.map((chain) => `:${chain} - [0:0]`),
          ...jumps.map((line) => line.replace(/^-A/, "-D")),
          ...chains.map((chain) => `-X ${chain}`),
          "COMMIT",
        ];
      });
      await this.#given([`${tool}-restore`, "--noflush"], text);
    }
  }

  /** What makes the virtual servers of one family those that are wanted, and what takes away the others. */
  async #serverChanges(
    wanted: readonly string[],
    family: IpFamily,
  ): Promise<{ added: string[]; removed: string[] }> {
    const known = (await this.netns.run(["ipvsadm", "-Sn"])).split("\n").map((line) => line.trim())
      .filter((line) => line !== "" && line.includes(" [") === (family === "IPv6"));
    const server = (line: string): string => line.split(" ").slice(1, 3).join(" ");
    const real = (line: string): string => line.replace(/ -w \d+$/, "");
    const isWanted = new Set(wanted.map(server));
    const added = wanted.filter((line) => !known.includes(line)).map((line) =>
      // One that was asked to leave comes back.
      known.some((other) => real(other) === real(line)) ? line.replace("-a ", "-e ") : line
    );
    const leaving = known.filter((line) =>
      line.startsWith("-a ") && isWanted.has(server(line)) &&
      !wanted.some((other) => real(other) === real(line))
    ).map((line) =>
      line.startsWith("-a -t ")
        ? real(line).replace("-a ", "-e ") + " -w 0"
        : line.replace("-a ", "-d ").replace(/ -m -w.*/, "")
    );
    const removed = known.filter((line) => line.startsWith("-A ") && !isWanted.has(server(line)))
      .map((line) => `-D ${server(line)}`);
    return { added: [...added.toSorted(), ...leaving], removed };
  }

  async #entryChanges(wanted: readonly string[], creates: readonly string[]): Promise<string[]> {
    const own = new Set(creates.map((line) => line.split(" ")[1]));
    const known = (await this.netns.run(["ipset", "save"])).split("\n").filter((line) =>
      line.startsWith("add ") && own.has(line.split(" ")[1])
    );
    return [
      ...known.filter((line) => !wanted.includes(line)).map((line) => line.replace("add ", "del ")),
      ...wanted.filter((line) => !known.includes(line)),
    ];
  }

  async #boundAddresses(family: IpFamily): Promise<string[]> {
    const flag = family === "IPv4" ? "-4" : "-6";
    const text = await this.netns.run(["ip", "-o", flag, "addr", "show", "dev", DEVICE]);
    return text.matchAll(/ inet6? (\S+)/g).map(([, address = ""]) =>
      address.includes("/") ? address : `${address}/32`
    ).filter((address) => !address.startsWith("fe80:")).toArray();
  }

  async #addresses(verb: "add" | "del", addresses: readonly string[]): Promise<void> {
    const all = addresses.map((address) => `address ${verb} ${address} dev ${DEVICE}`);
    await this.#given(["ip", "-batch", "-"], all);
  }

  /** Gives lines to a program, if there are any. */
  async #given(argv: readonly string[], all: readonly string[]): Promise<void> {
    if (all.length > 0) await this.netns.run(argv, { stdin: all.map((line) => `${line}\n`).join("") });
  }
}
