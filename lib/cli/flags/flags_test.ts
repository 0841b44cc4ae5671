import { assert, assertEquals, assertMatch } from "@std/assert";
import { FIELDS } from "../../config/fields.ts";
import { formatDuration } from "../../config/duration.ts";
import { COMMANDS, type FlagType, GROUPS } from "./flag.ts";
import { flagByLetter, flagByName, FLAGS } from "./flags.ts";
import { parseFlagValue } from "./flag_value.ts";

Deno.test("no two flags share a name or a letter", { permissions: "none" }, () => {
  const names = FLAGS.map((flag) => flag.name);
  assertEquals(names.length, new Set(names).size);
  const letters = FLAGS.flatMap((flag) => flag.short ?? []);
  assertEquals(letters.length, new Set(letters).size);
  for (const flag of FLAGS) {
    assertEquals(flagByName(flag.name), flag);
    if (flag.short !== undefined) assertEquals(flagByLetter(flag.short), flag);
  }
});

Deno.test("flags are listed by group, then by name", { permissions: "none" }, () => {
  const places = FLAGS.map((flag) => `${String(GROUPS.indexOf(flag.group)).padStart(2, "0")} ${flag.name}`);
  assertEquals(places, [...places].sort());
  assertEquals(new Set(FLAGS.map((flag) => flag.group)).size, GROUPS.length);
});

Deno.test("names, lines of documentation and notes keep their form", { permissions: "none" }, () => {
  for (const flag of FLAGS) {
    assertMatch(flag.name, /^[a-z][a-z0-9-]*$/);
    assertMatch(flag.doc, /^[A-Za-z][^\n]*[^.\s]$/, flag.name);
    assert(flag.commands.length > 0, flag.name);
    assertEquals([...flag.commands].length, new Set(flag.commands).size, flag.name);
    assert(flag.commands.every((name) => COMMANDS.includes(name)), flag.name);
    if (flag.short !== undefined) assertMatch(flag.short, /^[a-z]$/);
    if (flag.note !== undefined) {
      assertEquals(flag.group, "Deprecated", flag.name);
      assertMatch(flag.note.text, /^[a-z][^\n]*[^.\s]$/, flag.name);
    }
    if (flag.group === "Deprecated") assert(flag.note !== undefined, flag.name);
  }
});

Deno.test("a default is a value its flag takes, and one of its values", { permissions: "none" }, () => {
  for (const flag of FLAGS) {
    if (flag.default === "" || flag.default === "[]") continue;
    assert("value" in parseFlagValue(flag, flag.default, undefined), `${flag.name}=${flag.default}`);
  }
});

const KIND_TYPES: Readonly<Record<string, readonly FlagType[]>> = {
  string: ["string", "ip", "address"],
  boolean: ["bool"],
  int32: ["int"],
  uint32: ["int", "level"],
  float32: ["float"],
  duration: ["duration"],
  durationOrNanoseconds: ["duration"],
  quantity: ["quantity"],
  strings: ["list", "paths"],
  featureGates: ["gates"],
  vmodule: ["vmodule"],
};

Deno.test("flags and fields of the configuration agree on names, types, defaults and values", {
  permissions: "none",
}, () => {
  const fields = new Map(FIELDS.map((field) => [field.path, field]));
  for (const flag of FLAGS.filter((flag) => flag.field !== undefined)) {
    const field = fields.get(flag.field ?? "");
    assert(field !== undefined, `${flag.name} sets the unknown field ${flag.field}`);
    assertEquals(field.flag, flag.name, `flag of field ${field.path}`);
    assert(KIND_TYPES[field.kind]?.includes(flag.type), `${flag.name}: ${flag.type} for ${field.kind}`);
    if (field.allowed !== undefined) assertEquals(flag.values, field.allowed, flag.name);
    // Without a file, ipvs mode starts with the pause of the other modes.
    if (flag.name === "ipvs-min-sync-period") continue;
    assertEquals(flag.default, shown(field.default, flag.type), flag.name);
  }
  const flagged = FIELDS.flatMap((field) => field.flag === undefined ? [] : [field.flag]);
  assertEquals(
    flagged.toSorted(),
    FLAGS.filter((flag) => flag.field !== undefined).map((flag) => flag.name).toSorted(),
  );
});

function shown(value: unknown, type: FlagType): string {
  if (value === null) return type === "list" ? "[]" : "false";
  if (type === "duration") return formatDuration(Number(value));
  if (typeof value === "object") return "";
  return String(value);
}
