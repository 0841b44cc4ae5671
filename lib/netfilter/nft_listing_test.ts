import { assert, assertEquals } from "@std/assert";
import { startWork } from "../../tests/support/spent.ts";
import {
  listedChains,
  type ListedTable,
  nftSeconds,
  NftTableReader,
  parseBaseChains,
  parseCounters,
  parseNftListing,
  parseTable,
  tablesOfIptables,
} from "./nft_listing.ts";

const NONE = { permissions: "none" } as const;

const AFFINITY = "affinity-BNZJJVPA-shop/cart/tcp/__10.244.0.21/6379";

/** Output of nft 1.0.6. */
const LISTED = `table ip kproxy { # handle 1
	comment "kproxy layout 1"
	set cluster-ips { # handle 6
		type ipv4_addr
		comment "cluster IPs, with { braces }"
		elements = { 10.96.10.1, 10.96.10.2,
			     10.96.10.3 }
	}

	set nodeport-ips { # handle 7
		type ipv4_addr
	}

	map service-ips { # handle 1
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 10.96.10.2 . udp . 53 : goto udp-2,
			     10.96.10.1 . tcp . 80 comment "a, b : c" : goto tcp-3,
			     10.96.10.5 . tcp . 81 counter packets 3 bytes 180 comment "x" : drop }
	}

	map endpoints-tcp { # handle 9
		typeof ip daddr . tcp dport . numgen random mod 65536 : ip daddr . tcp dport
		elements = { 10.96.10.1 . 80 . 0 : 10.244.0.11 . 8080 }
	}

	set affinity-BNZJJVPA-shop/cart/tcp/__10.244.0.21/6379 { # handle 55
		type ipv4_addr
		size 65535
		flags dynamic,timeout
		timeout 1d1h1m1s
		elements = { 10.0.0.1 timeout 10m expires 9m59s948ms, 10.0.0.2 timeout 10m expires 9m59s948ms,
			     10.0.0.3 expires 1s }
	}

	chain reject-chain { # handle 20
		comment "made by hand # handle 3"
		reject # handle 21
	}

	chain empty { # handle 22
	}

	chain nat-prerouting { # handle 17
		type nat hook prerouting priority dstnat; policy accept;
		jump services # handle 43
		ip daddr 10.0.0.1 drop comment "# handle 1" # handle 44
	}
}
`;

function elementsOf({ containers }: ListedTable, name: string): readonly (readonly string[])[] {
  return [...containers.get(name)?.elements ?? []];
}

Deno.test("a table as nft prints it", NONE, () => {
  const table = parseTable(LISTED);
  assertEquals([table.name, table.comment], ["ip kproxy", "kproxy layout 1"]);
  assertEquals([...table.containers.keys()].map((name) => [name, ...elementsOf(table, name)]), [
    ["cluster-ips", ["10.96.10.1", ""], ["10.96.10.2", ""], ["10.96.10.3", ""]],
    ["nodeport-ips"],
    [
      "service-ips",
      ["10.96.10.2 . udp . 53", "goto udp-2"],
      ["10.96.10.1 . tcp . 80", "goto tcp-3"],
      ["10.96.10.5 . tcp . 81", "drop"],
    ],
    ["endpoints-tcp", ["10.96.10.1 . 80 . 0", "10.244.0.11 . 8080"]],
    [AFFINITY, ["10.0.0.1", ""], ["10.0.0.2", ""], ["10.0.0.3", ""]],
  ]);
  assertEquals([...table.containers.get("service-ips")?.comments ?? []], [
    ["10.96.10.1 . tcp . 80", "a, b : c"],
    ["10.96.10.5 . tcp . 81", "x"],
  ]);
  assertEquals(table.containers.get(AFFINITY)?.timeoutSeconds, 90061);
  assertEquals(table.containers.get(AFFINITY)?.expiring, [
    "10.0.0.1 timeout 10m expires 9m59s948ms",
    "10.0.0.2 timeout 10m expires 9m59s948ms",
    "10.0.0.3 expires 1s",
  ]);
  assertEquals(table.containers.get("cluster-ips")?.timeoutSeconds, undefined);
  assertEquals([...table.chains.values()], [
    { name: "reject-chain", rules: ["reject"] },
    { name: "empty", rules: [] },
    {
      name: "nat-prerouting",
      hook: "type nat hook prerouting priority dstnat; policy accept;",
      rules: ["jump services", 'ip daddr 10.0.0.1 drop comment "# handle 1"'],
    },
  ]);
  assertEquals([...table.handles], [["reject-chain", [21]], ["empty", []], ["nat-prerouting", [43, 44]]]);
});

