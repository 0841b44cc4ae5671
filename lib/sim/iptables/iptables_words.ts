/**
 * Conditions of iptables rules that only strangers write, told by their words, as far as they are certain for the packet.
 *
 * @module
 */
import { compareIps, parseIp } from "../../model/ip.ts";
import type { Walk } from "../packet_walk.ts";

/** What the first packet of a connection has set, among the flags of TCP. */
const FIRST_FLAGS: ReadonlySet<string> = new Set(["SYN"]);
const ALL_FLAGS: readonly string[] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG"];

/** One option, e.g. `! --dports 80,443`. */
interface Option {
  readonly not: boolean;
  readonly name: string;
  readonly values: readonly string[];
}

/**
 * Whether a packet meets a condition, e.g. `-m multiport --dports 80,8000:8099`.
 *
 * @returns undefined if nobody can tell: the words are not known, or look at what the packet does not say
 */
export function wordsHold(words: readonly string[], walk: Walk): boolean | undefined {
  const module = words[0] === "-m" ? words[1] : undefined;
  const options = optionsOf(module === undefined ? words : words.slice(2));
  let holds = true;
  for (const { not, name, values } of options) {
    const found = optionHolds(`${module ?? ""} ${name}`.trim(), values, walk);
    if (found === undefined) return undefined;
    holds &&= found !== not;
  }
  return options.length === 0 ? undefined : holds;
}

function optionsOf(words: readonly string[]): readonly Option[] {
  const options: { not: boolean; name: string; values: string[] }[] = [];
  let not = false;
  for (const word of words) {
    if (word === "!") not = true;
    else if (word.startsWith("--")) {
      options.push({ not, name: word, values: [] });
      not = false;
    } else options.at(-1)?.values.push(word);
  }
  return options;
}

function optionHolds(name: string, values: readonly string[], walk: Walk): boolean | undefined {
  const [first = "", second = ""] = values;
  switch (name) {
    case "multiport --dports":
      return walk.protocol !== "icmp" && first.split(",").some((ports) => portIn(ports, walk.port));
    // What the conntrack match was called before.
    case "state --state":
      return first.split(",").includes(walk.state);
    case "iprange --src-range":
      return ipIn(first, walk.source.text);
    case "iprange --dst-range":
      return ipIn(first, walk.destination.text);
    case "--syn":
      return flagsHold("SYN,RST,ACK,FIN", "SYN", walk);
    case "--tcp-flags":
      return flagsHold(first, second, walk);
    default:
      return undefined;
  }
}

function portIn(ports: string, port: number): boolean {
  const [first = "", last = first] = ports.split(":");
  return port >= Number(first || 0) && port <= Number(last || 65_535);
}

function ipIn(range: string, address: string): boolean | undefined {
  const [first = "", last = first] = range.split("-");
  const [from, to, ip] = [parseIp(first), parseIp(last), parseIp(address)];
  if (from === null || to === null || ip === null) return undefined;
  return from.family === ip.family && compareIps(from, ip) <= 0 && compareIps(ip, to) <= 0;
}

/** Only a connection's first packet has flags that are known. */
function flagsHold(mask: string, set: string, { protocol, state }: Walk): boolean | undefined {
  if (protocol !== "tcp") return false;
  if (state !== "NEW") return undefined;
  const named = (text: string): readonly string[] =>
    text === "ALL" ? ALL_FLAGS : text === "NONE" ? [] : text.split(",");
  const wanted = new Set(named(set));
  return named(mask).every((flag) => wanted.has(flag) === FIRST_FLAGS.has(flag));
}
