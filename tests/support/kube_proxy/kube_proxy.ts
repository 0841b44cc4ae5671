/**
 * Does to a node what kube-proxy does when it starts and when Services change, in the same order and by the same programs: takes away
 * what it takes for the leftovers of its other modes, then writes its own layout over whatever is there.
 *
 * @module
 */
import { COUNTERS } from "../../../lib/backend/iptables/plan/ruleset.ts";
import { ExecError } from "../../../lib/errors.ts";
import { NfacctCounters } from "../../../lib/kernel/nfacct.ts";
import { FAMILIES, type IpFamily } from "../../../lib/model/objects.ts";
import type { Netns } from "../netns.ts";
import {
  type ChainLayout,
  chainLine,
  IPTABLES_CHAINS,
  iptablesText,
  SERVICE_CHAIN,
} from "./iptables_layout.ts";
import { IPVS_CHAINS, ipvsHoldings, ipvsText } from "./ipvs_layout.ts";
import type { LaidOutNode, LaidOutPort } from "./laid_out.ts";
import { nftablesText, nftWords } from "./nftables_layout.ts";

/** A mode of kube-proxy. */
export type KubeProxyMode = "iptables" | "ipvs" | "nftables";

/** What it serves, by family. */
export type LaidOutPorts = Readonly<Record<IpFamily, readonly LaidOutPort[]>>;

const DEVICE = "kube-ipvs0";
const TOOLS = { IPv4: "iptables", IPv6: "ip6tables" } as const;
const TABLES = ["mangle", "nat", "filter"] as const;
type Table = typeof TABLES[number];

/** One kube-proxy on a node. What it wrote stays when nobody calls it any more, as after its end. */
export class KubeProxy {
  readonly #netns: Netns;
  readonly #nodes: readonly LaidOutNode[];
  readonly mode: KubeProxyMode;
  /** What it served last. */
  #ports: LaidOutPorts | undefined;
  #nfacct: boolean | undefined;

  constructor(netns: Netns, nodes: readonly LaidOutNode[], mode: KubeProxyMode) {
    this.#netns = netns;
    this.#nodes = nodes;
    this.mode = mode;
  }

  /** Starts it: what it does before its first sync, and that. */
  async start(ports: LaidOutPorts): Promise<void> {
    if (this.mode === "nftables") await this.#cleanUpIptables();
    else await this.#cleanUpNftables();
    if (this.mode === "iptables") await this.#sysctl("net.ipv4.conf.all.route_localnet=1");
    if (this.mode === "ipvs") {
      await this.#sysctl("net.ipv4.vs.conntrack=1", "net.ipv4.vs.expire_nodest_conn=1");
      await this.#sysctl("net.ipv4.vs.expire_quiescent_template=1");
    }
    await this.sync(ports);
  }

  /** A full sync of the families in which something changed. */
  async sync(ports: LaidOutPorts): Promise<void> {
    for (const node of this.#nodes) {
      if (JSON.stringify(ports[node.family]) === JSON.stringify(this.#ports?.[node.family])) continue;
      if (this.mode === "iptables") await this.#syncIptables(node, ports[node.family]);
      else if (this.mode === "ipvs") await this.#syncIpvs(node, ports[node.family]);
      else await this.#syncNftables(node, ports[node.family]);
      await this.#forgetFlows(node.family, ports[node.family]);
    }
    this.#ports = ports;
  }

  /** Of UDP, to endpoints that are gone. */
  async #forgetFlows(family: IpFamily, ports: readonly LaidOutPort[]): Promise<void> {
    const udp = (of: readonly LaidOutPort[]): string[] =>
      of.filter(({ protocol }) => protocol === "udp").flatMap(({ endpoints }) =>
        endpoints.map(({ ip }) => ip)
      );
    const kept = new Set(udp(ports));
    for (const ip of udp(this.#ports?.[family] ?? []).filter((ip) => !kept.has(ip))) {
      // It ends with 1 where there are none.
      await this.#netns.exec.run([
        "conntrack",
        "-D",
        "-f",
        family.toLowerCase(),
        "-p",
        "udp",
        "--reply-src",
        ip,
      ]);
    }
  }