Deno.test("of a ruleset only the wanted table is read", NONE, () => {
  const others = LISTED.replace("ip kproxy", "ip theirs").replaceAll("goto", "jump");
  for (const text of [`${others}${LISTED}`, `${LISTED}${others}`, `table ip x {\n}\n${LISTED}`]) {
    const reader = new NftTableReader("ip kproxy");
    reader.text(text);
    assertEquals(reader.end(), parseTable(LISTED));
  }
  const reader = new NftTableReader("ip kproxy");
  reader.text(others);
  assertEquals(reader.end(), parseTable(""));
});

Deno.test("the last line counts without its end, too", NONE, () => {
  const table = parseTable("table ip kproxy {\n\tset x {\n\t\telements = { 10.0.0.1, 10.0.0.2 }");
  assertEquals(elementsOf(table, "x"), [["10.0.0.1", ""], ["10.0.0.2", ""]]);
});

Deno.test("IPv6 keys hold colons", NONE, () => {
  const table = parseTable(`table ip6 kproxy { # handle 1
	map endpoints-tcp { # handle 9
		elements = { fd00:10:96::9 . 80 . 0 : fd00:10:244::91 . 8080,
			     ::1 . 80 . 1 : ::2 . 8080 }
	}
}`);
  assertEquals(elementsOf(table, "endpoints-tcp"), [
    ["fd00:10:96::9 . 80 . 0", "fd00:10:244::91 . 8080"],
    ["::1 . 80 . 1", "::2 . 8080"],
  ]);
});

Deno.test("no table", NONE, () => {
  const { name, comment, ownerProblem, chains, containers } = parseTable("");
  assertEquals([name, comment, ownerProblem, chains.size, containers.size], ["", "", null, 0, 0]);
});

Deno.test("counters", NONE, () => {
  const text = `table ip kproxy {
	set service-traffic-in {
		type ipv4_addr . inet_proto . inet_service
		counter
		comment "packets to endpoints"
		elements = { 10.96.0.1 . udp . 53 counter packets 7 bytes 203,
			     10.96.0.1 . tcp . 80 counter packets 0 bytes 0, tcp . 30080 counter packets 12 bytes 3400 comment "x" }
	}
}
`;
  assertEquals([...parseCounters(text)], [
    ["10.96.0.1 . udp . 53", { packets: 7, bytes: 203 }],
    ["10.96.0.1 . tcp . 80", { packets: 0, bytes: 0 }],
    ["tcp . 30080", { packets: 12, bytes: 3400 }],
  ]);
  assertEquals(
    parseTable(
      text.replace("ip kproxy {", "ip kproxy { # handle 1").replace(
        "traffic-in {",
        "traffic-in { # handle 2",
      ),
    ).containers.get("service-traffic-in")?.elements.size,
    3,
  );
});

const OWNED =
  "another process (nft) (flags owner), and no other program may change or remove it until that ends";
const HEADS: readonly [name: string, head: string, problem: string | null][] = [
  ["ours", '{ # handle 1\n\tcomment "kproxy layout 1"\n\n', null],
  ["claimed", "{ # handle 1 progname nft\n\tflags owner\n\n", `table ip kproxy belongs to ${OWNED}`],
  [
    "claimed, with more flags and a comment, by an unknown Service",
    '{ # handle 1\n\tflags dormant,owner\n\tcomment "x"\n',
    `table ip kproxy belongs to ${OWNED.replace(" (nft)", "")}`,
  ],
  ["only its comment says so", '{ # handle 1\n\tcomment "flags owner"\n', null],
  ["only a set says so", "{ # handle 1\n\tset x {\n\tflags owner\n\t}\n", null],
];
for (const [name, head, problem] of HEADS) {
  Deno.test(`whose a table is: ${name}`, { permissions: "none" }, () => {
    const text = `table ip kproxy ${head}\tchain x { # handle 2\n\t}\n}\n`;
    assertEquals(parseTable(text).ownerProblem, problem);
  });
}

