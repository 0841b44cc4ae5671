/**
 * The completion script for fish.
 *
 * @module
 */
import { type CompletedFlag, completedFlags, FILE_OPERANDS, OPERAND_WORDS } from "./completion_words.ts";
import { type CommandName, COMMANDS, CONFIG_FILES } from "../../config/setting.ts";
import { COMMAND_DOCS } from "../help.ts";

/** A script for `source`. */
export function fishCompletion(): string {
  const commands = COMMANDS.map((name) =>
    `complete -c kproxy -n __kproxy_no_command -a ${name} -d ${quoted(COMMAND_DOCS[name].summary)}`
  );
  const flags = COMMANDS.flatMap((name) => completedFlags(name).map((flag) => flagLine(name, flag)));
  const operands = [...OPERAND_WORDS].map(([name, words]) =>
    `complete -c kproxy -n '__kproxy_command ${name}' -a ${quoted(words.join(" "))}`
  );
  const files = FILE_OPERANDS.map((name) =>
    `complete -c kproxy -n '__kproxy_command ${name}' -a ${quoted(filesCall(CONFIG_FILES))}`
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

function flagLine(command: CommandName, flag: CompletedFlag): string {
  const parts = [`complete -c kproxy -n '__kproxy_command ${command}'`];
  if (flag.short !== undefined) parts.push(`-s ${flag.short}`);
  // fish takes a long option of one letter only in the old style, with one dash.
  if (flag.name.length > 1) parts.push(`-l ${flag.name}`);
  if (flag.wantsValue) parts.push("-x");
  const words = flag.endings === undefined ? flag.values.join(" ") : filesCall(flag.endings);
  if (flag.wantsValue && words !== "") parts.push(`-a ${quoted(words)}`);
  parts.push(`-d ${quoted(flag.doc)}`);
  return parts.join(" ");
}

function filesCall(endings: readonly string[]): string {
  return `(${["__kproxy_files", ...endings].join(" ")})`;
}

function quoted(text: string): string {
  return `'${text.replace(/[\\']/g, "\\$&")}'`;
}
