import { assertEquals } from "@std/assert";
import { startWork } from "../../tests/support/spent.ts";
import { parseNftListing, tablesOfIptables } from "./nft_listing.ts";

const NONE = { permissions: "none" } as const;

const LISTED = `table ip kproxy { # handle 1
	comment "kproxy layout 1"
	set cluster-ips { # handle 6
		type ipv4_addr
		comment "cluster IPs, with { braces }"
		elements = { 10.96.10.1, 10.96.10.2,
			     10.96.10.3 }
	}

	set ranges {
		type ipv4_addr . inet_service
		flags interval
		elements = { 10.0.0.0/8 . 80-90 }
	}

	map service-ips {
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 10.96.10.1 . tcp . 80 counter packets 3 bytes 180 comment "a, b : c" : goto tcp-3, 10.96.10.5 . tcp . 81 : goto gone }
	}

	set affinity-x {
		type ipv4_addr
		size 65535
		flags dynamic,timeout
		timeout 1h1s
		elements = { 10.0.0.1 timeout 10m expires 9m59s948ms }
	}

	set marks {
		type mark
	}

	counter seen {
		packets 0 bytes 0
	}

	chain tcp-3 { # handle 20
		drop # handle 21
	}

	chain pre { # handle 17
		type filter hook prerouting priority dstnat - 10; policy drop;
		ip daddr . meta l4proto . th dport vmap @service-ips # handle 44
		meta mark @marks drop
		ip saddr 10.0.0.1 frobnicate 3 drop comment "# handle 1" # handle 45
	}
}
table inet fw {
	chain in {
		type filter hook input priority filter; policy accept;
		ip6 saddr fd00::1 drop
		meta nfproto ipv4 ip saddr 10.0.0.1 drop
	}
}
table ip6 other {
	chain c {
		frob
	}
}
`;

Deno.test("tables as nft prints them, and what of them cannot be read", NONE, () => {
  const { tables, problems } = parseNftListing(LISTED, "IPv4");
  assertEquals(tables.map(({ label }) => label), ["ip kproxy", "inet fw"]);
  const [own, fw] = tables;
  assertEquals([...own?.containers.keys() ?? []], ["cluster-ips", "ranges", "service-ips", "affinity-x"]);
  const services = own?.containers.get("service-ips");
  assertEquals([...services?.elements ?? []], [["10.96.10.1 . tcp . 80", "goto tcp-3"]]);
  assertEquals(services?.counters?.get("10.96.10.1 . tcp . 80"), { packets: 3, bytes: 180 });
  const affinity = own?.containers.get("affinity-x");
  assertEquals([affinity?.timeoutSeconds, [...affinity?.elements.keys() ?? []]], [3601, ["10.0.0.1"]]);
  assertEquals(own?.containers.get("ranges")?.hasRanges, true);
  const pre = own?.chains.get("pre");
  assertEquals(pre?.base, { type: "filter", hook: "prerouting", priority: -110, policy: "drop" });
  assertEquals(pre?.rules.map(({ statements }) => statements.map(({ kind }) => kind)), [
    ["verdictMap"],
    ["unread"],
    ["match", "unread"],
  ]);
  // A rule about the other family is read, and no packet of this one meets it.
  assertEquals(fw?.chains.get("in")?.rules.map(({ statements }) => statements.length), [1, 2]);
  assertEquals(problems.map(({ place }) => place), [
    "table ip kproxy set marks",
    "table ip kproxy map service-ips",
    "table ip kproxy chain pre",
    "table ip kproxy chain pre",
  ]);
});

Deno.test("a text that is cut off, or none at all", NONE, () => {
  const cut = parseNftListing(LISTED.slice(0, 300), "IPv4");
  assertEquals(cut.problems.at(-1)?.message.endsWith("the text ends within it"), true);
  assertEquals(parseNftListing("", "IPv4"), { tables: [], problems: [] });
  assertEquals(parseNftListing("frob\n", "IPv6").problems, [{
    place: "nftables",
    message: 'line 1: "frob" begins no table',
  }]);
});

Deno.test("tables that iptables keeps its rules in", NONE, () => {
  const text = "# Warning: table ip filter is managed by iptables-nft, do not touch!\ntable ip filter {\n}\n";
  assertEquals([...tablesOfIptables(text)], ["ip filter"]);
});

Deno.test("60,000 elements with comments are read in no more time each than a few", NONE, () => {
  const listing = (count: number): string => {
    const elements = Array.from(
      { length: count },
      (_, at) => `10.${at >> 16}.${at >> 8 & 255}.${at & 255} . tcp . 80 comment "a, ${at}" : drop`,
    );
    return `table ip kproxy {\n\tmap service-ips {\n\t\ttype ipv4_addr . inet_proto . inet_service : verdict\n\t\telements = { ${
      elements.join(",\n\t\t\t     ")
    } }\n\t}\n}\n`;
  };
  const timed = (count: number): number => {
    const text = listing(count);
    const spentMs = startWork();
    const { tables, problems } = parseNftListing(text, "IPv4");
    assertEquals([tables[0]?.containers.get("service-ips")?.elements.size, problems], [count, []]);
    return spentMs();
  };
  timed(3_000);
  const [few, many] = [Math.max(5, timed(3_000)), timed(60_000)];
  // Twenty times as many; to look for the end of all of them at each takes 400 times as long.
  assertEquals(many < 150 * few, true, `${few} ms, ${many} ms`);
});
