/**
 * What others take away from kproxy's rules, or put beside them, mode by mode.
 *
 * @module
 */
import { saveTable } from "../support/lab_rules.ts";
import type { Netns } from "../support/netns.ts";
import type { ChaosMode } from "./mode.ts";
import type { Random } from "./random.ts";

/** Something of kproxy's that goes; resolves to what went, for people. */
export interface Damage {
  readonly name: string;
  readonly run: (netns: Netns, random: Random) => Promise<string>;
}

/** Something of others that comes for a time; what it resolves to takes it away again and says whether it was still there. */
export interface Foreign {
  readonly name: string;
  readonly come: (netns: Netns, random: Random) => Promise<() => Promise<boolean>>;
}

const TABLES = ["nat", "filter"];
/**
 * Chains of table nat in which others' rules stay: older kubelets have theirs in two of them, and to the canary no packet comes
 * (lib/backend/iptables/README.md, "The drift check").
 */
const NOT_KPROXYS_ALONE = /^:KUBE-(MARK-MASQ|POSTROUTING|PROXY-CANARY) /;

/** One of the lines of a program's output; undefined where there is none. It draws once, whatever there is. */
async function oneOf(lines: Promise<readonly string[]>, random: Random): Promise<string | undefined> {
  const at = random.unit();
  const found = await lines;
  return found[Math.floor(at * found.length)];
}

/** Gone meanwhile: kproxy changes its rules while others do. */
async function tried(netns: Netns, argv: readonly string[], stdin?: string): Promise<boolean> {
  return (await netns.exec.run(argv, stdin === undefined ? {} : { stdin })).code === 0;
}

function iptablesDamages(tool: string): Damage[] {
  const six = tool.replace(/^ip/, "ip6");
  const either = (random: Random): string => random.chance(0.75) ? tool : six;
  const own = async (netns: Netns, program: string, table: string, kind: "-A" | ":"): Promise<string[]> => {
    const lines = await saveTable(netns, program, table);
    return lines.filter((line) => kind === ":" ? /^:KUBE-/.test(line) : /^-A .*KUBE-/.test(line));
  };
  return [
    {
      name: "one rule gone",
      run: async (netns, random) => {
        const [program, table] = [either(random), random.pick(TABLES)];
        const rule = await oneOf(own(netns, program, table, "-A"), random);
        if (rule === undefined) return "none there";
        const stdin = `*${table}\n${rule.replace("-A", "-D")}\nCOMMIT\n`;
        await tried(netns, [`${program}-restore`, "-w", "5", "--noflush"], stdin);
        return `${program} ${table} ${rule}`;
      },
    },
    {
      name: "one chain flushed",
      run: async (netns, random) => {
        const [program, table] = [either(random), random.pick(TABLES)];
        const chain = (await oneOf(own(netns, program, table, ":"), random))?.slice(1).split(" ")[0];
        if (chain === undefined) return "none there";
        await tried(netns, [program, "-w", "5", "-t", table, "-F", chain]);
        return `${program} ${table} ${chain}`;
      },
    },
    {
      name: "one table flushed",
      run: async (netns, random) => {
        const [program, table] = [either(random), random.pick(TABLES)];
        await netns.run([program, "-w", "5", "-t", table, "-F"]);
        return `${program} ${table}`;
      },
    },
    {
      name: "everything gone, chains and all",
      run: async (netns, random) => {
        const program = either(random);
        await netns.run([`${program}-restore`, "-w", "5"], { stdin: "*filter\nCOMMIT\n*nat\nCOMMIT\n" });
        return program;
      },
    },
    {
      name: "a foreign rule in a chain of kproxy's",
      run: async (netns, random) => {
        const chains = async () =>
          (await own(netns, tool, "nat", ":")).filter((line) => !NOT_KPROXYS_ALONE.test(line));
        const chain = (await oneOf(chains(), random))?.slice(1).split(" ")[0];
        if (chain === undefined) return "none there";
        await tried(netns, [tool, "-w", "5", "-t", "nat", "-I", chain, "-s", "203.0.113.7", "-j", "RETURN"]);
        return chain;
      },
    },
  ];
}

