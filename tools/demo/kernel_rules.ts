/**
 * What the node's kernel holds: its rules as iptables-save tells them, and the moment when they change.
 *
 * @module
 */
import { findProgram } from "../setup.ts";
import type { Child } from "./child.ts";
import { runProgram, type World } from "./world.ts";

const POLL_MS = 10;

/** The two families of rules. */
export type IpFamily = "IPv4" | "IPv6";

/** The families this machine has iptables for; IPv4 is needed. */
export async function familiesOf(world: World): Promise<IpFamily[]> {
  await world.run("node", ["iptables-save"]);
  const { success } = await new Deno.Command("ip", {
    args: ["netns", "exec", world.netns("node"), "ip6tables-save"],
    stdin: "null",
    stdout: "null",
    stderr: "null",
  }).output();
  return success ? ["IPv4", "IPv6"] : ["IPv4"];
}

/** All chains and rules but the empty built-in chains, each with its table before it. */
export async function savedRules(world: World, family: IpFamily): Promise<string[]> {
  const text = await world.run("node", [family === "IPv4" ? "iptables-save" : "ip6tables-save"]);
  let table = "";
  const lines: string[] = [];
  for (const line of text.split("\n")) {
    if (line.startsWith("*")) table = line.slice(1);
    if (line.startsWith("-A ") || / - \[/.test(line)) {
      lines.push(`${table} ${line.replace(/ \[\d+:\d+\]$/, "")}`);
    }
  }
  return lines;
}

/** One endpoint in the kernel. */
export interface EndpointRule {
  readonly chain: string;
  /** Connections sent there so far. */
  readonly packets: number;
}

/** The DNAT rules by the address they lead to (IP:port). */
export async function endpointRules(world: World): Promise<ReadonlyMap<string, EndpointRule>> {
  const text = await world.run("node", ["iptables-save", "-c", "-t", "nat"]);
  const found = text.matchAll(/^\[(\d+):\d+\] -A (KUBE-SEP-\S+) .*--to-destination (\S+)/gm);
  return new Map(
    [...found].map(([, packets, chain = "", to = ""]) => [to, { chain, packets: Number(packets) }]),
  );
}

/** The chain to which a chain of the nat table sends what matches `words`, as iptables-save writes them. */
export async function jumpOf(world: World, chain: string, words: string): Promise<string> {
  const lines = (await world.run("node", ["iptables-save", "-t", "nat"])).split("\n");
  const rule = lines.find((line) => line.startsWith(`-A ${chain} `) && line.includes(` ${words} `));
  return / -j (\S+)/.exec(rule ?? "")?.[1] ?? "(no rule)";
}

/** Tells when rules change. Times are milliseconds since 1970. */
export interface KernelWatch {
  /** How it knows, in the words of the demo. */
  readonly method: string;
  /** Resolves with the time at which a rule for this IP was first seen. */
  whenAdded(ip: string): Promise<number>;
  /** Resolves with the time at which a chain was seen to go. */
  whenGone(chain: string): Promise<number>;
}

/** The kernel's own events where the rules are nftables', frequent looks otherwise. */
export async function watchKernel(world: World, variant: "nft" | "legacy"): Promise<KernelWatch> {
  if (variant === "nft" && findProgram("nft") !== undefined) return await NftEvents.start(world);
  return polling(world);
}

/** The variant of iptables that is this system's default. */
export async function defaultVariant(): Promise<"nft" | "legacy"> {
  return /nf_tables/.test(await runProgram(["iptables", "--version"])) ? "nft" : "legacy";
}

interface Wanted {
  readonly matches: (event: string) => boolean;
  readonly seen: (atMs: number) => void;
}

class NftEvents implements KernelWatch {
  readonly method = "nft monitor";
  readonly #wanted = new Set<Wanted>();

  static async start(world: World): Promise<NftEvents> {
    const events = new NftEvents();
    const child: Child = world.start("node", {
      name: "nft monitor",
      argv: ["nft", "monitor"],
      onLine: (line) => events.#take(line),
    });
    // It says nothing until something happens, so something is made to happen until it does.
    let listening = false;
    const heard = events.#when((event) => event.includes("kpdemo_probe")).then(() => {
      listening = true;
    });
    while (!listening) {
      await world.run("node", ["nft", "add table ip kpdemo_probe; delete table ip kpdemo_probe"]);
      await world.within(`events of ${child.name}`, Promise.race([heard, world.sleep(20)]));
    }
    return events;
  }

  whenAdded(ip: string): Promise<number> {
    return this.#when((event) => event.startsWith("add rule ") && event.split(/[ :]/).includes(ip));
  }

  whenGone(chain: string): Promise<number> {
    return this.#when((event) => event.startsWith("delete chain ") && event.split(" ").includes(chain));
  }

  #when(matches: (event: string) => boolean): Promise<number> {
    return new Promise((resolve) => {
      this.#wanted.add({ matches, seen: resolve });
    });
  }

  #take(event: string): void {
    const atMs = Date.now();
    for (const wanted of this.#wanted) {
      if (!wanted.matches(event)) continue;
      this.#wanted.delete(wanted);
      wanted.seen(atMs);
    }
  }
}

function polling(world: World): KernelWatch {
  const look = async (matches: (saved: string) => boolean): Promise<number> => {
    while (!matches(await world.run("node", ["iptables-save", "-t", "nat"]))) await world.sleep(POLL_MS);
    return Date.now();
  };
  const until = (matches: (saved: string) => boolean): Promise<number> => {
    const seen = look(matches);
    // Where the demo ends before anyone has asked for the time, that is nobody's failure.
    seen.catch(() => Date.now());
    return seen;
  };
  return {
    method: `iptables-save, every ${POLL_MS} ms`,
    whenAdded: (ip) => until((saved) => saved.includes(`--to-destination ${ip}:`)),
    whenGone: (chain) => until((saved) => !saved.split(/[ \n]/).includes(`:${chain}`)),
  };
}
