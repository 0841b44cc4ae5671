/**
 * `kproxy help`: its texts, made from the list of flags.
 *
 * @module
 */
import { type CommandName, COMMANDS, GROUPS } from "../config/setting.ts";
import { countsBesideFile } from "../config/flags_overlay.ts";
import { isSwitch, KINDS } from "../config/kinds.ts";
import { didYouMean } from "../config/suggest.ts";
import { UsageError } from "../errors.ts";
import { type Flag, valuesOf } from "./flags/flag.ts";
import { FLAGS, flagsBesideFile } from "./flags/flags.ts";
import type { ParsedFlags } from "./flags/parse_args.ts";
import type { Io } from "./io.ts";
import { alignColumns, wrapWords } from "../text/columns.ts";

/** Documentation of one command. */
export interface CommandDoc {
  /** Follows `kproxy`. */
  readonly usage: string;
  /** One line, no period. */
  readonly summary: string;
  /** Further text: paragraphs, and lines that begin with a space and stay as they are. */
  readonly text: readonly string[];
}

const TRACE_EXAMPLES: readonly string[] = alignColumns([
  ["  kproxy trace local shop/web", "a process on this node, to the only port of a Service"],
  ["  kproxy trace 10.244.1.7 web.shop.svc:80", "a pod, to the name that it calls"],
  ["  kproxy trace world 192.0.2.10:30080", "a client outside, to a node port of this node"],
  ["  kproxy trace cni0 10.96.0.10:53/udp", "a client behind an interface, to an address"],
]);

const TRACE_TEXT: readonly string[] = [
  ...TRACE_EXAMPLES,
  "",
  "SRC is local (a process on the node), world, an address, an interface, or ADDRESS@INTERFACE; the destination may be " +
  "NAMESPACE/NAME[:PORT] of a Service, too. Desired rules follow from the objects in files (--manifests) and the flags of run, else from " +
  "the kproxy that runs here, else from the API server. Live rules are read with the node's own tools, foreign rules included, or from their " +
  "output (--live-from). Prints each rule that the packet meets, probabilities, endpoints that are left out and why, foreign rules " +
  "that end its path, and the first difference between both. Changes nothing. Exit status 0, or 1 if something is wrong on the node, " +
  "or if a rule on the packet's path is not understood.",
];

const CHECK_TEXT: readonly string[] = [
  "Prints, Service by Service, rules, elements, sets, servers and addresses that are missing (-), surplus (+) or different; base chains " +
  "and jumps; leftovers of deleted Services and of other modes; and foreign rules that take packets before. Objects and rules come from " +
  "where trace has them; other layouts are compared by what they do with packets. Changes nothing without --repair, which is refused " +
  "while a kproxy that runs here would repair it itself. Exit status 0 if nothing differs, else 1.",
];

/** Flags of kproxy's own settings that count beside a file. */
const OWN_BESIDE_FILE = flagsBesideFile().filter(({ field }) => field?.startsWith("kproxy.") === true);

