import { assert, assertEquals } from "@std/assert";
import { FIELDS } from "../../../lib/config/fields.ts";
import { OBSOLETE_FIELDS } from "../../../lib/config/schema.ts";
import { replaceSection } from "../../../tools/docs.ts";
import { CONFIGURATION_SECTIONS } from "../../../tools/settings_doc.ts";

const PAGE = new URL("../../../docs/configuration.md", import.meta.url);

Deno.test("docs/configuration.md is in step with the table of fields", () => {
  const page = Deno.readTextFileSync(PAGE);
  const current = CONFIGURATION_SECTIONS.reduce(
    (text, { name, render }) => replaceSection(text, name, render()),
    page,
  );
  assertEquals(page, current);
});

Deno.test("docs/configuration.md has every field, every obsolete one, and every flag", () => {
  const page = Deno.readTextFileSync(PAGE);
  for (const { path } of [...FIELDS, ...OBSOLETE_FIELDS]) assert(page.includes(`| \`${path}\``), path);
  for (const { flag } of FIELDS) assert(flag === undefined || page.includes(`\`--${flag}\``), flag);
});
