/**
 * Judges chains of others that see packets before, or after, those of kproxy: tables of nftables, and the chains of iptables.
 *
 * @module
 */
import type { ProxyMode } from "../../../config/types.ts";
import type { BaseChain } from "../../../netfilter/nft_listing.ts";
import { IPTABLES_TABLES } from "../../../netfilter/nft_listing.ts";
import { type Finding, ok, warning } from "../finding.ts";
import type { KernelChain } from "../read/variant.ts";
import { few } from "../../../text/words.ts";

const CHECK = "rules of others";

const OWN_TABLES: readonly string[] = ["kproxy", "kproxy-next"];
/** Destinations are translated from here on. */
const DSTNAT_PRIORITY = -100;
/** Tables of known service proxies are judged by their names. */
const PROXY_TABLES: readonly string[] = ["kube-proxy"];

/** True for a chain of neither a service proxy nor iptables. */
export function isForeign({ family, table }: BaseChain): boolean {
  // What is in these is judged as iptables' rules.
  const isIptables = ["ip", "ip6"].includes(family) && IPTABLES_TABLES.has(table);
  return !isIptables && !(OWN_TABLES.includes(table) || PROXY_TABLES.includes(table));
}

function nameOf({ family, table, name, hook, priority }: BaseChain): string {
  return `${family} ${table} ${name} (${hook}, priority ${priority})`;
}

/** What hangs on hooks of the kernel beside kproxy. */
export function judgeBaseChains(chains: readonly BaseChain[]): readonly Finding[] {
  const foreign = chains.filter(isForeign).filter(({ family }) => ["ip", "ip6", "inet"].includes(family));
  const findings: Finding[] = [];
  const nat = foreign.filter(({ type, hook, priority }) =>
    type === "nat" && (hook === "prerouting" || hook === "output") && priority <= DSTNAT_PRIORITY
  );
  if (nat.length > 0) {
    findings.push(
      warning(
        CHECK,
        `${few(nat.map(nameOf))} may translate a destination before kproxy does, which then sees no Service`,
        `look at it: nft list table ${nat[0]?.family} ${nat[0]?.table}`,
      ),
    );
  }
  const dropping = foreign.filter(({ hook, policy }) =>
    policy === "drop" && HOOKS_OF_SERVICES.includes(hook)
  );
  if (dropping.length > 0) {
    const [first] = dropping;
    findings.push(
      warning(
        CHECK,
        `${
          few(dropping.map(nameOf))
        } drops what its own rules do not accept: kproxy's accept does not count there`,
        `accept the pod network and node ports in it, or: ` +
          `nft 'chain ${first?.family} ${first?.table} ${first?.name} { policy accept ; }'`,
      ),
    );
  }
  const early = foreign.filter((chain) => !nat.includes(chain) && !dropping.includes(chain)).filter((chain) =>
    chain.hook === "prerouting" && chain.priority < DSTNAT_PRIORITY
  );
  if (early.length > 0) findings.push(ok(CHECK, `seen before kproxy: ${few(early.map(nameOf))}`));
  if (findings.length === 0) findings.push(ok(CHECK, "no table of nftables is in front of kproxy's rules"));
  return findings;
}

/** Rules that end what kproxy's own have let pass, as `kproxy trace` shows for one packet. */
export function judgeForeignEnds(places: readonly string[]): readonly Finding[] {
  if (places.length === 0) return [];
  return [
    warning(
      CHECK,
      `a rule of others ends packets between pods, whatever kproxy's own rules say: ${few(places)}`,
      "accept the pod network there; kproxy trace POD-IP SERVICE shows the way of one packet",
    ),
  ];
}

const HOOKS_OF_SERVICES: readonly string[] = ["prerouting", "forward", "output", "postrouting"];

/** What a chain FORWARD that drops means in each mode. */
const FORWARD_DROPS: Readonly<Partial<Record<ProxyMode, string>>> = {
  iptables: "kproxy lets packets of Services through, and no others between pods",
  ipvs: "packets of Services do not come through it, all others between pods do",
  nftables: "packets of Services are dropped, too, unless a rule of that chain accepts them",
};

/** The chain FORWARD of iptables: its policy, and rules before kproxy's that drop everything. */
export function judgeForward(chains: readonly KernelChain[], mode: ProxyMode): readonly Finding[] {
  const tool = (chain: KernelChain): string => chain.family === "IPv4" ? "iptables" : "ip6tables";
  return chains.flatMap((chain): Finding[] => {
    const { family, lines } = chain;
    const findings: Finding[] = [];
    if (lines.some((line) => /^-P FORWARD (DROP|REJECT)/.test(line))) {
      findings.push(
        warning(
          CHECK,
          `${family} chain FORWARD drops what no rule accepts: ${
            FORWARD_DROPS[mode] ?? "packets between pods are dropped"
          }`,
          `${tool(chain)} -P FORWARD ACCEPT, or accept the pod network there`,
        ),
      );
    }
    const dropAll = firstDrop(lines);
    if (dropAll !== null) {
      findings.push(
        warning(
          CHECK,
          `a rule in ${family} chain FORWARD drops everything that comes to it: ${dropAll}`,
          `${tool(chain)} ${dropAll.replace("-A ", "-D ")}`,
        ),
      );
    }
    return findings;
  });
}

/** A rule without conditions that ends packets in front of our own jump; behind it, Services have passed. */
function firstDrop(lines: readonly string[]): string | null {
  for (const line of lines.map(withoutCounters)) {
    if (/ -j KUBE-FORWARD\b/.test(line)) return null;
    if (/^-A FORWARD (?:-m comment --comment (?:"[^"]*"|\S+) )?-j (DROP|REJECT)\b/.test(line)) return line;
  }
  return null;
}

function withoutCounters(line: string): string {
  return line.replace(/ -c \d+ \d+/, "");
}