function iptablesForeigners(tool: string): Foreign[] {
  const rule = ["INPUT", "-s", "203.0.113.66/32", "-j", "DROP"];
  return [
    {
      name: "a foreign rule",
      come: async (netns) => {
        await netns.run([tool, "-w", "5", "-I", ...rule]);
        return () => tried(netns, [tool, "-w", "5", "-D", ...rule]);
      },
    },
    {
      name: "a foreign jump to a Service's chain",
      come: async (netns, random) => {
        const nat = [tool, "-w", "5", "-t", "nat"];
        const chains = async () =>
          (await saveTable(netns, tool, "nat")).filter((line) => /^:KUBE-(SVC|EXT|SEP)/.test(line));
        const chain = (await oneOf(chains(), random))?.slice(1).split(" ")[0];
        if (chain === undefined) return () => Promise.resolve(true);
        // It can be the only thing that keeps the chain; then it goes first.
        if (!await tried(netns, [...nat, "-N", "FOREIGN"])) return () => Promise.resolve(true);
        await tried(netns, [...nat, "-A", "FOREIGN", "-d", "203.0.113.66/32", "-j", chain]);
        return async () => {
          const wasThere = await tried(netns, [...nat, "-F", "FOREIGN"]);
          return await tried(netns, [...nat, "-X", "FOREIGN"]) && wasThere;
        };
      },
    },
  ];
}

/** `ip` mostly: more is there. */
function nftFamily(random: Random): string {
  return random.chance(0.75) ? "ip" : "ip6";
}

async function nftLines(netns: Netns, family: string): Promise<string[]> {
  const { stdout } = await netns.exec.run(["nft", "-a", "list", "table", family, "kproxy"]);
  return stdout.split("\n");
}

async function nft(netns: Netns, text: string): Promise<boolean> {
  return await tried(netns, ["nft", "-f", "-"], `${text}\n`);
}

