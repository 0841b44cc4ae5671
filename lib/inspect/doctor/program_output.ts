/**
 * Whether a program prints what it should, told by how it begins. Pure.
 *
 * @module
 */

/** By the command line, the first that fits: how its output begins, blank lines and warnings left out. Other programs may print anything. */
const BEGINNINGS: readonly (readonly [commandLine: RegExp, beginning: RegExp])[] = [
  [/ (?:--version|-V)$/, /\d+(?:\.\d+)+/],
  [/^ip6?tables\S*-save/, /^\*\w/],
  [/^ip6?tables\S* .*-S /, /^-\w /],
  [/^nft .*list chains/, /^table \S+ \S+ \{/],
  [/^ip .*-json/, /^\[/],
  [/^sysctl -n /, /^[\w.:/-]+(?:\s|$)/],
  [/^sysctl /, /^[\w.:/@-]+ = ?/],
  [/^ipvsadm -Ln/, /^IP Virtual Server /],
];

/** So much is told of an output that nobody expects. */
const SHOWN = 40;

/** The beginning of what a program has printed that is none of its outputs; null if it is well, or there is none. */
export function garbageIn(argv: readonly string[], stdout: string): string | null {
  const line = argv.join(" ");
  const beginning = BEGINNINGS.find(([commandLine]) => commandLine.test(line))?.[1];
  // Without a line end behind it: some print a megabyte in one.
  const first = /^(?!\s*$|#).{0,200}/m.exec(stdout)?.[0];
  if (beginning === undefined || first === undefined || beginning.test(first)) return null;
  return JSON.stringify(first.slice(0, SHOWN));
}
