import { assertEquals } from "@std/assert";
import { nftSeconds } from "./nft_duration.ts";

Deno.test("times of nft are seconds", { permissions: "none" }, () => {
  const cases: readonly [string, number | null][] = [
    ["600s", 600],
    ["1h30m", 5_400],
    ["3h", 10_800],
    ["1d2h3m4s", 93_784],
    ["2s500ms", 2.5],
    ["", null],
    ["soon", null],
    ["5", null],
    ["1h later", null],
    ["-1s", null],
  ];
  for (const [text, seconds] of cases) assertEquals(nftSeconds(text), seconds, text);
});