/** `kind name` of each block of the table, e.g. `chain services`. */
function blocks(lines: readonly string[], kinds: RegExp): string[] {
  return lines.flatMap((line) =>
    /^\t(?:chain|map|set) \S+ \{/.test(line) ? [line.trim().replace(/ \{.*/, "")] : []
  )
    .filter((block) => kinds.test(block));
}

const NFT_DAMAGES: readonly Damage[] = [
  {
    name: "one rule gone",
    run: async (netns, random) => {
      const family = nftFamily(random);
      let chain = "";
      const rules = (await nftLines(netns, family)).flatMap((line) => {
        chain = /^\tchain (\S+) /.exec(line)?.[1] ?? chain;
        const handle = /^\t\t\S.* # handle (\d+)$/.exec(line)?.[1];
        return handle === undefined ? [] : [`${chain} handle ${handle}`];
      });
      const rule = await oneOf(Promise.resolve(rules), random);
      if (rule !== undefined) await nft(netns, `delete rule ${family} kproxy ${rule}`);
      return `${family} ${rule ?? "none there"}`;
    },
  },
  {
    name: "one chain, map or set flushed",
    run: async (netns, random) => {
      const family = nftFamily(random);
      const block = await oneOf(nftLines(netns, family).then((lines) => blocks(lines, /./)), random);
      if (block !== undefined) {
        await nft(netns, `flush ${block.replace(" ", ` ${family} kproxy `)}`);
      }
      return `${family} ${block ?? "none there"}`;
    },
  },
  {
    name: "one element gone",
    run: async (netns, random) => {
      const family = nftFamily(random);
      const map = await oneOf(nftLines(netns, family).then((lines) => blocks(lines, /^(map|set) /)), random);
      const at = random.unit();
      if (map === undefined) return "none there";
      const { stdout } = await netns.exec.run([
        "nft",
        "list",
        ...map.replace(" ", ` ${family} kproxy `).split(" "),
      ]);
      const text = /elements = \{ ([^}]*) \}/.exec(stdout)?.[1] ?? "";
      const elements = text.split(/,\s+/).filter((element) => element !== "");
      const element = elements[Math.floor(at * elements.length)];
      if (element === undefined) return `${map} is empty`;
      const key = element.replace(/ (comment|timeout|expires|counter) .*?(?= : |$)/g, "").split(" : ")[0];
      await nft(netns, `delete element ${family} kproxy ${map.split(" ")[1]} { ${key} }`);
      return `${family} ${map} ${key}`;
    },
  },
  {
    name: "a table gone",
    run: async (netns, random) => {
      const family = nftFamily(random);
      await nft(netns, `delete table ${family} kproxy`);
      return family;
    },
  },
  {
    name: "everything gone, of all tables",
    run: async (netns) => {
      await nft(netns, "flush ruleset");
      return "";
    },
  },
  {
    name: "a foreign rule in a chain of kproxy's",
    run: async (netns, random) => {
      const family = nftFamily(random);
      const chain = await oneOf(nftLines(netns, family).then((lines) => blocks(lines, /^chain /)), random);
      if (chain === undefined) return "none there";
      await nft(netns, `add rule ${chain.replace("chain ", `${family} kproxy `)} meta mark 0x7777 return`);
      return `${family} ${chain}`;
    },
  },
];

const NFT_FOREIGNERS: readonly Foreign[] = [
  {
    name: "a foreign table",
    come: async (netns) => {
      await nft(
        netns,
        "table inet foreign { chain input { type filter hook input priority filter; ip saddr 203.0.113.66 drop; }; }",
      );
      return () => nft(netns, "delete table inet foreign");
    },
  },
  {
    name: "a foreign jump to a Service's chain",
    come: async (netns, random) => {
      const chains = nftLines(netns, "ip").then((lines) =>
        blocks(lines, /^chain (service|endpoint|firewall|external)/)
      );
      const chain = await oneOf(chains, random);
      if (chain === undefined) return () => Promise.resolve(true);
      await nft(
        netns,
        `add chain ip kproxy foreign\nadd rule ip kproxy foreign ip daddr 203.0.113.66 goto ${
          chain.split(" ")[1]
        }`,
      );
      return async () => {
        // It is in kproxy's table, where kproxy may clear up.
        await nft(netns, "flush chain ip kproxy foreign");
        await nft(netns, "delete chain ip kproxy foreign");
        return true;
      };
    },
  },
];

const IPVS_DAMAGES: readonly Damage[] = [
  {
    name: "all virtual servers gone",
    run: async (netns) => {
      await netns.run(["ipvsadm", "-C"]);
      return "";
    },
  },
  {
    name: "one virtual server gone",
    run: async (netns, random) => {
      const server = await oneOf(ipvsLines(netns, "-A"), random);
      if (server !== undefined) await tried(netns, ["ipvsadm", "-D", ...server.split(" ").slice(1, 3)]);
      return server ?? "none there";
    },
  },
  {
    name: "one real server gone",
    run: async (netns, random) => {
      const server = await oneOf(ipvsLines(netns, "-a"), random);
      if (server !== undefined) await tried(netns, ["ipvsadm", "-d", ...server.split(" ").slice(1, 5)]);
      return server ?? "none there";
    },
  },
  {
    name: "one set flushed",
    run: async (netns, random) => {
      const names = netns.run(["ipset", "list", "-name"]).then((text) => text.split("\n").filter(Boolean));
      const name = await oneOf(names, random);
      if (name !== undefined) await tried(netns, ["ipset", "flush", name]);
      return name ?? "none there";
    },
  },
  {
    name: "one entry gone",
    run: async (netns, random) => {
      const entries = netns.run(["ipset", "save"]).then((text) =>
        text.split("\n").filter((line) => /^add /.test(line))
      );
      const [, name = "", entry = ""] = (await oneOf(entries, random))?.split(" ") ?? [];
      if (name !== "") await tried(netns, ["ipset", "del", name, entry]);
      return `${name} ${entry}`;
    },
  },
  {
    name: "the device gone",
    run: async (netns) => {
      await tried(netns, ["ip", "link", "del", "kube-ipvs0"]);
      return "";
    },
  },
  {
    name: "one address gone",
    run: async (netns, random) => {
      const found = netns.run(["ip", "-o", "address", "show", "dev", "kube-ipvs0"])
        .then((text) => [...text.matchAll(/inet6? (\S+) scope global/g)].map(([, address = ""]) => address))
        .catch((): string[] => []);
      const address = await oneOf(found, random);
      if (address !== undefined) await tried(netns, ["ip", "address", "del", address, "dev", "kube-ipvs0"]);
      return address ?? "none there";
    },
  },
];

async function ipvsLines(netns: Netns, kind: "-A" | "-a"): Promise<string[]> {
  return (await netns.run(["ipvsadm", "-Sn"])).split("\n").filter((line) => line.startsWith(`${kind} `));
}

const IPVS_FOREIGNERS: readonly Foreign[] = [
  {
    name: "a foreign virtual server",
    come: async (netns) => {
      await netns.run(["ipvsadm", "-A", "-t", "198.51.100.250:8443", "-s", "wlc"]);
      return () => tried(netns, ["ipvsadm", "-D", "-t", "198.51.100.250:8443"]);
    },
  },
];

/** Of this mode. */
export function damagesOf({ proxyMode, iptables }: ChaosMode): readonly Damage[] {
  if (proxyMode === "nftables") return NFT_DAMAGES;
  const rules = iptablesDamages(iptables);
  return proxyMode === "iptables" ? rules : [...IPVS_DAMAGES, ...rules];
}

/** Of this mode. */
export function foreignersOf({ proxyMode, iptables }: ChaosMode): readonly Foreign[] {
  if (proxyMode === "nftables") return NFT_FOREIGNERS;
  const [rule, ...jumps] = iptablesForeigners(iptables);
  return proxyMode === "iptables" ? [rule!, ...jumps] : [rule!, ...IPVS_FOREIGNERS];
}
