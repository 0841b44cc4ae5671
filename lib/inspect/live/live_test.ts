import { assertEquals } from "@std/assert";
import { parseIptablesSave } from "../../netfilter/iptables_save.ts";
import { foundProxies } from "./live.ts";

/** Modes found in a table nat with these lines in a proxy's chains. */
function modesOf(...lines: readonly string[]): readonly (readonly [mode: string, isHooked: boolean])[] {
  const chains = new Set(lines.map((line) => line.split(" ")[1]!));
  chains.delete("PREROUTING");
  const text = [
    "*nat",
    ":PREROUTING ACCEPT [0:0]",
    ...[...chains].map((chain) => `:${chain} - [0:0]`),
    ...lines,
    "COMMIT",
    "",
  ].join("\n");
  const tables = parseIptablesSave(text);
  const held = {
    family: "IPv4",
    iptables: [{ variant: "nft", tables }],
    nftables: [],
    sets: new Map(),
    ipvs: null,
  } as const;
  return foundProxies(held).map(({ mode, isHooked }) => [mode, isHooked] as const);
}

const HOOK = "-A PREROUTING -j KUBE-SERVICES";
const NODE_PORTS = "-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j";

Deno.test(
  "IPVS mode is distinguished from iptables mode, whose chains it shares, at every size and of both families",
  {
    permissions: "none",
  },
  () => {
    for (const set of ["KUBE-CLUSTER-IP", "KUBE-6-CLUSTER-IP", "KUBE-LOAD-BALANCER"]) {
      const rule = `-A KUBE-SERVICES -m set --match-set ${set} dst,dst -j KUBE-MARK-MASQ`;
      assertEquals(modesOf(HOOK, rule), [["ipvs", true]]);
    }
    // Without a Service of the family no rule names a set.
    assertEquals(modesOf(HOOK, `${NODE_PORTS} KUBE-NODE-PORT`, "-A KUBE-NODE-PORT -j RETURN"), [[
      "ipvs",
      true,
    ]]);
    assertEquals(modesOf(HOOK, `${NODE_PORTS} KUBE-NODEPORTS`), [["iptables", true]]);
    assertEquals(modesOf(`-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -j KUBE-SVC-ABC`), [["iptables", false]]);
    assertEquals(modesOf("-A KUBE-POSTROUTING -j RETURN"), []);
    // Leftovers of IPVS mode do not change the mode that is found.
    const left = "-A KUBE-NODE-PORT -j RETURN";
    assertEquals(modesOf(HOOK, left, `${NODE_PORTS} KUBE-NODEPORTS`), [["iptables", true]]);
  },
);
