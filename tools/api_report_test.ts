import { assertEquals, assertThrows } from "@std/assert";
import { reportOf } from "./api_report.ts";
import { changedLines } from "./docs.ts";

const TEXT = { kind: "keyword", value: "string", repr: "string" };

Deno.test("a change of a type, a member or an export is a changed line", { permissions: "none" }, () => {
  const member = (name: string, optional: boolean) => ({ name, optional, readonly: true, tsType: TEXT });
  const symbols = (...properties: ReturnType<typeof member>[]) => [
    { name: "Place", declarations: [{ kind: "interface", def: { properties } }] },
    {
      name: "find",
      declarations: [{
        kind: "function",
        def: {
          params: [
            { kind: "identifier", name: "at", tsType: { kind: "typeRef", value: { typeName: "Place" } } },
            { kind: "assign", left: { kind: "identifier", name: "from", tsType: TEXT } },
          ],
          returnType: {
            kind: "array",
            value: {
              kind: "union",
              value: [TEXT, { kind: "literal", value: { kind: "number" }, repr: "1" }],
            },
          },
        },
      }],
    },
  ];
  const before = reportOf(symbols(member("file", false)));
  assertEquals(before.split("\n").slice(2), [
    "function find(at: Place, from?: string): (string | 1)[]",
    "",
    "interface Place",
    "  readonly file: string",
    "",
  ]);
  assertEquals(changedLines(before, reportOf(symbols(member("file", true), member("line", false)))), [
    "- Place: readonly file: string",
    "+ Place: readonly file?: string",
    "+ Place: readonly line: string",
  ]);
  assertEquals(changedLines(before, reportOf(symbols(member("file", false)).slice(1))), [
    "- interface Place",
    "- Place: readonly file: string",
  ]);
  assertEquals(changedLines(before, before), []);
});

Deno.test("what the report cannot write is an error, and not left out", { permissions: "none" }, () => {
  const odd = [{ name: "Odd", declarations: [{ kind: "typeAlias", def: { tsType: { kind: "mapped" } } }] }];
  assertThrows(() => reportOf(odd), TypeError, "cannot write a type of kind mapped");
  const space = [{ name: "Space", declarations: [{ kind: "namespace", def: {} }] }];
  assertThrows(() => reportOf(space), TypeError, "cannot write a declaration of kind namespace");
});
