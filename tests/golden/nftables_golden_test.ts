import { assertEquals } from "@std/assert";
import { renderPlan } from "../../lib/backend/nftables/store/full_sync.ts";
import type { IpFamily } from "../../lib/model/objects.ts";
import { GOLDEN_PERMISSIONS, goldenNames, loadGolden } from "../support/golden.ts";
import { exampleNftablesPlan, loadGoldenNftables } from "../support/golden_nftables.ts";

for (const name of goldenNames()) {
  Deno.test(`golden table of nftables: ${name}`, { permissions: GOLDEN_PERMISSIONS }, () => {
    const { objects, expected: iptables } = loadGolden(name);
    const expected = loadGoldenNftables(name);
    assertEquals(Object.keys(expected), Object.keys(iptables));
    for (const [family, text] of Object.entries(expected)) {
      assertEquals(renderPlan(exampleNftablesPlan(family as IpFamily, objects)), text);
    }
  });
}
