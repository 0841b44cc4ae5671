import { assert, assertEquals } from "@std/assert";
import { startWork } from "../../tests/support/spent.ts";
import { closestWord, didYouMean, suggestion } from "./suggest.ts";

Deno.test("closestWord() names a candidate only if it is near", { permissions: "none" }, () => {
  const fields = ["mode", "iptables", "ipvs", "nodePortAddresses", "on"];
  const cases: [string, string | undefined][] = [
    ["mdoe", "mode"],
    ["no", "on"],
    ["abc", undefined],
    ["MODE", "mode"],
    ["iptable", "iptables"],
    ["nodeportaddress", "nodePortAddresses"],
    ["nodePortAddr", undefined],
    ["kubelet", undefined],
    ["of", "on"],
    ["xy", undefined],
    ["", undefined],
  ];
  for (const [word, expected] of cases) assertEquals(closestWord(word, fields), expected, word);
  assertEquals(closestWord("mode", []), undefined);
});

Deno.test("closestWord() allows an edit for every four letters", {
  permissions: "none",
}, () => {
  const kinds = ["Service", "EndpointSlice", "Node"];
  const cases: [string, string | undefined][] = [
    ["service", "Service"],
    ["Servcie", "Service"],
    ["EndpontSlce", "EndpointSlice"],
    ["EndSlice", undefined],
    ["Pod", undefined],
    ["Nod", "Node"],
    ["N", undefined],
    ["Endpoint".repeat(6), undefined],
  ];
  for (const [word, expected] of cases) assertEquals(closestWord(word, kinds), expected, word);
  assertEquals(closestWord("x".repeat(40), ["x".repeat(54), "x".repeat(30)]), "x".repeat(30));
});

Deno.test(
  "a text of megabytes is near to nothing, and that is known at once",
  { permissions: "none" },
  () => {
    const spentMs = startWork();
    const long = "kubeproxy.config.k8s.io/v1alpha1".repeat(40_000);
    assertEquals(closestWord(long, ["kubeproxy"]), undefined);
    assert(spentMs() < 100);
  },
);

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
