import { assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { oldRecords, withoutAge } from "../docs.ts";
import { HEAD, PACKET_ROWS, RECORD, ROW } from "./record_case.ts";
import { parseRecord, type ProxiesRow, readRecords } from "./records.ts";
import { costTables, packetsTable, readmeTables, slowerCells } from "./tables.ts";

const NONE = { permissions: "none" } as const;

Deno.test("kube-proxy comes first, then the floor with both of its ways, each with its spread", NONE, () => {
  const table = readmeTables({ record: RECORD, code: "now" });
  const [first = "", floor = ""] = table.split("\n").filter((line) => line.startsWith("| iptables"));
  assertEquals(
    first,
    "| iptables | 1,000 × 10 | 1.10 (0.90–1.40) | 7.10 (7.00–7.30) | 13 (12–40) | 219 (217–1,200) | 84 | 84 |",
  );
  assertEquals(
    floor,
    "| iptables | 1,000 × 10 | 1.10 (0.90–1.40) | 0.32 (0.31–0.34) | 13 (12–40) | 10 (9.0–12) | 15 (14–16) |",
  );
  for (
    const said of [
      HEAD.command,
      HEAD.date,
      "5 rounds",
      HEAD.machine,
      "v1.36.2",
      "load 0.5 before and 1.3 after",
    ]
  ) {
    assertStringIncludes(table, said);
  }
  assertStringIncludes(costTables({ record: RECORD, code: "now" }), "| kube-proxy | 820 (800–840) |");
});

Deno.test(
  "a kube-proxy that was not measured is told with the reason, and what nobody counted as missing",
  NONE,
  () => {
    const row: ProxiesRow = { ...ROW, kubeProxy: "more than 60 s" };
    const record = { ...RECORD, rows: [row] };
    assertStringIncludes(
      readmeTables({ record, code: "now" }),
      "| more than 60 s | 13 (12–40) | – | 84 | – |",
    );
    assertStringIncludes(costTables({ record, code: "now" }), "| kube-proxy | more than 60 s |  |");
    assertStringIncludes(costTables({ record, code: "now" }), "| 96 (95–98) | – | – |");
  },
);

Deno.test(
  "a record that is older than the code is told, beside the table and by the check, and is no fault",
  NONE,
  () => {
    const [now, later] = ["now", "later"].map((code) => readmeTables({ record: RECORD, code }));
    assertStringIncludes(now ?? "", "Since then the code has not changed.");
    assertStringIncludes(later ?? "", "Since then the code has changed.");
    assertEquals(withoutAge(now ?? ""), withoutAge(later ?? ""));
    assertEquals(oldRecords({ "a.json": RECORD }, "now"), []);
    assertEquals(oldRecords({ "a.json": RECORD, "b.json": undefined }, "later"), [
      "a.json: older than the code, which has changed since 012345678 of 2026-11-23",
      "b.json: not measured yet",
    ]);
  },
);

Deno.test("a record that no table shows is refused: each figure has one", async () => {
  const root = await Deno.makeTempDir({ prefix: "kproxy-figures-" });
  try {
    await Deno.mkdir(`${root}/docs/records`, { recursive: true });
    await Deno.writeTextFile(`${root}/docs/records/proxies.json`, JSON.stringify(RECORD));
    assertEquals(readRecords(root), {
      proxies: RECORD,
      packets: undefined,
      hostile: undefined,
      hostileIpvs: undefined,
    });
    await Deno.writeTextFile(`${root}/docs/records/newer.json`, JSON.stringify(RECORD));
    assertThrows(() => readRecords(root), SyntaxError, "docs/records/newer.json: nothing shows it");
  } finally {
    await Deno.remove(root, { recursive: true });
  }
});

Deno.test("packets are told to be slower where every round is", NONE, () => {
  assertEquals(slowerCells(PACKET_ROWS), []);
  const [ours, theirs] = PACKET_ROWS;
  const path = { ...ours!.path, connectUs: { ...ours!.path.connectUs, last: [130, 131, 132, 133, 134] } };
  const slow = [{ ...ours!, path: { ...path, megabytesPerSecond: [800, 810, 820, 830, 899] } }, theirs!];
  assertEquals(slowerCells(slow), ["mode nftables, last, µs", "mode nftables, node port, MB/s"]);
  const record = { ...HEAD, services: 1000, endpoints: 10, rows: slow };
  assertStringIncludes(packetsTable({ record, code: "now" }), "than rounds differ: mode nftables, last, µs;");
  assertStringIncludes(packetsTable({ record, code: "now" }), "| nftables | kproxy | 102 (100–104) |");
});

Deno.test("a record that is not whole is refused with its file and place", NONE, () => {
  const cases: readonly (readonly [Record<string, unknown>, string])[] = [
    [{ machine: "" }, "a.json: machine must be a text"],
    [{ n: 1 }, "a.json: n must be 5 rounds or more: got 1"],
    [{ load: [1] }, "a.json: load must be two numbers"],
    [{ versions: { ...HEAD.versions, nft: undefined } }, "a.json: versions.nft must be a text"],
    [{ rows: [] }, "a.json: rows must be a list"],
    [{ rows: [ROW, ROW] }, "a.json: rows.1 is there twice"],
    [
      { rows: [{ ...ROW, bare: { ...ROW.bare, firstSyncMs: [1, 2, 3, 4] } }] },
      "a.json: rows.0.bare.firstSyncMs must have",
    ],
    [
      { rows: [{ ...ROW, bare: { ...ROW.bare, changeMs: [1, 2, 3, 4, 0] } }] },
      "a.json: rows.0.bare.changeMs must have",
    ],
  ];
  assertEquals(parseRecord("a.json", JSON.stringify(RECORD)), RECORD);
  for (const [change, message] of cases) {
    assertThrows(() => parseRecord("a.json", JSON.stringify({ ...RECORD, ...change })), SyntaxError, message);
  }
});
