import { assertEquals } from "@std/assert";
import { didYouMean, suggestion } from "./suggest.ts";

const WORDS = [
  "config",
  "config-lenient",
  "config-sync-period",
  "conntrack-max-per-core",
  "v",
  "vmodule",
  "cleanup",
];

Deno.test(
  "a slip of the keyboard finds the word, a different word finds none",
  { permissions: "none" },
  () => {
    const cases: [given: string, expected: string | undefined][] = [
      ["confg", "config"],
      ["conifg", "config"],
      ["Config", "config"],
      ["CONFIG_SYNC_PERIOD", "config-sync-period"],
      ["config-sync-peroid", "config-sync-period"],
      ["conntrack-max-per", "conntrack-max-per-core"],
      ["conntrack", "conntrack-max-per-core"],
      ["clean-up", "cleanup"],
      ["kubelet", undefined],
      ["xyz", undefined],
      ["", undefined],
      ["listen", undefined],
    ];
    for (const [given, expected] of cases) assertEquals(suggestion(given, WORDS), expected, given);
  },
);

Deno.test("the question dresses the word and vanishes without one", { permissions: "none" }, () => {
  assertEquals(didYouMean("confg", WORDS, (word) => `--${word}`), `: did you mean "--config"?`);
  assertEquals(didYouMean("nothing-like-it", WORDS), "");
});
