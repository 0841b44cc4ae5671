/**
 * Manual page `kproxy(8)`, made from the help texts and the list of flags.
 *
 * @module
 */
import { type CommandName, COMMANDS, GROUPS } from "../lib/config/setting.ts";
import type { Flag } from "../lib/cli/flags/flag.ts";
import { FLAGS } from "../lib/cli/flags/flags.ts";
import { COMMAND_DOCS, flagText, flagUsage } from "../lib/cli/help.ts";
import { VERSION } from "../lib/node/version.ts";

/** File of the page. */
export const MAN_FILE = "deploy/kproxy.8";

const EXIT_STATUS: readonly (readonly [status: string, meaning: string])[] = [
  ["0", "All is well."],
  [
    "1",
    "Something failed, or a command that looks at the node found that something is wrong; its help says what counts.",
  ],
  ["2", "Wrong use, or a configuration with mistakes: each of them is told."],
];

const EXAMPLES: readonly (readonly [command: string, meaning: string])[] = [
  [
    "kproxy --config=/var/lib/kube-proxy/config.conf --hostname-override=node-1",
    "Serve, by a command line of kube-proxy.",
  ],
  ["kproxy render --manifests=shop.yaml --proxy-mode=nftables", "Print the rules for the objects of a file."],
  ["kproxy doctor", "Say what is wrong with this node."],
  ["kproxy trace 10.244.1.7 web.shop.svc:80", "Show the way of a pod's packet to a Service."],
];

/** Text of the page for `man`. */
export function manPage(): string {
  return [
    '.\\" `deno task docs` writes this file.',
    `.TH KPROXY 8 "" "kproxy ${VERSION}" "System Administration"`,
    '.\\" A flag that is broken at the end of a line is no longer found.',
    ".nh",
    ".ad l",
    ".SH NAME",
    "kproxy \\- packet rules of Kubernetes Services on a node, in place of kube-proxy",
    ".SH SYNOPSIS",
    ".B kproxy",
    ".I COMMAND",
    "[flags]",
    ".br",
    ".B kproxy",
    "[flags of run]",
    ".SH DESCRIPTION",
    ...paragraph(
      "kproxy reads Services and EndpointSlices from the API server of Kubernetes, or from files, and keeps the packet rules of its node in " +
        "step with them, IPv4 and IPv6, in mode iptables, ipvs, nftables or userspace. It takes the flags and the configuration of " +
        "kube-proxy; arguments that begin with a flag are those of run.",
    ),
    ".SH COMMANDS",
    ...COMMANDS.flatMap(commandPart),
    ".SH FLAGS",
    ...paragraph("Behind each flag stand the commands that take it."),
    ...GROUPS.flatMap(groupPart),
    ".SH EXIT STATUS",
    ...EXIT_STATUS.flatMap(([status, meaning]) => tagged(bold(status), paragraph(meaning))),
    ".SH EXAMPLES",
    ...EXAMPLES.flatMap(([command, meaning]) => tagged(bold(command), paragraph(meaning))),
    ".SH SEE ALSO",
    ".BR iptables (8),",
    ".BR nft (8),",
    ".BR ipvsadm (8),",
    ".BR conntrack (8)",
    "",
  ].join("\n");
}

function commandPart(name: CommandName): readonly string[] {
  const { usage, summary, text } = COMMAND_DOCS[name];
  return [
    ...tagged(bold(usage), paragraph(`${summary}.`)),
    // A command that equals another one refers to its text.
    ...blocks(summary.startsWith("The same as ") ? [] : text).flatMap(({ lines, isPlain }) =>
      isPlain
        ? [".IP", ...paragraph(lines.join(" "))]
        : [".IP", ".nf", ...lines.map((line) => escaped(line.trimEnd())), ".fi"]
    ),
  ];
}

interface Block {
  readonly lines: string[];
  /** False: columns, which keep their layout. */
  readonly isPlain: boolean;
}

/** Blocks of help lines that belong together. */
function blocks(text: readonly string[]): readonly Block[] {
  const found: Block[] = [];
  let isNew = true;
  for (const line of text) {
    const isPlain = !line.trimEnd().includes("  ");
    const last = found.at(-1);
    if (line === "") isNew = true;
    else if (last === undefined || isNew || last.isPlain !== isPlain) {
      found.push({ lines: [line], isPlain });
      isNew = false;
    } else last.lines.push(line);
  }
  return found;
}

function groupPart(group: Flag["group"]): readonly string[] {
  const flags = FLAGS.filter((flag) => flag.group === group);
  return [`.SS ${escaped(group)}`, ...flags.flatMap(flagPart)];
}

function flagPart(flag: Flag): readonly string[] {
  const commands = flag.commands.length === COMMANDS.length ? "all commands" : flag.commands.join(", ");
  const note = flag.note === undefined ? "" : ` This flag is ${flag.note.state}.`;
  return tagged(bold(flagUsage(flag)), [
    ...paragraph(`${flagText(flag)}.${note}`),
    ".br",
    `.RI [ ${quoted(commands)} ]`,
  ]);
}

function tagged(tag: string, lines: readonly string[]): readonly string[] {
  return [".TP", tag, ...lines];
}

function bold(text: string): string {
  return `.B ${quoted(text)}`;
}

function paragraph(text: string): readonly string[] {
  return [escaped(text)];
}

/** An argument of a roff macro, quoted. */
function quoted(text: string): string {
  return `"${escaped(text).replaceAll('"', "\\(dq")}"`;
}

const SPECIAL: Readonly<Record<string, string>> = {
  "\\": "\\e",
  "-": "\\-",
  "'": "\\(aq",
  "`": "\\(ga",
  "^": "\\(ha",
  "~": "\\(ti",
};

/** Literal roff text: contains no requests, and only ASCII, whatever the reader's character set is. */
function escaped(text: string): string {
  const plain = text.replace(/[\\'`^~-]/g, (character) => SPECIAL[character] ?? character)
    .replace(/[^\x20-\x7e]/gu, (character) => {
      const code = character.codePointAt(0) ?? 0;
      return `\\[u${code.toString(16).toUpperCase().padStart(4, "0")}]`;
    });
  return plain.startsWith(".") ? `\\&${plain}` : plain;
}
