/**
 * The completion script for zsh.
 *
 * @module
 */
import { type CompletedFlag, completedFlags, FILE_OPERANDS, OPERAND_WORDS } from "./completion_words.ts";
import { type CommandName, COMMANDS, CONFIG_FILES } from "../../config/setting.ts";
import { COMMAND_DOCS } from "../help.ts";

/** A script for `source`, which also works as the file `_kproxy` in a folder of `$fpath`. */
export function zshCompletion(): string {
  const commands = COMMANDS.map((name) => `    ${quoted(`${name}:${COMMAND_DOCS[name].summary}`)}`);
  const cases = COMMANDS.map((name) => {
    const specs = [...completedFlags(name).flatMap(flagSpecs), ...operandSpecs(name)];
    return `    ${name})\n      _arguments -S \\\n        ${
      specs.map(quoted).join(" \\\n        ")
    }\n      ;;`;
  });
  return `#compdef kproxy
# zsh completion for kproxy; load it with: source <(kproxy completion zsh)

_kproxy() {
  local -a commands
  commands=(
${commands.join("\n")}
  )
  if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then
    _describe -t commands command commands
    return
  fi
  local command=$words[2]
  # Arguments that begin with a flag are those of run.
  if [[ $command == -* ]]; then
    command=run
  else
    shift words
    (( CURRENT-- ))
  fi
  case $command in
${cases.join("\n")}
  esac
}

if [[ $funcstack[1] == _kproxy ]]; then
  _kproxy "$@"
else
  compdef _kproxy kproxy
fi
`;
}

function flagSpecs(flag: CompletedFlag): string[] {
  const doc = `[${escaped(flag.doc)}]`;
  const value = `:${flag.name}:${valueAction(flag)}`;
  // A switch that is on by default only makes sense with a value.
  const wantsValue = flag.wantsValue || flag.isOnByDefault;
  const long = wantsValue
    ? `${flag.repeatable ? "*" : ""}--${flag.name}=${doc}${value}`
    : `--${flag.name}${doc}`;
  if (flag.short === undefined) return [long];
  return [wantsValue ? `-${flag.short}+${doc}${value}` : `-${flag.short}${doc}`, long];
}

function valueAction(flag: CompletedFlag): string {
  if (flag.endings !== undefined) return filesAction(flag.endings);
  return flag.values.length === 0 ? " " : `(${flag.values.join(" ")})`;
}

function filesAction(endings: readonly string[]): string {
  if (endings.length === 0) return "_files";
  return `_files -g "*.(${endings.map((ending) => ending.replace(".", "")).join("|")})"`;
}

function operandSpecs(command: CommandName): string[] {
  if (FILE_OPERANDS.includes(command)) return [`:file:${filesAction(CONFIG_FILES)}`];
  const words = OPERAND_WORDS.get(command);
  return words === undefined ? [] : [`:argument:(${words.join(" ")})`];
}

/** Inside the brackets of a spec these have a meaning. */
function escaped(text: string): string {
  return text.replace(/[\\[\]:]/g, "\\$&");
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
