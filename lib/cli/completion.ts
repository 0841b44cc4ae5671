/**
 * `kproxy completion bash|zsh|fish`: the completion scripts, from the list of flags.
 *
 * @module
 */
import { type CommandName, COMMANDS, CONFIG_FILES } from "../config/setting.ts";
import { UsageError } from "../errors.ts";
import { valuesOf } from "./flags/flag.ts";
import { FLAGS } from "./flags/flags.ts";
import type { ParsedFlags } from "./flags/parse_args.ts";
import { COMMAND_DOCS } from "./help.ts";
import type { Io } from "./io.ts";
import { didYouMean } from "../config/suggest.ts";

/**
 * Prints the completion script of the shell named.
 *
 * @throws {UsageError} if no shell is named, or one without a script
 */
export async function completionCommand(flags: ParsedFlags, io: Io): Promise<number> {
  const [named] = flags.operands;
  if (named === undefined) throw new UsageError(`Name a shell: kproxy completion ${SHELLS.join("|")}`);
  const shell = SHELLS.find((name) => name === named);
  if (shell === undefined) {
    throw new UsageError(
      `No completion for the shell "${named}": want ${SHELLS.join(", ")}${didYouMean(named, SHELLS)}`,
    );
  }
  await io.out(SCRIPTS[shell]());
  return 0;
}

/** The shells there are scripts for. */
const SHELLS = ["bash", "zsh", "fish"] as const;

const SCRIPTS: Readonly<Record<typeof SHELLS[number], () => string>> = {
  bash: bashCompletion,
  zsh: zshCompletion,
  fish: fishCompletion,
};

/** A flag as a completion sees it. */
interface CompletedFlag {
  readonly name: string;
  readonly short: string | undefined;
  readonly doc: string;
  /** False for switches, which may stand alone. */
  readonly wantsValue: boolean;
  /** True for a switch that only `=false` changes. */
  readonly isOnByDefault: boolean;
  readonly repeatable: boolean;
  readonly values: readonly string[];
  /** Endings of the files it takes; empty for any file; undefined if it takes no file. */
  readonly endings: readonly string[] | undefined;
}

/** The words a command takes besides flags. */
const OPERAND_WORDS: ReadonlyMap<CommandName, readonly string[]> = new Map<
  CommandName,
  readonly string[]
>([
  ["help", COMMANDS],
  ["completion", SHELLS],
  ["service", ["list", "get"]],
  ["trace", ["local", "world"]],
  ["explain", ["local", "world"]],
]);

/** Commands that take a file besides flags. */
const FILE_OPERANDS: readonly CommandName[] = ["write-config", "sysdump"];

/** The current flags of a command (of all commands for undefined); deprecated ones are not offered. */
function completedFlags(command: CommandName | undefined): readonly CompletedFlag[] {
  return FLAGS.filter((flag) =>
    flag.note === undefined && (command === undefined || flag.commands.includes(command))
  ).map((flag) => {
    const isSwitch = flag.kind === "bool";
    return {
      name: flag.name,
      short: flag.short,
      doc: flag.doc,
      wantsValue: !isSwitch && flag.kind !== "version",
      isOnByDefault: isSwitch && flag.default === "true",
      repeatable: ["list", "paths", "gates", "vmodule"].includes(flag.kind),
      values: isSwitch ? ["true", "false"] : valuesOf(flag, command) ?? [],
      endings: flag.files,
    };
  });
}

/** A script that defines and registers the completion; needs nothing but bash. */
function bashCompletion(): string {
  return `# bash completion for kproxy; load it with: source <(kproxy completion bash)

${wordFunctions()}
${VALUE_FUNCTIONS}
${entryFunction()}`;
}

