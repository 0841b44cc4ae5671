/**
 * The completion script for bash.
 *
 * @module
 */
import { type CompletedFlag, completedFlags, FILE_OPERANDS, OPERAND_WORDS } from "./completion_words.ts";
import { COMMANDS } from "../../config/setting.ts";

/** A script that defines and registers the completion; needs nothing but bash. */
export function bashCompletion(): string {
  return `# bash completion for kproxy; load it with: source <(kproxy completion bash)

${wordFunctions()}
${VALUE_FUNCTIONS}
${entryFunction()}`;
}

/** What may stand where: flags, operands and values of each command. */
function wordFunctions(): string {
  const flagCases = COMMANDS.map((name) =>
    `    ${name}) echo "${spellings(completedFlags(name)).join(" ")}" ;;`
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
${valueCases(all).join("\n")}
  esac
}

__kproxy_wants_value() {
  case "$1" in
    ${spellings(all.filter((flag) => flag.wantsValue)).join("|")}) return 0 ;;
  esac
  return 1
}
`;
}

/** Puts files and values into the reply. */
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

/** Where a flag takes other values in one command than in all together. */
function ownValueCases(all: readonly CompletedFlag[]): string[] {
  const inAll = new Map(all.map(({ name, values }) => [name, values.join(" ")]));
  return COMMANDS.flatMap((command) =>
    completedFlags(command).flatMap((flag) => {
      const values = flag.values.join(" ");
      if (values === inAll.get(flag.name)) return [];
      const words = spellings([flag]).map((spelling) => `"${command} ${spelling}"`);
      return [`    ${words.join("|")}) echo "${values}"; return ;;`];
    })
  );
}

function spellings(flags: readonly CompletedFlag[]): string[] {
  return flags.flatMap((flag) =>
    flag.short === undefined ? [`--${flag.name}`] : [`--${flag.name}`, `-${flag.short}`]
  );
}

function valueCases(flags: readonly CompletedFlag[]): string[] {
  return flags.flatMap((flag) => {
    const text = flag.endings === undefined ? flag.values.join(" ") : `files:${flag.endings.join(" ")}`;
    return text === "" ? [] : [`    ${spellings([flag]).join("|")}) echo "${text}" ;;`];
  });
}
