/**
 * Whole configuration files: broken ones beside what is wrong with them, and good ones of old and new versions.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { parseConfig } from "../../../lib/config/parse.ts";
import { ConfigError } from "../../../lib/errors.ts";

const CONFIG_REGEXP = /\.(yaml|json)$/;
const FOLDER = new URL("./broken/", import.meta.url);
/** Run with this set to write what is found instead of comparing; then read the difference. */
const UPDATE_ARGUMENT = "--update";

function linesOf(name: string, text: string): string[] {
  try {
    parseConfig(text, { file: name });
    return [];
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return error.message.split("\n");
  }
}

Deno.test("every broken configuration gives exactly the problems beside it", async (t) => {
  const names = [...Deno.readDirSync(FOLDER)].map(({ name }) => name).filter((name) =>
    CONFIG_REGEXP.test(name)
  )
    .sort();
  assertEquals(names.length >= 40, true);
  for (const name of names) {
    const expectedUrl = new URL(name.replace(CONFIG_REGEXP, ".expected"), FOLDER);
    const found = linesOf(name, Deno.readTextFileSync(new URL(name, FOLDER)));
    if (Deno.args.includes(UPDATE_ARGUMENT)) Deno.writeTextFileSync(expectedUrl, found.join("\n") + "\n");
    await t.step(name, () => {
      assertEquals(found.join("\n") + "\n", Deno.readTextFileSync(expectedUrl));
    });
  }
});

Deno.test("every expectation has its broken configuration", () => {
  const names = [...Deno.readDirSync(FOLDER)].map(({ name }) => name);
  const configs = names.filter((name) => CONFIG_REGEXP.test(name)).map((name) =>
    name.replace(CONFIG_REGEXP, "")
  );
  const expectations = names.filter((name) => !CONFIG_REGEXP.test(name)).map((name) =>
    name.replace(".expected", "")
  );
  assertEquals(expectations.sort(), configs.sort());
});