/** Shell functions that yield the flags, operands and values of each command. */
function wordFunctions(): string {
  const flagCases = COMMANDS.map((name) =>
    `    ${name}) echo "${bashSpellings(completedFlags(name)).join(" ")}" ;;`
  );
  const all = completedFlags(undefined);
  const operandCases = [...OPERAND_WORDS].map(([name, words]) => `    ${name}) echo "${words.join(" ")}" ;;`);
  return `__kproxy_flags() {
  case "$1" in
${flagCases.join("\n")}
  esac
}

__kproxy_operands() {
  case "$1" in
${operandCases.join("\n")}
  esac
}

# The values of the flag $1 of the command $2; "files:" and the endings, if it takes a file; nothing, if anything goes.
__kproxy_values() {
  case "$2 $1" in
${ownValueCases(all).join("\n")}
  esac
  case "$1" in
${bashValueCases(all).join("\n")}
  esac
}

__kproxy_wants_value() {
  case "$1" in
    ${bashSpellings(all.filter((flag) => flag.wantsValue)).join("|")}) return 0 ;;
  esac
  return 1
}
`;
}

/** Shell functions that put files and values into the reply. */
const VALUE_FUNCTIONS = `# Folders, and files with one of the endings in $2 (all files, if there are none).
__kproxy_files() {
  local path ending
  compopt -o filenames 2>/dev/null
  while IFS= read -r path; do
    if [[ -d $path || -z $2 ]]; then
      COMPREPLY+=("$path")
      continue
    fi
    for ending in $2; do
      [[ $path == *"$ending" ]] && COMPREPLY+=("$path")
    done
  done < <(compgen -f -- "$1")
}

# Completes the value $2 of the flag $1; $3 stands before it in the word.
__kproxy_value() {
  local values
  values=$(__kproxy_values "$1" "$command")
  if [[ $values == files:* ]]; then
    __kproxy_files "$2" "\${values#files:}"
    [[ -n $3 ]] && COMPREPLY=("\${COMPREPLY[@]/#/$3}")
    return
  fi
  COMPREPLY=($(compgen -P "$3" -W "$values" -- "$2"))
}
`;

/** The function that bash calls, and its registration. */
function entryFunction(): string {
  return `_kproxy() {
  local cur=\${COMP_WORDS[COMP_CWORD]} prev="" before="" command=""
  ((COMP_CWORD > 0)) && prev=\${COMP_WORDS[COMP_CWORD - 1]}
  ((COMP_CWORD > 1)) && before=\${COMP_WORDS[COMP_CWORD - 2]}
  COMPREPLY=()
  ((COMP_CWORD > 1)) && command=\${COMP_WORDS[1]}
  # Arguments that begin with a flag are those of run.
  [[ $command == -* || ($COMP_CWORD -eq 1 && $cur == -*) ]] && command=run
  # Readline splits words at "=", if COMP_WORDBREAKS says so.
  if [[ $cur == "=" ]]; then
    __kproxy_value "$prev" "" ""
    return
  fi
  if [[ $prev == "=" ]]; then
    __kproxy_value "$before" "$cur" ""
    return
  fi
  if [[ $cur == --*=* ]]; then
    __kproxy_value "\${cur%%=*}" "\${cur#*=}" "\${cur%%=*}="
    return
  fi
  if __kproxy_wants_value "$prev"; then
    __kproxy_value "$prev" "$cur" ""
    return
  fi
  if [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$(__kproxy_flags "$command")" -- "$cur"))
  elif [[ -z $command ]]; then
    COMPREPLY=($(compgen -W "${COMMANDS.join(" ")}" -- "$cur"))
  elif [[ " ${FILE_OPERANDS.join(" ")} " == *" $command "* ]]; then
    __kproxy_files "$cur" ".yaml .yml .json"
  else
    COMPREPLY=($(compgen -W "$(__kproxy_operands "$command")" -- "$cur"))
  fi
}

complete -F _kproxy kproxy
`;
}

/** Cases of flags that take other values in one command than in all together. */
function ownValueCases(all: readonly CompletedFlag[]): string[] {
  const inAll = new Map(all.map(({ name, values }) => [name, values.join(" ")]));
  return COMMANDS.flatMap((command) =>
    completedFlags(command).flatMap((flag) => {
      const values = flag.values.join(" ");
      if (values === inAll.get(flag.name)) return [];
      const words = bashSpellings([flag]).map((spelling) => `"${command} ${spelling}"`);
      return [`    ${words.join("|")}) echo "${values}"; return ;;`];
    })
  );
}