export const COMMAND_DOCS: Readonly<Record<CommandName, CommandDoc>> = {
  "run": {
    usage: "run [flags]",
    summary: "Keep this node's rules in step with Services and EndpointSlices",
    text: [
      "Takes the flags of kube-proxy, by the same names and with the same meanings. Objects come from the API " +
      "server, from files (--manifests), or from both. As in kube-proxy, --config replaces all other settings but " +
      "--master, --hostname-override and the logging flags; kproxy's own are honoured too: " +
      `${OWN_BESIDE_FILE.map(({ name }) => `--${name}`).join(", ")}.`,
      "Rules stay in place when kproxy ends; remove them with kproxy cleanup.",
    ],
  },
  "write-config": {
    usage: "write-config [flags] [FILE]",
    summary: "Print the complete configuration, or write it to FILE",
    text: [
      "Without flags this is every default. Otherwise it is what kproxy run would use with the same flags. FILE is replaced " +
      "in one step, readable by its owner only, and never through a symbolic link.",
    ],
  },
  "cleanup": {
    usage: "cleanup [flags]",
    summary: "Remove the rules and sets that kproxy or kube-proxy made on this node, in any mode",
    text: [
      "Needs CAP_NET_ADMIN, but no API server. Rules of the kubelet and of others stay, and so do IPVS virtual servers that " +
      "no proxy of Kubernetes made, unless --flush-ipvs is given.",
    ],
  },
  "render": {
    usage: "render --manifests PATH [flags]",
    summary: "Print the rules for the objects in files, as text that the real tool loads",
    text: [
      "Needs neither root nor an API server and changes nothing. With --family=ipv4 the text is one that iptables-restore " +
      "loads, with --family=ipv6 one for ip6tables-restore; of two families each follows a comment. What run reads from the " +
      "node is assumed: packets outside the TCP window are invalid unless conntrack.tcpBeLiberal is set.",
    ],
  },
  "status": {
    usage: "status [flags]",
    summary: "Show the status of the kproxy that runs on this node",
    text: [
      "Asks it on its socket (kproxy.socket): what it serves, its last syncs, and whatever is wrong. Changes nothing. " +
      "Ends with 0 if it is ready, or with 1 if it is not, or if none answers; with --watch it goes on until Ctrl-C.",
    ],
  },
  "trace": {
    usage: "trace SRC DST:PORT[/udp|/sctp] [flags]",
    summary: "Walk a packet through the desired and the live rules of this node",
    text: TRACE_TEXT,
  },
  "explain": {
    usage: "explain SRC DST:PORT[/udp|/sctp] [flags]",
    summary: "The same as trace",
    text: TRACE_TEXT,
  },
  "service": {
    usage: "service list|get [NAMESPACE/NAME] [flags]",
    summary: "Show Services, the use of their endpoints, and what the kernel holds for them",
    text: [
      "Objects and rules come from where trace has them. Exit status 1 if the kernel holds nothing for a Service that " +
      "should have rules.",
    ],
  },
  "check": {
    usage: "check [flags]",
    summary: "Compare the desired with the live rules of this node, and repair them",
    text: CHECK_TEXT,
  },
  "diff": {
    usage: "diff [flags]",
    summary: "The same as check",
    text: CHECK_TEXT,
  },
  "doctor": {
    usage: "doctor [flags]",
    summary: "Find what keeps Services from working on this node, and how to fix it",
    text: [
      "Takes the flags of run and checks what run needs: programs and kernel, rights, settings, foreign rules, the API server and " +
      "the Node. Changes nothing. Exit status 0, or 1 if there is a failure; warnings are no failure. What cannot be checked " +
      "within some seconds is a warning.",
    ],
  },
  "selftest": {
    usage: "selftest [flags]",
    summary: "Test with real packets, in its own namespaces, whether this node can run a proxy mode",
    text: [
      "Makes network namespaces with a node, two pods and two clients, writes the mode's rules of a few Services there, sends real " +
      "packets, and compares what happens with what should, and with what the rules say. Removes everything at the end. Needs root, " +
      "or CAP_NET_ADMIN and CAP_SYS_ADMIN. Exit status 0 if all passed, else 1.",
    ],
  },
  "sysdump": {
    usage: "sysdump FILE [flags]",
    summary: "Pack what a bug report needs into a file",
    text: [
      "Rules of all tools, addresses and routes, kernel settings, versions, the configuration, and the status of the kproxy that runs " +
      "here. FILE ends in .tar.gz, .tgz or .tar, must not exist, and is readable by its owner only; - is standard output (tar.gz). " +
      "No kubeconfig, token, key or environment variable is read. Missing parts are listed with the reason. Exit status 0, or 1 if " +
      "nothing could be written.",
    ],
  },
  "version": {
    usage: "version [flags]",
    summary: "Print the version, and the commit that it was built from",
    text: [
      "Also prints which releases of kube-proxy the rules and the decisions follow. The commit is unknown if kproxy was built or installed " +
      "without the project's Git repository, and ends in -dirty if files differed from it. --version prints the first line only.",
    ],
  },
  "help": {
    usage: "help [COMMAND]",
    summary: "Print help on kproxy or on one command",
    text: [],
  },
  "completion": {
    usage: "completion bash|zsh|fish",
    summary: "Print a completion script for a shell",
    text: [
      "bash:  source <(kproxy completion bash)",
      "zsh:   source <(kproxy completion zsh)",
      "fish:  kproxy completion fish | source",
    ],
  },
};

/** `kproxy help [COMMAND]`. @throws {UsageError} for an unknown command */
export function helpCommand(flags: ParsedFlags, io: Io): Promise<number> {
  const [named = "help"] = flags.operands;
  const command = COMMANDS.find((name) => name === named);
  if (command === undefined) throw new UsageError(`Unknown command "${named}"${didYouMean(named, COMMANDS)}`);
  return printHelp(command, io, flags.operands.length > 0);
}

