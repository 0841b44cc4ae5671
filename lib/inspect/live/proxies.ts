/**
 * Which service proxies' rules are in force, told by what is there.
 *
 * @module
 */
import type { HeldRules } from "../../sim/node/held_rules.ts";
import type { FoundProxy } from "./live.ts";

const SERVICES_CHAIN = "KUBE-SERVICES";
/** Sets and virtual servers make it IPVS mode; the chains' names are those of iptables mode. */
const IPVS_SET = "KUBE-CLUSTER-IP";
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
    const mode = services.rules.some((rule) => rule.includes(IPVS_SET)) ? "ipvs" : "iptables";
    const where = variant === "" ? "" : ` (iptables ${variant})`;
    found.push({
      mode,
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