/** As {@linkcode parseTable}, but from pieces. */
function inPieces(text: string, pieceBytes: number): ListedTable {
  const reader = new NftTableReader();
  const encoder = new TextEncoder();
  const bytes = encoder.encode(text);
  const buffer = new Uint8Array(pieceBytes);
  for (let at = 0; at < bytes.length; at += pieceBytes) {
    const piece = bytes.subarray(at, at + pieceBytes);
    buffer.set(piece);
    reader.write(buffer.subarray(0, piece.length));
  }
  return reader.end();
}

Deno.test("a table says the same in pieces of any size, and without the newline at its end", NONE, () => {
  const text = LISTED.replace("a, b : c", "→ é 😀");
  const whole = parseTable(text);
  for (const pieceBytes of [1, 2, 3, 7, 64, 1_000, 100_000]) {
    assertEquals(inPieces(text, pieceBytes), whole, `${pieceBytes}`);
  }
  assertEquals(inPieces(text.trimEnd(), 10), whole);
  assertEquals(inPieces("", 10), parseTable(""));
});

Deno.test("a table that is cut anywhere, or garbage, has less in it and breaks nothing", NONE, () => {
  const whole = parseTable(LISTED);
  for (let end = 0; end < LISTED.length; end += 5) {
    for (const name of inPieces(LISTED.slice(0, end), 50).chains.keys()) assert(whole.chains.has(name));
    inPieces(`${LISTED.slice(0, end)}\0\ufffd } : , "${LISTED.slice(end, end + 40)}`, 50);
  }
});

const BASE_CHAINS = `table ip nat {
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
    parseBaseChains(BASE_CHAINS).map(({ family, table, name, type, hook, priority, policy }) =>
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

// Output of nft 1.0.6.
const JUMPS = `table ip filter { # handle 1
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
  const found = [...listedChains(parseTable(JUMPS))].map(([name, { isHooked, rules }]) => [
    name,
    isHooked,
    rules.map(({ handle, targets }) => [handle, ...targets].join(" ")),
  ]);
  assertEquals(found, [
    ["KUBE-SERVICES", false, []],
    ["MINE", false, ["5 KUBE-SERVICES"]],
    ["OUTPUT", true, ["7 KUBE-SERVICES", "8 KUBE-SERVICES", "10 KUBE-SERVICES MINE", "11"]],
  ]);
  assertEquals(listedChains(parseTable(JUMPS)).get("OUTPUT")?.rules.at(-1)?.text, 'oifname "jump eth0" drop');
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
    const { tables, problems } = parseNftListing(text);
    assertEquals([tables[0]?.containers.get("service-ips")?.elements.size, problems], [count, []]);
    return spentMs();
  };
  timed(3_000);
  const [few, many] = [Math.max(5, timed(3_000)), timed(60_000)];
  // Twenty times as many elements; a search for the end of all of them at each takes 400 times as long.
  assertEquals(many < 150 * few, true, `${few} ms, ${many} ms`);
});

Deno.test("times of nft are seconds", { permissions: "none" }, () => {
  const cases: readonly [string, number | null][] = [
    ["600s", 600],
    ["1h30m", 5_400],
    ["3h", 10_800],
    ["10m", 600],
    ["1h1s", 3_601],
    ["1d2h3m4s", 93_784],
    ["2s500ms", 2.5],
    ["", null],
    ["soon", null],
    ["5", null],
    ["1h later", null],
    ["-1s", null],
  ];
  for (const [text, seconds] of cases) assertEquals(nftSeconds(text), seconds, text);
});
