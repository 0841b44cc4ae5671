/**
 * Reads what `iptables -S CHAIN` prints, of one chain after the other.
 *
 * @module
 */
import type { Traffic } from "../model/service_traffic.ts";
import type { ListedChain } from "./iptables_listing.ts";

/** One chain of the text. */
export interface NamedChain {
  readonly name: string;
  readonly chain: ListedChain;
}

// `-P INPUT ACCEPT`, `-N KUBE-SERVICES`; with `-v` also `-P INPUT ACCEPT -c 12 3456`.
const HEAD = /^-(?:P (\S+) (\S+)|N (\S+))(?: -c (\d+) (\d+))?\s*$/;
const COUNTED = / -c (\d+) (\d+)(?= |$)/;

/** In the order of the text; with `-v` the counters of each rule stand before its target. */
export function parseListedChains(text: string): readonly NamedChain[] {
  const chains: NamedChain[] = [];
  let rules: string[] = [];
  let counters: (Traffic | null)[] = [];
  let prefix = "";
  for (const line of text.split("\n")) {
    const [, builtin, policy = "-", user, packets = "0", bytes = "0"] = line.startsWith("-A ")
      ? []
      : HEAD.exec(line) ?? [];
    const name = builtin ?? user;
    if (name !== undefined) {
      [rules, counters, prefix] = [[], [], `-A ${name}`];
      chains.push({
        name,
        chain: { policy, packets: Number(packets), bytes: Number(bytes), rules, counters },
      });
    } else if (prefix !== "" && (line === prefix || line.startsWith(`${prefix} `))) {
      const [counted, ofPackets, ofBytes] = countersIn(line);
      const rule = line.slice(prefix.length + 1);
      rules.push(counted === undefined ? rule : withoutCounters(rule));
      counters.push(
        counted === undefined ? null : { packets: Number(ofPackets), bytes: Number(ofBytes) },
      );
    }
  }
  return chains;
}

/** A comment may hold the same words. */
function countersIn(line: string): readonly (string | undefined)[] {
  return COUNTED.exec(line.includes('"') ? line.replaceAll(/"(?:[^"\\]|\\.)*"/g, '""') : line) ?? [];
}

function withoutCounters(rule: string): string {
  const parts = rule.split(/("(?:[^"\\]|\\.)*")/);
  const at = parts.findIndex((part, index) => index % 2 === 0 && COUNTED.test(` ${part}`));
  return parts.map((part, index) => index === at ? ` ${part}`.replace(COUNTED, "").slice(1) : part).join("");
}
