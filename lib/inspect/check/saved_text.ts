/**
 * Rules as written → as `iptables-save` prints them, so that a node's 300,000 can be compared as they stand in its text.
 *
 * @module
 */
import type { IpFamily } from "../../model/objects.ts";

/** In the order in which they are printed, before everything else. */
const FRONT = ["-s", "-d", "-i", "-o", "-p"];
/** The kernel keeps 31 bits of a probability. */
const STEPS = 2 ** 31;
/** Stands for the quoted word; blanks and quotes are in no other. */
const QUOTED = "\u0000";
const COMMENT = "--comment ";
const PROBABILITY = "--probability ";

/**
 * A rule of ours as it is printed: addresses, interfaces and the protocol first, then the rest in the order written. Where a program
 * prints it otherwise the text is equal to nothing, and slower ways of comparing decide; two rules never have the same.
 */
export function savedText(rule: string, family: IpFamily): string {
  const quote = rule.indexOf('"');
  const end = quote < 0 ? -1 : rule.indexOf('"', quote + 1);
  // More than one quoted word, or quotes within: ours are not written like that.
  if (quote >= 0 && (end < 0 || rule.includes('"', end + 1) || rule.includes("\\"))) return rule;
  const words = quote < 0 ? rule : rule.slice(0, quote) + QUOTED + rule.slice(end + 1);
  const front: string[] = [];
  const rest: string[] = [];
  for (const option of optionsOf(words)) {
    const name = option.startsWith("! ") ? option.slice(2, 4) : option.slice(0, 2);
    const rank = option.length > 3 && !option.startsWith("--") ? FRONT.indexOf(name) : -1;
    if (rank < 0) rest.push(printed(option));
    else {front[rank] = rank < 2 && !option.includes("/")
        ? `${option}/${family === "IPv4" ? 32 : 128}`
        : option;}
  }
  const text = [...front.filter((option) => option !== undefined), ...rest].join(" ");
  const whole = text.includes(RECENT) ? withRecent(text, family) : text;
  return quote < 0 ? whole : whole.replace(QUOTED, () => rule.slice(quote, end + 1));
}

const RECENT = "-m recent ";
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

/** Each with its values, and with the `!` before it. */
function optionsOf(words: string): readonly string[] {
  const options: string[] = [];
  for (const word of words.split(" ")) {
    const last = options.length - 1;
    const isValue = last >= 0 && ((!word.startsWith("-") && word !== "!") || options[last] === "!");
    if (isValue) options[last] += ` ${word}`;
    else options.push(word);
  }
  return options;
}

function printed(option: string): string {
  if (option.startsWith(COMMENT)) {
    const value = option.slice(COMMENT.length);
    return value === QUOTED || !/[^\w-]/.test(value) ? option : `${COMMENT}"${value}"`;
  }
  if (!option.startsWith(PROBABILITY)) return option;
  return PROBABILITY + (Math.round(Number(option.slice(PROBABILITY.length)) * STEPS) / STEPS).toFixed(11);
}
