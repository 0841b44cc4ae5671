import { assert, assertEquals, assertMatch } from "@std/assert";
import { FIELDS } from "../../config/fields.ts";
import { COMMANDS, GROUPS } from "../../config/setting.ts";
import { flagByLetter, flagByName, FLAGS } from "./flags.ts";
import { parseFlagValue } from "./parse_args.ts";

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
    // Throws if the default is not a valid value.
    parseFlagValue(flag, flag.default, undefined);
  }
});

Deno.test("every field that names a flag has it, with the field's name", { permissions: "none" }, () => {
  const named = FIELDS.flatMap(({ path, flag }) => flag === undefined ? [] : [`${flag} ${path}`]);
  const flags = FLAGS.flatMap(({ name, field }) => field === undefined ? [] : [`${name} ${field}`]);
  assertEquals(flags.toSorted(), named.toSorted());
  assert(named.length > 60);
});