  get #isFirst(): boolean {
    return this.#ports === undefined;
  }

  async #syncIptables(node: LaidOutNode, ports: readonly LaidOutPort[]): Promise<void> {
    const saved = await this.#ensureChains(node.family, IPTABLES_CHAINS);
    this.#nfacct ??= await this.#hasCounters();
    await this.#restore(node.family, iptablesText(node, ports, chainsIn(saved, "nat"), this.#nfacct));
  }

  /** Makes the counters that rules add to; false where the kernel or the program is missing. */
  async #hasCounters(): Promise<boolean> {
    try {
      await new NfacctCounters(this.#netns.exec, Object.values(COUNTERS)).ensure();
      const rule = `-A INPUT -m nfacct --nfacct-name ${COUNTERS.invalidDropped}`;
      await this.#netns.run(["iptables-restore", "--noflush", "--test"], {
        stdin: lines(["*filter", rule, "COMMIT"]),
      });
      return true;
    } catch (error) {
      if (error instanceof ExecError) return false;
      throw error;
    }
  }

  async #syncNftables(node: LaidOutNode, ports: readonly LaidOutPort[]): Promise<void> {
    const table = `${nftWords(node).ip} kube-proxy`;
    const known = await this.#netns.exec.run(["nft", "--terse", "list", "table", ...table.split(" ")]);
    const named = (kind: string): string[] =>
      known.stdout.matchAll(new RegExp(`^\\t${kind} (\\S+) \\{$`, "gm")).map(([, name = ""]) => name)
        .toArray();
    const stale = { chains: named("chain"), sets: named("set") };
    await this.#netns.run(["nft", "-f", "-"], { stdin: nftablesText(node, ports, stale, this.#isFirst) });
  }

  /** Each kind of thing in its turn: what the rules of the next one need is there before them. */
  async #syncIpvs(node: LaidOutNode, ports: readonly LaidOutPort[]): Promise<void> {
    const wanted = ipvsHoldings(node, ports);
    await this.#ensureChains(node.family, IPVS_CHAINS);
    if (this.#isFirst) {
      // It may be there already.
      await this.#netns.exec.run(["ip", "link", "add", DEVICE, "type", "dummy"]);
      await this.#netns.run(["ipset", "restore", "-exist"], { stdin: lines(wanted.sets) });
    }
    const bound = await this.#boundAddresses(node.family);
    const { added, removed } = await this.#serverChanges(wanted.servers, node.family);
    await this.#given(["ipvsadm", "-R"], added);
    const missing = wanted.addresses.filter((address) => !bound.includes(address));
    await this.#addresses("add", missing);
    await this.#given(["ipset", "restore", "-exist"], await this.#entryChanges(wanted.entries, wanted.sets));
    await this.#restore(node.family, ipvsText(node, ports));
    await this.#addresses("del", bound.filter((address) => !wanted.addresses.includes(address)));
    await this.#given(["ipvsadm", "-R"], removed);
  }

  /** Makes what is missing of chains and jumps, each jump on top; resolves to what was there, by table. */
  async #ensureChains(family: IpFamily, layout: ChainLayout): Promise<ReadonlyMap<Table, readonly string[]>> {
    const saved = await this.#saved(family);
    const text = TABLES.flatMap((table) => {
      const known = saved.get(table) ?? [];
      const chains = layout.chains[table].filter((chain) =>
        !known.some((line) => line.startsWith(`:${chain} `))
      );
      const jumps = jumpsOf(layout, table).filter(({ from, rule }) => !known.includes(`-A ${from} ${rule}`));
      const missing = [
        ...chains.map(chainLine),
        ...jumps.map(({ from, rule }) => `-I ${from} ${rule}`),
      ];
      return missing.length === 0 ? [] : [`*${table}`, ...missing, "COMMIT"];
    });
    if (text.length > 0) await this.#restore(family, lines(text));
    return saved;
  }

  /** As it begins in mode nftables. The firewall chain is kubelet's, and stays. */
  async #cleanUpIptables(): Promise<void> {
    for (const family of FAMILIES) {
      const saved = await this.#saved(family);
      const text = TABLES.flatMap((table) => {
        const known = saved.get(table) ?? [];
        const chains = chainsIn(saved, table).filter((chain) =>
          chain !== "KUBE-FIREWALL" &&
          (SERVICE_CHAIN.test(chain) || IPTABLES_CHAINS.chains[table].includes(chain))
        );
        const jumps = jumpsOf(IPTABLES_CHAINS, table).filter(({ from, rule }) =>
          !rule.includes("KUBE-FIREWALL") && known.includes(`-A ${from} ${rule}`)
        );
        return [
          `*${table}`,
          ...chains.map(chainLine),
          ...jumps.map(({ from, rule }) => `-D ${from} ${rule}`),
          ...chains.map((chain) => `-X ${chain}`),
          "COMMIT",
        ];
      });
      await this.#restore(family, lines(text));
    }
  }

  async #cleanUpNftables(): Promise<void> {
    // A table that is not there is what it wants; a kernel without tables has none.
    for (const ip of ["ip", "ip6"]) await this.#netns.exec.run(["nft", "delete", "table", ip, "kube-proxy"]);
  }

  async #saved(family: IpFamily): Promise<ReadonlyMap<Table, readonly string[]>> {
    const text = await this.#netns.run([`${TOOLS[family]}-save`]);
    return new Map(TABLES.map((table) => {
      const [, rest = ""] = text.split(`*${table}\n`);
      return [table, rest.split("\nCOMMIT")[0]!.split("\n")];
    }));
  }

  async #restore(family: IpFamily, stdin: string): Promise<void> {
    await this.#netns.run([`${TOOLS[family]}-restore`, "--noflush", "--counters"], { stdin });
  }

  /** What makes the virtual servers of one family those that are wanted, and what takes away the others. */
  async #serverChanges(
    wanted: readonly string[],
    family: IpFamily,
  ): Promise<{ added: string[]; removed: string[] }> {
    const known = (await this.#netns.run(["ipvsadm", "-Sn"])).split("\n").map((line) => line.trim())
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
    return { added: [...added, ...leaving], removed };
  }

  async #entryChanges(wanted: readonly string[], sets: readonly string[]): Promise<string[]> {
    const own = new Set(sets.map((line) => line.split(" ")[1]));
    const known = (await this.#netns.run(["ipset", "save"])).split("\n").filter((line) =>
      line.startsWith("add ") && own.has(line.split(" ")[1])
    );
    return [
      ...known.filter((line) => !wanted.includes(line)).map((line) => line.replace("add ", "del ")),
      ...wanted.filter((line) => !known.includes(line)),
    ];
  }

  async #boundAddresses(family: IpFamily): Promise<string[]> {
    const text = await this.#netns.run([
      "ip",
      "-o",
      family === "IPv4" ? "-4" : "-6",
      "addr",
      "show",
      "dev",
      DEVICE,
    ]);
    return text.matchAll(/ inet6? (\S+)/g).map(([, address = ""]) =>
      address.includes("/") ? address : `${address}/32`
    ).filter((address) => !address.startsWith("fe80:")).toArray();
  }

  async #addresses(verb: "add" | "del", addresses: readonly string[]): Promise<void> {
    await this.#given(
      ["ip", "-batch", "-"],
      addresses.map((address) => `address ${verb} ${address} dev ${DEVICE}`),
    );
  }

  /** Gives lines to a program, if there are any. */
  async #given(argv: readonly string[], all: readonly string[]): Promise<void> {
    if (all.length > 0) await this.#netns.run(argv, { stdin: lines(all) });
  }

  async #sysctl(...settings: readonly string[]): Promise<void> {
    await this.#netns.run(["sysctl", "-q", "-w", ...settings]);
  }
}

function jumpsOf({ jumps }: ChainLayout, table: Table): ChainLayout["jumps"] {
  return jumps.filter((jump) => jump.table === table);
}

function lines(all: readonly string[]): string {
  return all.map((line) => `${line}\n`).join("");
}

function chainsIn(saved: ReadonlyMap<Table, readonly string[]>, table: Table): readonly string[] {
  return (saved.get(table) ?? []).filter((line) => line.startsWith(":")).map((line) =>
    line.slice(1, line.indexOf(" "))
  );
}