/** Prints help on a command; of the command help, on the program unless it was named. */
export async function printHelp(command: CommandName, io: Io, isNamed = false): Promise<number> {
  await io.out(command === "help" && !isNamed ? programHelp() : commandHelp(command));
  return 0;
}

/** Text that `kproxy help` prints. */
export function programHelp(): string {
  const commands = alignColumns(COMMANDS.map((name) => [name, COMMAND_DOCS[name].summary]))
    .map((line) => `  ${line}`);
  return [
    "kproxy programs the packet rules of Kubernetes Services on a node, in place of kube-proxy.",
    "",
    "Usage: kproxy COMMAND [flags]",
    "",
    ...commands,
    "",
    "Arguments that begin with a flag are those of run, so a kube-proxy command line works as it is:",
    "  kproxy --config=/var/lib/kube-proxy/config.conf --hostname-override=node-1",
    "",
    'Help on a command and its flags: "kproxy help COMMAND" or "kproxy COMMAND --help"',
    "",
  ].join("\n");
}

/** Text that `kproxy help COMMAND` prints. */
export function commandHelp(command: CommandName): string {
  const { usage, summary, text } = COMMAND_DOCS[command];
  const lines = [`Usage: kproxy ${usage}`, "", summary];
  if (text.length > 0) {
    lines.push("", ...text.flatMap((one) => /^ |^$/.test(one) ? [one] : wrapWords(one, 108)));
  }
  if (command === "help") lines.push("", ...wrapWords(`Commands: ${COMMANDS.join(", ")}`, 100));
  const flags = FLAGS.filter((flag) => flag.commands.includes(command));
  for (const group of GROUPS) {
    const useful = flags.filter((flag) => flag.group === group && flag.note?.state !== "obsolete");
    if (useful.length > 0) lines.push("", `${group}:`, ...useful.flatMap((flag) => flagHelp(flag, command)));
  }
  const obsolete = flags.filter((flag) => flag.note?.state === "obsolete").map((flag) => `--${flag.name}`);
  if (obsolete.length > 0) {
    lines.push("", "Accepted from old command lines, with a warning and without effect:");
    lines.push(...wrapWords(obsolete.join(", "), 100).map((line) => `  ${line}`));
  }
  return lines.join("\n") + "\n";
}

/** `--name VALUE` as help and documentation show it. */
export function flagUsage(flag: Flag): string {
  const word = flag.kind === "string" && flag.files !== undefined ? "FILE" : KINDS[flag.kind].word;
  // `--v` alone would hide that `-v` is the usual spelling.
  const short = flag.short === undefined ? "" : `-${flag.short}, `;
  return `${short}--${flag.name}${word === "" ? "" : ` ${word}`}`;
}

function flagHelp(flag: Flag, command: CommandName): string[] {
  return [
    `  ${flagUsage(flag)}`,
    ...wrapWords(flagText(flag, command), 100).map((line) => `        ${line}`),
  ];
}

/** The flag's line, its values and its default, in a command or in all of them. */
export function flagText(flag: Flag, command?: CommandName): string {
  if (flag.note !== undefined) return `${flag.doc}; ${flag.note.text}`;
  const values = flag.kind === "version" ? "" : valuesText(flag, command);
  const silent = flag.default === "" || flag.default === "[]" ||
    (isSwitch(flag.kind) && flag.default === "false");
  return `${flag.doc}${values}${silent ? "" : ` (default ${flag.default})`}`;
}

/** Text after the flag's line: its values in a command or in all of them, if they are few, and whether it counts beside a file. */
export function valuesText(
  flag: Flag,
  command?: CommandName,
  show: (value: string) => string = (value) => value,
): string {
  const beside = flag.field !== undefined && countsBesideFile(flag.field)
    ? "; also honoured with --config"
    : "";
  const values = valuesOf(flag, command);
  if (values === undefined) return beside;
  const others = command === undefined ? Object.entries(flag.valuesIn ?? {}) : [];
  const list = (some: readonly string[]): string => some.map(show).join(", ");
  return `: ${[list(values), ...others.map(([name, own]) => `in ${name} ${list(own)}`)].join("; ")}${beside}`;
}
