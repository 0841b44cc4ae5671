/** IPVS mode on the objects of the reference's captures ends in what kube-proxy's tools printed there. */
import { assertEquals } from "@std/assert";
import { planTexts } from "../../lib/backend/ipvs/render.ts";
import type { IpvsPlan } from "../../lib/backend/ipvs/ruleset.ts";
import { canonicalRuleText } from "../../lib/netfilter/canonical_iptables_rule.ts";
import { parseIptablesSave } from "../../lib/netfilter/iptables_save.ts";
import { GOLDEN_PERMISSIONS } from "../support/golden.ts";
import {
  canonicalChains,
  exampleIpvsPlan,
  IPVS_GOLDEN_NAMES,
  linesOf,
  loadIpvsGolden,
  savedTables,
  serversByKey,
  withBuiltinChains,
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
    assertEquals(texts.flatMap((text) => linesOf(text.ipset, "create ")).length, 34);
    const bound = linesOf(ipset, "add KUBE-IPVS-IPS ").map((line) => line.split(" ")[2] + "/32")
      .concat(linesOf(ipset, "add KUBE-6-IPVS-IPS ").map((line) => line.split(" ")[2] + "/128"));
    assertEquals(
      texts.flatMap((text) => linesOf(text.ip, "address add ")).map((line) => line.split(" ")[2]).sort(),
      bound.sort(),
    );
  });
}

for (const [index, file] of ["iptables-save.txt", "ip6tables-save.txt"].entries()) {
  Deno.test(`golden IPVS: capture-1: ${file}`, { permissions: GOLDEN_PERMISSIONS }, () => {
    const expected = parseIptablesSave(withBuiltinChains(loadIpvsGolden("capture-1").rules[file] ?? ""));
    assertEquals(canonicalChains(savedTables(plansOf("capture-1")[index]!)), canonicalChains(expected));
  });
}

Deno.test("golden IPVS: capture-2: rules that capture-1 lacks", { permissions: GOLDEN_PERMISSIONS }, () => {
  const canonicalLine = (line: string): string => {
    const [, chain = "", rule = ""] = /^-A (\S+) (.*)$/.exec(line) ?? [];
    return `${chain} ${canonicalRuleText(rule)}`;
  };
  const linesOfText = (text = ""): string[] => linesOf(text, "-A ").map(canonicalLine);
  const known = new Set(linesOfText(loadIpvsGolden("capture-1").rules["iptables-save.txt"]));
  const written = linesOfText(planTexts(plansOf("capture-2")[0]!).iptables);
  const more = linesOfText(loadIpvsGolden("capture-2").rules["more-rules.txt"]);
  assertEquals(written.filter((line) => !known.has(line)).sort(), more.sort());
});

/** The text of 1.6, which is that of two of capture-1's Services. */
Deno.test("golden IPVS: restore text of two load balancers", { permissions: GOLDEN_PERMISSIONS }, () => {
  const objects = loadIpvsGolden("capture-1").objects.filter((object) =>
    ["ingress", "ingress-1", "api", "api-1"].includes(object.name)
  );
  const expected = Deno.readTextFileSync(new URL("ipvs/restore-two.rules", import.meta.url));
  assertEquals(planTexts(exampleIpvsPlan("IPv4", objects)).iptables, expected);
});
