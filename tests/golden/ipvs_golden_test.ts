/** IPVS mode on the objects of the golden cases ends in what their files hold. */
import { assertEquals } from "@std/assert";
import { planTexts } from "../../lib/backend/ipvs/store/store.ts";
import type { IpvsPlan } from "../../lib/backend/ipvs/plan/ruleset.ts";
import { GOLDEN_PERMISSIONS } from "../support/golden.ts";
import {
  canonicalChains,
  exampleIpvsPlan,
  expectedChains,
  IPVS_GOLDEN_NAMES,
  linesOf,
  loadCreateLines,
  loadIpvsGolden,
  savedTables,
  serversByKey,
} from "../support/golden_ipvs.ts";

const FAMILIES = ["IPv4", "IPv6"] as const;

function plansOf(name: string): IpvsPlan[] {
  const { objects } = loadIpvsGolden(name);
  return FAMILIES.map((family) => exampleIpvsPlan(family, objects));
}

for (const name of IPVS_GOLDEN_NAMES) {
  Deno.test(`golden IPVS: ${name}: virtual and real servers`, { permissions: GOLDEN_PERMISSIONS }, () => {
    const written = plansOf(name).map((plan) => planTexts(plan).ipvsadm).join("");
    assertEquals(serversByKey(written), serversByKey(loadIpvsGolden(name).ipvsadm));
  });

  Deno.test(`golden IPVS: ${name}: sets and addresses`, { permissions: GOLDEN_PERMISSIONS }, () => {
    const { ipset } = loadIpvsGolden(name);
    const texts = plansOf(name).map(planTexts);
    assertEquals(texts.flatMap((text) => linesOf(text.ipset, "add ")).sort(), linesOf(ipset, "add ").sort());
    assertEquals(texts.flatMap((text) => linesOf(text.ipset, "create ")), loadCreateLines());
    const bound = linesOf(ipset, "add KUBE-IPVS-IPS ").map((line) => line.split(" ")[2] + "/32")
      .concat(linesOf(ipset, "add KUBE-6-IPVS-IPS ").map((line) => line.split(" ")[2] + "/128"));
    assertEquals(
      texts.flatMap((text) => linesOf(text.ip, "address add ")).map((line) => line.split(" ")[2]).sort(),
      bound.sort(),
    );
  });
}

for (const name of IPVS_GOLDEN_NAMES) {
  for (const [index, family] of FAMILIES.entries()) {
    Deno.test(`golden IPVS: ${name}: rules of ${family}`, { permissions: GOLDEN_PERMISSIONS }, () => {
      assertEquals(canonicalChains(savedTables(plansOf(name)[index]!)), expectedChains(name, family));
    });
  }
}

/** The text of 1.6, which is that of two of capture-1's Services. */
Deno.test("golden IPVS: restore text of two load balancers", { permissions: GOLDEN_PERMISSIONS }, () => {
  const objects = loadIpvsGolden("capture-1").objects.filter((object) =>
    ["ingress", "ingress-1", "api", "api-1"].includes(object.name)
  );
  const expected = Deno.readTextFileSync(new URL("ipvs/restore-two.rules", import.meta.url));
  assertEquals(planTexts(exampleIpvsPlan("IPv4", objects)).iptables, expected);
});
