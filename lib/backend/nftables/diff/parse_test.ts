import { assert, assertEquals } from "@std/assert";
import { ownerProblem, parseClients, parseCounters, parseTable, TableStream } from "./parse.ts";

const NONE = { permissions: "none" } as const;

/** As nft 1.0.6 prints it. */
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

Deno.test("a table as nft prints it", NONE, () => {
  const table = parseTable(LISTED);
  assertEquals(table.comment, "kproxy layout 1");
  assertEquals(
    new Map([...table.elements].map(([name, elements]) => [name, [...elements]])),
    new Map([
      ["cluster-ips", [["10.96.10.1", ""], ["10.96.10.2", ""], ["10.96.10.3", ""]]],
      ["nodeport-ips", []],
      ["service-ips", [
        ["10.96.10.2 . udp . 53", "goto udp-2"],
        ["10.96.10.1 . tcp . 80", "goto tcp-3"],
        ["10.96.10.5 . tcp . 81", "drop"],
      ]],
      ["endpoints-tcp", [["10.96.10.1 . 80 . 0", "10.244.0.11 . 8080"]]],
    ]),
  );
  assertEquals(
    [...table.elementComments].map(([name, comments]) => [name, [...comments]]),
    [["service-ips", [["10.96.10.1 . tcp . 80", "a, b : c"], ["10.96.10.5 . tcp . 81", "x"]]]],
  );
  assertEquals([...table.affinitySets], [["affinity-BNZJJVPA-shop/cart/tcp/__10.244.0.21/6379", 90061]]);
  assertEquals([...table.chains], [
    ["reject-chain", [{ text: "reject", handle: 21 }]],
    ["empty", []],
    ["nat-prerouting", [
      { text: "jump services", handle: 43 },
      { text: 'ip daddr 10.0.0.1 drop comment "# handle 1"', handle: 44 },
    ]],
  ]);
  assertEquals([...table.hooks], [[
    "nat-prerouting",
    "type nat hook prerouting priority dstnat; policy accept;",
  ]]);
});

Deno.test("the last line counts without its end, too", NONE, () => {
  const { elements } = parseTable("table ip kproxy {\n\tset x {\n\t\telements = { 10.0.0.1, 10.0.0.2 }");
  assertEquals([...elements.get("x")!.keys()], ["10.0.0.1", "10.0.0.2"]);
});

Deno.test("clients are those of affinity sets with a timeout", NONE, () => {
  assertEquals(parseClients(LISTED), [{
    name: "affinity-BNZJJVPA-shop/cart/tcp/__10.244.0.21/6379",
    timeoutSeconds: 90061,
    clients: [
      "10.0.0.1 timeout 10m expires 9m59s948ms",
      "10.0.0.2 timeout 10m expires 9m59s948ms",
      "10.0.0.3 expires 1s",
    ],
  }]);
  const set = (name: string, timeout: string, elements: string): string =>
    `table ip kproxy {\n\tset ${name} {\n\t\ttype ipv4_addr\n${timeout}${elements}\t}\n}\n`;
  const [timeout, elements] = ["\t\ttimeout 1m\n", "\t\telements = { 10.0.0.1 expires 59s }\n"];
  assertEquals(parseClients(set("affinity-x", timeout, elements)).map(({ clients }) => clients), [
    ["10.0.0.1 expires 59s"],
  ]);
  for (
    const text of [
      set("affinity-x", timeout, ""),
      set("affinity-x", "", elements),
      set("others", timeout, elements),
    ]
  ) assertEquals(parseClients(text), []);
});

Deno.test("IPv6 keys hold colons", NONE, () => {
  const { elements } = parseTable(`table ip6 kproxy { # handle 1
	map endpoints-tcp { # handle 9
		elements = { fd00:10:96::9 . 80 . 0 : fd00:10:244::91 . 8080,
			     ::1 . 80 . 1 : ::2 . 8080 }
	}
}`);
  assertEquals([...elements.get("endpoints-tcp") ?? []], [
    ["fd00:10:96::9 . 80 . 0", "fd00:10:244::91 . 8080"],
    ["::1 . 80 . 1", "::2 . 8080"],
  ]);
});

Deno.test("no table", NONE, () => {
  const { comment, chains, hooks, elements, affinitySets } = parseTable("");
  assertEquals([comment, chains.size, hooks.size, elements.size, affinitySets.size], ["", 0, 0, 0, 0]);
});

