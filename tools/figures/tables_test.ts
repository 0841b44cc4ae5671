import { assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { oldRecords, withoutAge } from "../docs.ts";
import { HEAD, RECORD, ROW } from "./record_case.ts";
import { parseRecord, readRecords } from "./records.ts";
import { readmeTables } from "./tables.ts";

const NONE = { permissions: "none" } as const;

Deno.test(
  "a record that is older than the code is reported, beside the table and by the check, and is no fault",
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
