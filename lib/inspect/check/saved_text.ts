/**
 * Rules as written → as `iptables-save` prints them, so that a node's 300,000 can be compared as they stand in its text.
 *
 * @module
 */
import type { IpFamily } from "../../model/objects.ts";
import { optionsOf, PROBABILITY_STEPS, QUOTED, withoutQuoted } from "./rule_texts.ts";

/** In the order in which they are printed, before everything else. */
const FRONT = ["-s", "-d", "-i", "-o", "-p"];
const COMMENT = "--comment ";
const PROBABILITY = "--probability ";

/**
 * A rule of ours as it is printed: addresses, interfaces and the protocol first, then the rest in the order written. Where a program
 * prints it otherwise the text is equal to nothing, and slower ways of comparing decide; two rules never have the same.
 */
export function savedText(rule: string, family: IpFamily): string {
  const cut = withoutQuoted(rule);
  if (cut === null) return rule;
  const front: string[] = [];
  const rest: string[] = [];
  for (const option of optionsOf(cut.words)) {
    const name = option.startsWith("! ") ? option.slice(2, 4) : option.slice(0, 2);
    const rank = option.length > 3 && !option.startsWith("--") ? FRONT.indexOf(name) : -1;
    if (rank < 0) rest.push(printed(option));
    else front[rank] = rank < 2 ? withPrefixLength(option, family) : option;
  }
  const text = [...front.filter((option) => option !== undefined), ...rest].join(" ");
  return withRecent(text, family).replace(QUOTED, () => `"${cut.quoted}"`);
}

function withPrefixLength(option: string, family: IpFamily): string {
  return option.includes("/") ? option : `${option}/${family === "IPv4" ? 32 : 128}`;
}

/** As they are written for affinity. */
const RECENT_OPTIONS = /-m recent --name (\S+)((?: --(?:set|rcheck|reap|seconds \d+))+)/;

/** The list's name behind what is done with it, and the defaults named. */
function withRecent(text: string, family: IpFamily): string {
  const mask = family === "IPv4" ? "255.255.255.255" : "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
  return text.replace(
    RECENT_OPTIONS,
    (_, name: string, doing: string) => `-m recent${doing} --name ${name} --mask ${mask} --rsource`,
  );
}

function printed(option: string): string {
  if (option.startsWith(COMMENT)) {
    const value = option.slice(COMMENT.length);
    return value === QUOTED || !/[^\w-]/.test(value) ? option : `${COMMENT}"${value}"`;
  }
  if (!option.startsWith(PROBABILITY)) return option;
  const steps = Math.round(Number(option.slice(PROBABILITY.length)) * PROBABILITY_STEPS);
  return PROBABILITY + (steps / PROBABILITY_STEPS).toFixed(11);
}
