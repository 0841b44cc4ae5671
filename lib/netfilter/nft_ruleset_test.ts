import { assertEquals } from "@std/assert";
import { parseNftListing } from "./nft_listing.ts";
import { baseOf, NftTable } from "./nft_ruleset.ts";

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
  const { tables, problems } = parseNftListing(LISTED);
  assertEquals([tables.map(({ name }) => name), problems], [["ip kproxy", "inet fw", "ip6 other"], []]);
  const [own, fw] = tables.map((table) => new NftTable(table, "IPv4"));
  const { containers, chains } = own!.listed;
  assertEquals([...containers.keys()].map((name) => own?.keyTypes(name)), [
    ["ipv4_addr"],
    ["ipv4_addr", "inet_service"],
    ["ipv4_addr", "inet_proto", "inet_service"],
    ["ipv4_addr"],
    null,
  ]);
  const services = containers.get("service-ips");
  assertEquals(services?.counters.get("10.96.10.1 . tcp . 80"), { packets: 3, bytes: 180 });
  const affinity = containers.get("affinity-x");
  assertEquals([affinity?.timeoutSeconds, [...affinity?.elements.keys() ?? []]], [3601, ["10.0.0.1"]]);
  assertEquals(containers.get("ranges")?.hasRanges, true);
  assertEquals(baseOf(chains.get("pre")?.hook), {
    type: "filter",
    hook: "prerouting",
    priority: -110,
    policy: "drop",
  });
  assertEquals(own?.rulesOf("pre")?.map(({ statements }) => statements.map(({ kind }) => kind)), [
    ["verdictMap"],
    ["unread"],
    ["match", "unread"],
  ]);
  // A rule about the other family is read, and no packet of this one meets it.
  assertEquals(fw?.rulesOf("in")?.map(({ statements }) => statements.length), [1, 2]);
  assertEquals([...own?.problems() ?? []].map(({ place }) => place), [
    "table ip kproxy map service-ips",
    "table ip kproxy set marks",
    "table ip kproxy chain pre",
    "table ip kproxy chain pre",
  ]);
});

Deno.test("a text that is cut off, or none at all", NONE, () => {
  const cut = parseNftListing(LISTED.slice(0, 300));
  assertEquals(cut.problems.at(-1)?.message.endsWith("the text ends within it"), true);
  assertEquals(parseNftListing(""), { tables: [], problems: [] });
  assertEquals(parseNftListing("frob\n").problems, [{
    place: "nftables",
    message: 'line 1: "frob" begins no table',
  }]);
});
