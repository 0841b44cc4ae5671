/**
 * Which service proxies' rules are in force, told by what is there.
 *
 * @module
 */
import type { HeldRules } from "../../sim/node/held_rules.ts";
import type { FoundProxy } from "./live.ts";

const SERVICES_CHAIN = "KUBE-SERVICES";
/** Where the rules of iptables mode go on from there; IPVS mode has that chain, too. */
const IPTABLES_JUMP = /-j KUBE-(SVC|SVL|EXT|FW|NODEPORTS)\b/;
/** Only IPVS mode has it, whatever the node serves. */
const IPVS_CHAIN = "KUBE-NODE-PORT";
const IPVS_SET = /--match-set KUBE-/;
const NFT_TABLES: ReadonlyMap<string, FoundProxy["layout"]> = new Map([
  ["kproxy", "kproxy"],
  ["kube-proxy", "kube-proxy"],
]);

/** Those of kproxy and kube-proxy, which share the layouts of iptables and IPVS mode. */
export function foundProxies({ iptables, nftables }: HeldRules): readonly FoundProxy[] {
  const found: FoundProxy[] = [];
  for (const { tables, variant } of iptables) {
    const nat = tables.get("nat");
    const services = nat?.get(SERVICES_CHAIN);
    if (services === undefined) continue;
    const isHooked = ["PREROUTING", "OUTPUT"].some((chain) =>
      nat?.get(chain)?.rules.some((rule) => rule.includes(`-j ${SERVICES_CHAIN}`)) === true
    );
    const says = (words: RegExp): boolean => services.rules.some((rule) => words.test(rule));
    const isIpvs = !says(IPTABLES_JUMP) && (nat?.has(IPVS_CHAIN) === true || says(IPVS_SET));
    const where = variant === "" ? "" : ` (iptables ${variant})`;
    found.push({
      mode: isIpvs ? "ipvs" : "iptables",
      layout: "kube-proxy",
      sign: `chain ${SERVICES_CHAIN} of table nat${where}`,
      isHooked,
    });
  }
  for (const { name, label, chains } of nftables) {
    const layout = NFT_TABLES.get(name);
    if (layout === undefined) continue;
    const isHooked = chains.values().some(({ base }) => base?.type === "nat" && base.hook === "prerouting");
    found.push({ mode: "nftables", layout, sign: `table ${label ?? name}`, isHooked });
  }
  return found;
}
