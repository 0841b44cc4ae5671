import { assertEquals } from "@std/assert";
import { listedChains } from "./nft_jumps.ts";

// As nft 1.0.6 printed it.
const TABLE = `table ip filter { # handle 1
\tchain KUBE-SERVICES { # handle 3
\t}

\tmap m { # handle 5
\t\ttype ipv4_addr : verdict
\t\telements = { 1.2.3.5 : jump MAPPED }
\t}

\tchain MINE { # handle 4
\t\t counter packets 0 bytes 0 goto KUBE-SERVICES # handle 5
\t}

\tchain OUTPUT { # handle 6
\t\ttype filter hook output priority filter; policy accept;
\t\tct state new  counter packets 0 bytes 0 jump KUBE-SERVICES # handle 7
\t\tcounter packets 0 bytes 0 jump KUBE-SERVICES comment "hey jump KUBE-FIREWALL" # handle 8
\t\tip daddr vmap { 1.2.3.4 : jump KUBE-SERVICES, 1.2.3.6 : goto MINE } # handle 10
\t\toifname "jump eth0" drop # handle 11
\t}
}
`;

Deno.test("chains and where their rules lead, as nft lists them", { permissions: "none" }, () => {
  const found = [...listedChains(TABLE)].map(([name, { isHooked, rules }]) => [
    name,
    isHooked,
    rules.map(({ handle, targets }) => [handle, ...targets].join(" ")),
  ]);
  assertEquals(found, [
    ["KUBE-SERVICES", false, []],
    ["MINE", false, ["5 KUBE-SERVICES"]],
    ["OUTPUT", true, ["7 KUBE-SERVICES", "8 KUBE-SERVICES", "10 KUBE-SERVICES MINE", "11"]],
  ]);
  assertEquals(listedChains(TABLE).get("OUTPUT")?.rules.at(-1)?.text, 'oifname "jump eth0" drop');
});
