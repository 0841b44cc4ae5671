/**
 * What the flags are set to, as kube-proxy logs it at verbosity 1 and tells it on `/flagz`.
 *
 * @module
 */
import { formatDuration } from "../../config/duration.ts";
import type { Flag, FlagType, FlagValue, FlagValueTypes } from "./flag.ts";
import { FLAGS } from "./flags.ts";
import type { ParsedFlags } from "./parse_args.ts";

/** `FLAG: --name="value"` for every flag of the command, given or not, in alphabetical order. */
export function flagLines(flags: ParsedFlags): string[] {
  return flagTexts(flags).map(([name, text]) => `FLAG: --${name}=${JSON.stringify(text)}`);
}

/** Every flag of the command, in alphabetical order, with the text of its value, given or default. */
export function flagTexts(flags: ParsedFlags): (readonly [name: string, text: string])[] {
  return FLAGS.filter((flag) => flag.commands.includes(flags.command))
    .map((flag) => {
      const given = flags.get(flag.name);
      return [flag.name, given === undefined ? defaultText(flag) : valueText(flag.type, given)] as const;
    })
    .sort(([one], [other]) => one < other ? -1 : 1);
}

/** What a flag without a default of its own holds. */
const BLANK: Partial<Readonly<Record<FlagType, string>>> = {
  bool: "false",
  version: "false",
  int: "0",
  level: "0",
  float: "0",
  duration: "0s",
  list: "[]",
  paths: "[]",
};

function defaultText({ type, default: text }: Flag): string {
  return text === "" ? BLANK[type] ?? "" : text;
}

function valueText(type: FlagType, value: FlagValue): string {
  switch (type) {
    case "duration":
      return formatDuration(value as FlagValueTypes["duration"]);
    case "list":
    case "paths":
      return `[${(value as FlagValueTypes["list"]).join(",")}]`;
    case "gates":
      return Object.entries(value as FlagValueTypes["gates"]).map(([name, on]) => `${name}=${on}`).join(",");
    case "vmodule":
      return (value as FlagValueTypes["vmodule"]).map(({ filePattern, verbosity }) =>
        `${filePattern}=${verbosity}`
      ).join(",");
    default:
      return String(value);
  }
}