for (
  const [printed, seconds] of [["10m", 600], ["1d", 86400], ["3h", 10800], ["1s", 1], ["1h1s", 3601]] as const
) {
  Deno.test(`timeout ${printed}`, NONE, () => {
    const { affinitySets } = parseTable(
      `table ip kproxy {\n\tset affinity-x { # handle 1\n\t\ttimeout ${printed}\n\t}\n}\n`,
    );
    assertEquals(affinitySets.get("affinity-x"), seconds);
  });
}

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
    ).elements.get("service-traffic-in")?.size,
    3,
  );
});

const OWNED = "another process (nft) (flags owner), and nobody else may change or remove it until that ends";
const HEADS: readonly [name: string, head: string, problem: string | null][] = [
  ["ours", '{ # handle 1\n\tcomment "kproxy layout 1"\n\n', null],
  ["claimed", "{ # handle 1 progname nft\n\tflags owner\n\n", `table ip kproxy belongs to ${OWNED}`],
  [
    "claimed, with more flags and a comment, by nobody knows whom",
    '{ # handle 1\n\tflags dormant,owner\n\tcomment "x"\n',
    `table ip kproxy belongs to ${OWNED.replace(" (nft)", "")}`,
  ],
  ["only its comment says so", '{ # handle 1\n\tcomment "flags owner"\n', null],
  ["only a set says so", "{ # handle 1\n\tset x {\n\tflags owner\n\t}\n", null],
];
for (const [name, head, problem] of HEADS) {
  Deno.test(`whose a table is: ${name}`, { permissions: "none" }, () => {
    assertEquals(ownerProblem(`table ip kproxy ${head}\tchain x { # handle 2\n\t}\n}\n`), problem);
  });
}

Deno.test("no table belongs to nobody", { permissions: "none" }, () => assertEquals(ownerProblem(""), null));

/** As {@linkcode parseTable}, from pieces. */
function streamed(text: string, pieceBytes: number, before = ""): unknown {
  const stream = new TableStream(() => new AllElements());
  const encoder = new TextEncoder();
  stream.write(encoder.encode(before));
  if (before !== "") stream.begin();
  const bytes = encoder.encode(text);
  const buffer = new Uint8Array(pieceBytes);
  for (let at = 0; at < bytes.length; at += pieceBytes) {
    const piece = bytes.subarray(at, at + pieceBytes);
    buffer.set(piece);
    stream.write(buffer.subarray(0, piece.length));
  }
  const { comment, chains, hooks, affinitySets, elements } = stream.end();
  assertEquals(stream.bytes, bytes.length);
  return {
    comment,
    chains,
    hooks,
    affinitySets,
    elements: new Map([...elements].map(([name, { all }]) => [name, all])),
  };
}

class AllElements {
  readonly all = new Map<string, string>();
  set(key: string, value: string): void {
    this.all.set(key, value);
  }
}

Deno.test("a table says the same in pieces of any size, and without the newline at its end", NONE, () => {
  const { elementComments: _, ...whole } = parseTable(LISTED.replace("a, b : c", "→ é 😀"));
  for (const pieceBytes of [1, 2, 3, 7, 64, 1_000, 100_000]) {
    assertEquals(streamed(LISTED.replace("a, b : c", "→ é 😀"), pieceBytes), whole, `${pieceBytes}`);
  }
  assertEquals(streamed(LISTED.replace("a, b : c", "→ é 😀").trimEnd(), 10), whole);
  assertEquals(streamed(LISTED.replace("a, b : c", "→ é 😀"), 10, LISTED.slice(0, 333)), whole, "run again");
  assertEquals(streamed("", 10), {
    comment: "",
    chains: new Map(),
    hooks: new Map(),
    affinitySets: new Map(),
    elements: new Map(),
  });
});

Deno.test("a table that is cut anywhere, or garbage, has less in it and breaks nothing", NONE, () => {
  const whole = parseTable(LISTED);
  for (let end = 0; end < LISTED.length; end += 5) {
    const { chains } = streamed(LISTED.slice(0, end), 50) as { chains: ReadonlyMap<string, unknown> };
    for (const name of chains.keys()) assert(whole.chains.has(name));
    streamed(`${LISTED.slice(0, end)}\0\ufffd } : , "${LISTED.slice(end, end + 40)}`, 50);
  }
});
