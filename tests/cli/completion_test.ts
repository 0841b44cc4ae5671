import { assertEquals } from "@std/assert";
import { COMMANDS } from "../../lib/config/setting.ts";
import type { Flag } from "../../lib/cli/flags/flag.ts";
import { FLAGS as ALL_FLAGS } from "../../lib/cli/flags/flags.ts";
import { e2eTest, program } from "../support/skip.ts";
import { inFolder, kproxy } from "./kproxy.ts";

const FILES = { "a.yaml": "", "b.yml": "", "c.json": "", "d.txt": "", "with space.yaml": "" };
const CONFIGS = ["a.yaml", "b.yml", "c.json", "sub", "with space.yaml"];

async function run(argv: readonly string[], cwd: string): Promise<string> {
  const [name = "", ...args] = argv;
  const { code, stdout, stderr } = await new Deno.Command(name, { args, cwd, stdin: "null" }).output();
  const decoder = new TextDecoder();
  assertEquals([code, decoder.decode(stderr)], [0, ""], argv.join(" "));
  return decoder.decode(stdout);
}

/** A folder with files to complete and the shell's script. */
async function withScript(
  shell: string,
  work: (folder: string, script: string) => Promise<void>,
): Promise<void> {
  const { code, out, err } = await kproxy(["completion", shell]);
  assertEquals([code, err], [0, ""]);
  await inFolder(FILES, async (folder) => {
    await Deno.mkdir(`${folder}/sub`);
    await inFolder({ script: out }, (other) => work(folder, `${other}/script`));
  });
}

/** Words as readline splits them, cursor at the end of the last, and what is offered. */
const BASH_CASES: readonly [words: readonly string[], offered: readonly string[]][] = [
  [["r"], ["run", "render"]],
  [["completion", ""], ["bash", "zsh", "fish"]],
  [["help", "comp"], ["completion"]],
  [["run", "--proxy-m"], ["--proxy-mode", "--proxy-mode-fallback"]],
  [["run", "--proxy-mode", ""], ["iptables", "ipvs", "nftables", "userspace", "auto"]],
  [["run", "--proxy-mode", "="], ["iptables", "ipvs", "nftables", "userspace", "auto"]],
  [["run", "--proxy-mode", "=", "ip"], ["iptables", "ipvs"]],
  [["run", "--proxy-mode=ip"], ["--proxy-mode=iptables", "--proxy-mode=ipvs"]],
  [["run", "--config", ""], CONFIGS],
  [["run", "--config", "="], CONFIGS],
  [["run", "--config", "=", "a"], ["a.yaml"]],
  [["run", "--config=b"], ["--config=b.yml"]],
  [["--config", "c"], ["c.json"]],
  [["run", "--kubeconfig", "d"], ["d.txt"]],
  [["run", "--config", "d"], []],
  [["write-config", "a"], ["a.yaml"]],
  [["write-config", "-o", ""], ["yaml", "json"]],
  [["status", "-o", ""], ["text", "json"]],
  [["run", "--cleanup", "="], ["true", "false"]],
  [["run", "--cleanup", "--init"], ["--init-only"]],
  [["--init"], ["--init-only"]],
  [["--v=2", "--maste"], ["--master"]],
  [["version", "--"], ["--help", "--output", "--version"]],
  [["run", "--logtos"], []],
  [["run", "--hostname-override", ""], []],
];

e2eTest("the script for bash completes commands, flags, values and files", [program("bash")], async () => {
  await withScript("bash", async (folder, script) => {
    for (const [words, offered] of BASH_CASES) {
      const line =
        `source "$1"; shift; declare -F "$(complete -p kproxy | sed 's/.*-F \\([^ ]*\\).*/\\1/')" >/dev/null
        COMP_WORDS=(kproxy "$@"); COMP_CWORD=$#; _kproxy; printf '%s\\n' "\${COMPREPLY[@]}"`;
      const out = await run(["bash", "--norc", "-c", line, "bash", script, ...words], folder);
      const got = out.split("\n").filter((word) => word !== "");
      assertEquals(got.toSorted(), offered.toSorted(), words.join(" "));
    }
  });
});

const FISH_CASES: readonly [line: string, offered: readonly string[]][] = [
  ["kproxy r", ["render", "run"]],
  ["kproxy completion ", ["bash", "fish", "zsh"]],
  ["kproxy run --proxy-m", ["--proxy-mode", "--proxy-mode-fallback"]],
  ["kproxy run --proxy-mode ip", ["iptables", "ipvs"]],
  ["kproxy run --proxy-mode=ip", ["--proxy-mode=iptables", "--proxy-mode=ipvs"]],
  ["kproxy run --config ", ["a.yaml", "b.yml", "c.json", "sub/", "with space.yaml"]],
  ["kproxy --config=b", ["--config=b.yml"]],
  ["kproxy run --kubeconfig d", ["d.txt"]],
  ["kproxy --init", ["--init-only"]],
  ["kproxy version --", ["--help", "--output", "--version"]],
  ["kproxy run --logtos", []],
];

e2eTest("the script for fish completes commands, flags, values and files", [program("fish")], async () => {
  await withScript("fish", async (folder, script) => {
    for (const [line, offered] of FISH_CASES) {
      const out = await run([
        "fish",
        "--no-config",
        "-c",
        "source $argv[1]; complete -C $argv[2]",
        script,
        line,
      ], folder);
      const got = out.split("\n").filter((word) => word !== "").map((word) => word.split("\t")[0]);
      assertEquals(got.toSorted(), offered.toSorted(), line);
    }
  });
});

