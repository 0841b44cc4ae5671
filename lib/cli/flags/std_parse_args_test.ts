/**
 * What `parseArgs` of `@std/cli` makes of words that pflag, and so kproxy, reads otherwise, with one case for each rule, and the words
 * that both read alike. A command line of kube-proxy must mean the same to kproxy, so kproxy has its own parser.
 */
import { assertEquals, assertThrows } from "@std/assert";
import { type Args, parseArgs as stdParseArgs } from "@std/cli/parse-args";
import { UsageError } from "../../errors.ts";
import type { FlagValue } from "../../config/flags_overlay.ts";
import { type FlagName, FLAGS } from "./flags.ts";
import { parseArgs } from "./parse_args.ts";

const SWITCHES = FLAGS.filter(({ kind }) => kind === "bool" || kind === "version").map(({ name }) => name);
const VALUED = FLAGS.map(({ name }) => name).filter((name) => !SWITCHES.includes(name));
const SHORT = Object.fromEntries(
  FLAGS.flatMap(({ name, short }) => short === undefined ? [] : [[name, short]]),
);

type StdArgs = Args<FlagName, FlagName, never>;

/** `parseArgs` told everything about the flags that it can be told. */
function std(words: readonly string[]): StdArgs {
  return stdParseArgs(words, {
    boolean: SWITCHES,
    string: VALUED,
    alias: SHORT,
    "--": true,
    unknown: (arg, key) => {
      if (key !== undefined) throw new UsageError(`Unknown flag "${arg}"`);
    },
  }) as StdArgs;
}

/** Flags of `run` that were given, and their values. */
type Given = Partial<Record<FlagName, FlagValue>>;

function kproxy(words: readonly string[]): Given {
  const flags = parseArgs(["run", ...words]);
  return Object.fromEntries(flags.values);
}

interface Difference {
  /** pflag's rule, which `parseArgs` breaks. */
  readonly rule: string;
  readonly words: readonly string[];
  /** Some flag as `parseArgs` leaves it, or the flag that it does not know. */
  readonly std: Readonly<Record<string, unknown>> | string;
  /** All flags as kproxy reads them, or what it says is wrong. */
  readonly kproxy: Given | string;
}

const DIFFERENCES: readonly Difference[] = [
  {
    rule: "A switch takes no word that follows",
    words: ["--cleanup", "false"],
    std: { cleanup: false },
    kproxy:
      '"kproxy run" does not take any arguments, got ["false"]: write a switch\'s value with "=", as --flag=false',
  },
  {
    rule: "A switch takes Go's words for true and false, and no others",
    words: ["--cleanup=F"],
    std: { cleanup: true },
    kproxy: { cleanup: false },
  },
  {
    rule: "A switch takes Go's words for true and false, and no others",
    words: ["--cleanup=maybe"],
    std: { cleanup: true },
    kproxy: 'Invalid value "maybe" for --cleanup: want true or false',
  },
  {
    rule: "A switch that is off differs from one that was not given",
    words: ["--profiling=false"],
    std: { profiling: false, cleanup: false },
    kproxy: { profiling: false },
  },
  {
    rule: "The word after a flag is its value, whatever it begins with",
    words: ["--oom-score-adj", "-998"],
    std: 'Unknown flag "-998"',
    kproxy: { "oom-score-adj": -998 },
  },
  {
    rule: "The word after a flag is its value, whatever it begins with",
    words: ["--config", "--odd-name"],
    std: 'Unknown flag "--odd-name"',
    kproxy: { config: "--odd-name" },
  },
  {
    rule: "The word after a flag is its value, even an empty one",
    words: ["--resource-container", "", "--v=2"],
    std: { _: [""], "resource-container": "" },
    kproxy: { "resource-container": "", v: 2 },
  },
  {
    rule: "The word after a flag is its value, even `--`",
    words: ["--hostname-override", "--", "--v=2"],
    std: { "hostname-override": "", "--": ["--v=2"], v: undefined },
    kproxy: { "hostname-override": "--", v: 2 },
  },
  {
    rule: "A flag without its value is an error",
    words: ["--master"],
    std: { master: "" },
    kproxy: 'Flag "--master" needs a value: write --master=VALUE',
  },
  {
    rule: "Letters stand together, the last with its value",
    words: ["-hv4"],
    std: { help: "v4", v: undefined },
    kproxy: { help: true, v: 4 },
  },
  {
    rule: "A letter's value begins right behind it",
    words: ["-vhigh"],
    std: 'Unknown flag "-vhigh"',
    kproxy: 'Invalid value "high" for -v: want an integer from 0 to 2147483647',
  },
  {
    rule: "Every value is judged, also one that a later one replaces",
    words: ["--v=high", "--v=2"],
    std: { v: "2" },
    kproxy: 'Invalid value "high" for --v: want an integer from 0 to 2147483647',
  },
  {
    rule: "The first mistake of the line is the one that is told",
    words: ["--v=high", "--nonsense"],
    std: 'Unknown flag "--nonsense"',
    kproxy: 'Invalid value "high" for --v: want an integer from 0 to 2147483647',
  },
  {
    rule: "A name may have underscores",
    words: ["--cluster_cidr=10.0.0.0/8"],
    std: 'Unknown flag "--cluster_cidr=10.0.0.0/8"',
    kproxy: { "cluster-cidr": "10.0.0.0/8" },
  },
];