function bashSpellings(flags: readonly CompletedFlag[]): string[] {
  return flags.flatMap((flag) =>
    flag.short === undefined ? [`--${flag.name}`] : [`--${flag.name}`, `-${flag.short}`]
  );
}

function bashValueCases(flags: readonly CompletedFlag[]): string[] {
  return flags.flatMap((flag) => {
    const text = flag.endings === undefined ? flag.values.join(" ") : `files:${flag.endings.join(" ")}`;
    return text === "" ? [] : [`    ${bashSpellings([flag]).join("|")}) echo "${text}" ;;`];
  });
}

/** A script for `source`, which also works as the file `_kproxy` in a folder of `$fpath`. */
function zshCompletion(): string {
  const commands = COMMANDS.map((name) => `    ${zshQuoted(`${name}:${COMMAND_DOCS[name].summary}`)}`);
  const cases = COMMANDS.map((name) => {
    const specs = [...completedFlags(name).flatMap(flagSpecs), ...operandSpecs(name)];
    return `    ${name})\n      _arguments -S \\\n        ${
      specs.map(zshQuoted).join(" \\\n        ")
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

/** Escapes characters with a meaning inside the brackets of a spec. */
function escaped(text: string): string {
  return text.replace(/[\\[\]:]/g, "\\$&");
}

function zshQuoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** A script for `source`. */
function fishCompletion(): string {
  const commands = COMMANDS.map((name) =>
    `complete -c kproxy -n __kproxy_no_command -a ${name} -d ${fishQuoted(COMMAND_DOCS[name].summary)}`
  );
  const flags = COMMANDS.flatMap((name) => completedFlags(name).map((flag) => fishFlagLine(name, flag)));
  const operands = [...OPERAND_WORDS].map(([name, words]) =>
    `complete -c kproxy -n '__kproxy_command ${name}' -a ${fishQuoted(words.join(" "))}`
  );
  const files = FILE_OPERANDS.map((name) =>
    `complete -c kproxy -n '__kproxy_command ${name}' -a ${fishQuoted(fishFilesCall(CONFIG_FILES))}`
  );
  return `# fish completion for kproxy; load it with: kproxy completion fish | source

function __kproxy_no_command
    test (count (commandline -opc)) -eq 1
end

# Arguments that begin with a flag are those of run.
function __kproxy_command
    set -l words (commandline -opc) (commandline -ct)
    set -l command $words[2]
    string match -q -- '-*' "$command"; and set command run
    test "$command" = $argv[1]
end

# Folders, and files with one of the endings (all files, if there are none).
function __kproxy_files
    set -l token (commandline -ct | string replace -r -- '^--?[^=]*=' '')
    for path in (__fish_complete_path $token)
        set -l name (string split \\t -- $path)[1]
        if test (count $argv) -eq 0; or string match -q -- '*/' $name
            echo $path
            continue
        end
        for ending in $argv
            string match -q -- "*$ending" $name; and echo $path
        end
    end
end

complete -c kproxy -f
${[...commands, ...operands, ...files, ...flags].join("\n")}
`;
}

function fishFlagLine(command: CommandName, flag: CompletedFlag): string {
  const parts = [`complete -c kproxy -n '__kproxy_command ${command}'`];
  if (flag.short !== undefined) parts.push(`-s ${flag.short}`);
  // fish takes a long option of one letter only in the old style, with one dash.
  if (flag.name.length > 1) parts.push(`-l ${flag.name}`);
  if (flag.wantsValue) parts.push("-x");
  const words = flag.endings === undefined ? flag.values.join(" ") : fishFilesCall(flag.endings);
  if (flag.wantsValue && words !== "") parts.push(`-a ${fishQuoted(words)}`);
  parts.push(`-d ${fishQuoted(flag.doc)}`);
  return parts.join(" ");
}

function fishFilesCall(endings: readonly string[]): string {
  return `(${["__kproxy_files", ...endings].join(" ")})`;
}

function fishQuoted(text: string): string {
  return `'${text.replace(/[\\']/g, "\\$&")}'`;
}
