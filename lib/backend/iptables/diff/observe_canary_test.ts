import { assertEquals } from "@std/assert";
import { hasMangleCanary } from "./observe_canary.ts";

const CANARY = ":KUBE-PROXY-CANARY - [0:0]\n";
const table = (name: string, lines: string): string => `*${name}\n:INPUT ACCEPT [0:0]\n${lines}COMMIT\n`;

for (
  const [what, saved, has] of [
    ["nothing at all", "", false],
    ["first in the text", table("mangle", CANARY) + table("nat", ""), true],
    [
      "behind a comment and other tables",
      `# Generated\n${table("nat", CANARY)}${table("mangle", CANARY)}`,
      true,
    ],
    ["mangle without it, nat with it", table("mangle", "") + table("nat", CANARY), false],
    ["nat alone", table("nat", CANARY), false],
    ["one of a similar name", table("mangle", ":KUBE-PROXY-CANARY-2 - [0:0]\n"), false],
  ] as const
) {
  Deno.test(`the canary of mangle: ${what}`, { permissions: "none" }, () => {
    assertEquals(hasMangleCanary(saved), has);
  });
}