/** Words that both read alike. */
const ALIKE: readonly (readonly [
  words: readonly string[],
  std: Record<string, unknown> | string,
  kproxy: Given | string,
])[] = [
  [["--cleanup"], { cleanup: true }, { cleanup: true }],
  [["--cleanup=false"], { cleanup: false }, { cleanup: false }],
  [["-v4"], { v: "4" }, { v: 4 }],
  [["-v=4"], { v: "4" }, { v: 4 }],
  [["-v", "4"], { v: "4" }, { v: 4 }],
  [["--v=2", "-v=3"], { v: "3" }, { v: 3 }],
  [["--oom-score-adj=-998"], { "oom-score-adj": "-998" }, { "oom-score-adj": -998 }],
  [["--master=a=b"], { master: "a=b" }, { master: "a=b" }],
  [["--resource-container="], { "resource-container": "" }, { "resource-container": "" }],
  [["--no-cleanup"], 'Unknown flag "--no-cleanup"', 'Unknown flag "--no-cleanup"'],
];

/** What `read` yields, or what it says is wrong. */
function outcome<T>(read: () => T): T | string {
  try {
    return read();
  } catch (error) {
    if (error instanceof UsageError) return error.message;
    throw error;
  }
}

function assertStd(words: readonly string[], expected: Readonly<Record<string, unknown>> | string): void {
  const found = outcome(() => std(words));
  if (typeof expected === "string" || typeof found === "string") {
    return assertEquals<unknown>(found, expected);
  }
  const all = found as unknown as Record<string, unknown>;
  const some = Object.fromEntries(Object.keys(expected).map((name) => [name, all[name]]));
  assertEquals(some, expected, words.join(" "));
}

Deno.test("each rule of pflag that parseArgs of @std/cli breaks is kept", { permissions: "none" }, () => {
  for (const { words, std, kproxy: expected } of DIFFERENCES) {
    assertStd(words, std);
    assertEquals<unknown>(outcome(() => kproxy(words)), expected, words.join(" "));
  }
});

Deno.test("what parseArgs of @std/cli reads as pflag does is read so, too", { permissions: "none" }, () => {
  for (const [words, std, expected] of ALIKE) {
    assertStd(words, std);
    const found = outcome(() => kproxy(words));
    // A suggestion may follow.
    assertEquals<unknown>(typeof found === "string" ? found.split(":")[0] : found, expected, words.join(" "));
  }
  assertThrows(() => std(["--nonsense"]), UsageError);
});
