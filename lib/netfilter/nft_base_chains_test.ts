import { assertEquals } from "@std/assert";
import { parseBaseChains } from "./nft_base_chains.ts";

const TEXT = `table ip nat {
	chain PREROUTING {
		type nat hook prerouting priority -100; policy accept;
	}
	chain KUBE-SERVICES {
	}
}
table inet firewalld {
	chain filter_FORWARD {
		type filter hook forward priority filter + 10; policy drop;
	}
	chain mangle_PREROUTING {
		type filter hook prerouting priority mangle - 10;
	}
}
table netdev t {
	chain in {
		type filter hook ingress device "eth0" priority 0; policy accept;
	}
}
`;

Deno.test("chains with hooks are read with their tables, priorities as numbers or words, and policies", {
  permissions: "none",
}, () => {
  assertEquals(
    parseBaseChains(TEXT).map(({ family, table, name, type, hook, priority, policy }) =>
      `${family} ${table} ${name} ${type} ${hook} ${priority} ${policy}`
    ),
    [
      "ip nat PREROUTING nat prerouting -100 accept",
      "inet firewalld filter_FORWARD filter forward 10 drop",
      "inet firewalld mangle_PREROUTING filter prerouting -160 accept",
      "netdev t in filter ingress 0 accept",
    ],
  );
});

Deno.test("a text of something else has no chains", { permissions: "none" }, () => {
  const texts = [
    "",
    "garbage {\n}",
    "type nat hook prerouting priority -100;",
    "table ip x {\ntype filter hook input priority 0;",
  ];
  for (const text of [...texts, "table ip x {\nchain c {\ntype filter hook input priority sooner;\n"]) {
    assertEquals(parseBaseChains(text), [], text);
  }
});