/** Types each piece into a real zsh, ended by TAB, and prints the line it makes of it. */
const ZSH_SESSION = `
zmodload zsh/zpty
zpty shell zsh -f -i
# A terminal may take only part of a long line at once, so everything is in one file.
print -r -- "PS1= RPS1= PROMPT_EOL_MARK=; unsetopt zle_bracketed_paste; autoload -Uz compinit; compinit -u -D
source $1; TERM=dumb; show() { print -rn -- \\"<\\$BUFFER>\\"; BUFFER=; zle redisplay }; zle -N show; bindkey ^G show; print REA''DY" > $2
zpty -w shell "source $2"
zpty -r shell seen '*READY*' || exit 1
shift 2
for piece in "$@"; do
  zpty -w -n shell "$piece"$'\\t\\a'
  zpty -r shell seen '*<*>*' || exit 1
  print -r -- "\${\${seen##*<}%%>*}"
done
zpty -d shell
`;

const ZSH_CASES: readonly [typed: string, line: string][] = [
  ["kproxy rend", "kproxy render "],
  ["kproxy run --nodep", "kproxy run --nodeport-addresses="],
  ["kproxy run --proxy-mode=nf", "kproxy run --proxy-mode=nftables "],
  ["kproxy run --config b", "kproxy run --config b.yml "],
  ["kproxy --init", "kproxy --init-only "],
  ["kproxy run --iptables-loc", "kproxy run --iptables-localhost-nodeports="],
  ["kproxy completion fi", "kproxy completion fish "],
];

e2eTest("the script for zsh completes commands, flags, values and files", [program("zsh")], async () => {
  await withScript("zsh", async (folder, script) => {
    const pieces = ZSH_CASES.map(([typed]) => typed);
    const argv = [
      "timeout",
      "120",
      "zsh",
      "-f",
      "-c",
      ZSH_SESSION,
      "zsh",
      script,
      `${script}.setup`,
      ...pieces,
    ];
    const out = await run(argv, folder);
    assertEquals(
      out.trimEnd().split("\n").map((line) => line.trimEnd()),
      ZSH_CASES.map(([, line]) => line.trimEnd()),
    );
  });
});

const FLAGS: readonly Flag[] = ALL_FLAGS;

/** What each command should be completed with: its flags that are not on their way out, as a user types them. */
const WANTED: ReadonlyMap<string, readonly string[]> = new Map(
  COMMANDS.map((command) => [
    command,
    FLAGS.filter((flag) => flag.note === undefined && flag.commands.some((name) => name === command))
      .flatMap(({ name, short }) => short === undefined ? [`--${name}`] : [`--${name}`, `-${short}`])
      .toSorted(),
  ]),
);

/** Lines `COMMAND FLAG FLAG…` as {@linkcode WANTED} has them. */
function flagsByCommand(text: string): ReadonlyMap<string, readonly string[]> {
  return new Map(
    text.trimEnd().split("\n").map((line) => {
      const [command = "", ...flags] = line.split(" ").filter((word) => word !== "");
      return [command, [...new Set(flags)].toSorted()];
    }),
  );
}

e2eTest("bash offers every command and every flag of each, and nothing that is deprecated", [
  program("bash"),
], async () => {
  await withScript("bash", async (folder, script) => {
    const line = `source "$1"; shift
      offered() { COMP_WORDS=(kproxy "$@"); COMP_CWORD=$#; _kproxy; echo "\${COMPREPLY[@]}"; }
      offered ""; for name in "$@"; do echo "$name $(offered "$name" -)"; done`;
    const [commands = "", ...rest] =
      (await run(["bash", "--norc", "-c", line, "bash", script, ...COMMANDS], folder)).split("\n");
    assertEquals(commands.split(" ").toSorted(), COMMANDS.toSorted());
    assertEquals(flagsByCommand(rest.join("\n")), WANTED);
  });
});

e2eTest("fish offers every command and every flag of each, and nothing that is deprecated", [
  program("fish"),
], async () => {
  await withScript("fish", async (folder, script) => {
    const line = `source $argv[1]
      echo (complete -C "kproxy " | string replace -r '\\t.*' '')
      for name in $argv[2..]
        echo $name (complete -C "kproxy $name -" | string replace -r '\\t.*' '') (complete -C "kproxy $name --" | string replace -r '\\t.*' '')
      end`;
    const out = await run(["fish", "--no-config", "-c", line, script, ...COMMANDS], folder);
    const [commands = "", ...rest] = out.split("\n");
    assertEquals(commands.split(" ").toSorted(), COMMANDS.toSorted());
    // It takes a long option of one letter only with one dash.
    const wanted = [...WANTED].map(([name, flags]) =>
      [name, flags.filter((flag) => !/^--.$/.test(flag))] as const
    );
    assertEquals(flagsByCommand(rest.join("\n")), new Map(wanted));
  });
});

Deno.test("zsh completes every command and every flag of each, and nothing that is deprecated", async () => {
  const { out } = await kproxy(["completion", "zsh"]);
  const [, commands = ""] = /commands=\(\n([^]*?)\n {2}\)/.exec(out) ?? [];
  assertEquals([...commands.matchAll(/^ +'([a-z-]+):/gm)].map(([, name = ""]) => name), [...COMMANDS]);
  const cases = [...out.matchAll(/^ {4}([a-z-]+)\)\n {6}_arguments -S([^]*?)^ {6};;$/gm)];
  const offered = cases.map(([, name, specs = ""]) =>
    `${name} ${[...specs.matchAll(/^ +'\*?(--?[a-z0-9-]+)[=+]?\[/gim)].map(([, flag]) => flag).join(" ")}`
  );
  assertEquals(flagsByCommand(offered.join("\n")), WANTED);
});
