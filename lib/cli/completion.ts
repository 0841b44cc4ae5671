/**
 * `kproxy completion bash|zsh|fish`: the completion scripts, from the lists of commands and flags.
 *
 * @module
 */
import { type CommandName, COMMANDS, CONFIG_FILES } from "../config/setting.ts";
import { UsageError } from "../errors.ts";
import { COMMAND_ENTRIES, SHELLS } from "./commands.ts";
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

const SCRIPTS: Readonly<Record<typeof SHELLS[number], () => string>> = {
  bash: bashCompletion,
  zsh: zshCompletion,
  fish: fishCompletion,
};

/** A flag as a completion sees it. */
interface CompletedFlag {
  readonly name: string;
  readonly short: string | undefined;
  /** `--name`, and `-n` if the flag has a short form. */
  readonly spellings: readonly string[];
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

/** The current flags of a command (of all commands for undefined); deprecated ones are not offered. */
function completedFlags(command?: CommandName): readonly CompletedFlag[] {
  return FLAGS.filter((flag) =>
    flag.note === undefined && (command === undefined || flag.commands.includes(command))
  ).map((flag) => {
    const { name, short, doc, kind, files } = flag;
    const isSwitch = kind === "bool";
    return {
      name,
      short,
      spellings: [`--${name}`, ...short === undefined ? [] : [`-${short}`]],
      doc,
      wantsValue: !isSwitch && kind !== "version",
      isOnByDefault: isSwitch && flag.default === "true",
      repeatable: ["list", "paths", "gates", "vmodule"].includes(kind),
      values: isSwitch ? ["true", "false"] : valuesOf(flag, command) ?? [],
      endings: files,
    };
  });
}

/** Argument words of the commands. */
const WORDS = COMMANDS.flatMap((name) => {
  const { offers } = COMMAND_ENTRIES[name];
  return offers === undefined || offers === "files" ? [] : [{ name, words: offers.join(" ") }];
});
/** Commands that take a file besides flags. */
const FILE_COMMANDS = COMMANDS.filter((name) => COMMAND_ENTRIES[name].offers === "files");

/** A script that defines and registers the completion; needs nothing but bash. */
function bashCompletion(): string {
  const all = completedFlags();
  const spellings = (flags: readonly CompletedFlag[], separator: string): string =>
    flags.flatMap((flag) => flag.spellings).join(separator);
  const echo = (pattern: string, words: string): string => `    ${pattern}) echo "${words}" ;;`;
  const values = all.flatMap((flag) => {
    const { endings, values } = flag;
    const text = endings === undefined ? values.join(" ") : `files:${endings.join(" ")}`;
    return text === "" ? [] : [echo(spellings([flag], "|"), text)];
  });
  return `# bash completion for kproxy; load it with: source <(kproxy completion bash)

__kproxy_flags() {
  case "$1" in
${COMMANDS.map((name) => echo(name, spellings(completedFlags(name), " "))).join("\n")}
  esac
}

__kproxy_operands() {
  case "$1" in
${WORDS.map(({ name, words }) => echo(name, words)).join("\n")}
  esac
}

# The values of the flag $1 of the command $2; "files:" and the endings, if it takes a file; nothing, if anything goes.
__kproxy_values() {
  case "$2 $1" in
${bashOwnValues(all).join("\n")}
  esac
  case "$1" in
${values.join("\n")}
  esac
}

__kproxy_wants_value() {
  case "$1" in
    ${spellings(all.filter((flag) => flag.wantsValue), "|")}) return 0 ;;
  esac
  return 1
}

# Folders, and files with one of the endings in $2 (all files, if there are none).
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

_kproxy() {
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
  elif [[ " ${FILE_COMMANDS.join(" ")} " == *" $command "* ]]; then
    __kproxy_files "$cur" "${CONFIG_FILES.join(" ")}"
  else
    COMPREPLY=($(compgen -W "$(__kproxy_operands "$command")" -- "$cur"))
  fi
}

complete -F _kproxy kproxy
`;
}

/** Cases of flags that take other values in one command than in all together. */
function bashOwnValues(all: readonly CompletedFlag[]): string[] {
  const inAll = new Map(all.map(({ name, values }) => [name, values.join(" ")]));
  return COMMANDS.flatMap((command) =>
    completedFlags(command).flatMap(({ name, spellings, values }) => {
      const words = values.join(" ");
      if (words === inAll.get(name)) return [];
      return [`    ${spellings.map((one) => `"${command} ${one}"`).join("|")}) echo "${words}"; return ;;`];
    })
  );
}

/** A script for `source`, which also works as the file `_kproxy` in a folder of `$fpath`. */
function zshCompletion(): string {
  const cases = COMMANDS.map((name) => {
    const specs = [...completedFlags(name).flatMap(zshFlag), ...zshOperands(name)];
    return `    ${name})\n      _arguments -S \\\n        ${
      specs.map(zshQuoted).join(" \\\n        ")
    }\n      ;;`;
  });
  return `#compdef kproxy
# zsh completion for kproxy; load it with: source <(kproxy completion zsh)

_kproxy() {
  local -a commands
  commands=(
${COMMANDS.map((name) => `    ${zshQuoted(`${name}:${COMMAND_DOCS[name].summary}`)}`).join("\n")}
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

function zshFlag(flag: CompletedFlag): string[] {
  const { name, short, values, endings } = flag;
  // Inside the brackets of a spec these characters have a meaning.
  const doc = `[${flag.doc.replace(/[\\[\]:]/g, "\\$&")}]`;
  const action = endings !== undefined
    ? zshFiles(endings)
    : values.length === 0
    ? " "
    : `(${values.join(" ")})`;
  const value = `:${name}:${action}`;
  // A switch that is on by default only makes sense with a value.
  const wantsValue = flag.wantsValue || flag.isOnByDefault;
  const long = wantsValue ? `${flag.repeatable ? "*" : ""}--${name}=${doc}${value}` : `--${name}${doc}`;
  if (short === undefined) return [long];
  return [wantsValue ? `-${short}+${doc}${value}` : `-${short}${doc}`, long];
}

function zshFiles(endings: readonly string[]): string {
  if (endings.length === 0) return "_files";
  return `_files -g "*.(${endings.map((ending) => ending.replace(".", "")).join("|")})"`;
}

function zshOperands(command: CommandName): string[] {
  const { offers } = COMMAND_ENTRIES[command];
  if (offers === "files") return [`:file:${zshFiles(CONFIG_FILES)}`];
  return offers === undefined ? [] : [`:argument:(${offers.join(" ")})`];
}

function zshQuoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** A script for `source`. */
function fishCompletion(): string {
  const commands = COMMANDS.map((name) =>
    `complete -c kproxy -n __kproxy_no_command -a ${name} -d ${fishQuoted(COMMAND_DOCS[name].summary)}`
  );
  const operands = [...WORDS, ...FILE_COMMANDS.map((name) => ({ name, words: fishFiles(CONFIG_FILES) }))]
    .map(({ name, words }) => `complete -c kproxy -n '__kproxy_command ${name}' -a ${fishQuoted(words)}`);
  const flags = COMMANDS.flatMap((name) => completedFlags(name).map((flag) => fishFlag(name, flag)));
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
${[...commands, ...operands, ...flags].join("\n")}
`;
}

function fishFlag(command: CommandName, { name, short, doc, wantsValue, values, endings }: CompletedFlag) {
  const words = endings === undefined ? values.join(" ") : fishFiles(endings);
  return [
    `complete -c kproxy -n '__kproxy_command ${command}'`,
    ...short === undefined ? [] : [`-s ${short}`],
    // fish takes a long option of one letter only in the old style, with one dash.
    ...name.length > 1 ? [`-l ${name}`] : [],
    ...wantsValue ? ["-x"] : [],
    ...wantsValue && words !== "" ? [`-a ${fishQuoted(words)}`] : [],
    `-d ${fishQuoted(doc)}`,
  ].join(" ");
}

function fishFiles(endings: readonly string[]): string {
  return `(${["__kproxy_files", ...endings].join(" ")})`;
}

function fishQuoted(text: string): string {
  return `'${text.replace(/[\\']/g, "\\$&")}'`;
}
