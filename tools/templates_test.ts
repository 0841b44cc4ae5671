/** Files for GitHub: the issue forms, and the workflows that run on a change. */
import { assert, assertEquals } from "@std/assert";
import { parse } from "@std/yaml";
import { ROOT } from "./project_files.ts";

const FOLDER = `${ROOT}/.github/ISSUE_TEMPLATE`;
const TYPES: ReadonlySet<string> = new Set(["markdown", "textarea", "input", "dropdown", "checkboxes"]);

/** A field of a form. */
interface Part {
  readonly type: string;
  readonly id?: string;
  readonly attributes: {
    readonly label?: string;
    readonly value?: string;
    readonly options?: readonly unknown[];
    readonly [name: string]: unknown;
  };
  readonly validations?: { readonly required?: boolean };
}

const files = [...Deno.readDirSync(FOLDER)].map(({ name }) => name).sort();

Deno.test("every form has what GitHub asks of one", async () => {
  assertEquals(files, ["bug.yml", "config.yml", "wish.yml"]);
  for (const file of files.filter((name) => name !== "config.yml")) {
    const form = parse(await Deno.readTextFile(`${FOLDER}/${file}`)) as {
      readonly name: string;
      readonly description: string;
      readonly labels: readonly string[];
      readonly body: readonly Part[];
    };
    assertEquals(Object.keys(form), ["name", "description", "labels", "body"], file);
    assert(form.name.length >= 3 && form.description.length >= 3, file);
    const answers = form.body.filter(({ type }) => type !== "markdown");
    assert(answers.some(({ validations }) => validations?.required === true), file);
    for (const part of form.body) {
      const { type, id, attributes } = part;
      const where = `${file}: ${id ?? type}`;
      assert(TYPES.has(type), where);
      if (type === "markdown") {
        assert((attributes.value ?? "") !== "", where);
        continue;
      }
      assert((attributes.label ?? "") !== "", where);
      assert(/^[\w-]+$/.test(id ?? ""), where);
      if (type === "dropdown") {
        const options = attributes.options ?? [];
        // YAML reads words such as yes and no as other types, which GitHub refuses.
        assert(options.length > 1 && options.every((option) => typeof option === "string"), where);
        assertEquals(new Set(options).size, options.length, where);
      }
    }
    for (const values of [answers.map(({ id }) => id), answers.map(({ attributes }) => attributes.label)]) {
      assertEquals(new Set(values).size, values.length, file);
    }
  }
});

Deno.test("the modes that a form offers are those that there are", async () => {
  const { PROXY_MODES } = await import("../lib/config/types.ts");
  const { body } = parse(await Deno.readTextFile(`${FOLDER}/bug.yml`)) as { readonly body: readonly Part[] };
  const offered = body.find(({ id }) => id === "mode")?.attributes.options ?? [];
  const modes = PROXY_MODES.filter((mode) => mode !== "auto");
  assertEquals(offered.slice(0, -1).toSorted(), modes.toSorted());
});

Deno.test("files that the forms and the template name are there", async () => {
  const places = [...files.map((file) => `ISSUE_TEMPLATE/${file}`), "pull_request_template.md"];
  const named = await Promise.all(places.map(async (place) => {
    const text = await Deno.readTextFile(`${ROOT}/.github/${place}`);
    return text.match(/\b(?:docs\/)?[\w-]+\.md\b/g) ?? [];
  }));
  assert(named.flat().length >= 3);
  for (const path of named.flat()) assert((await Deno.stat(`${ROOT}/${path}`)).isFile, path);
});

Deno.test("each change is tried by .ci/run, which has the time that it allows itself", async () => {
  const { on, jobs } = parse(await Deno.readTextFile(`${ROOT}/.github/workflows/ci.yml`)) as {
    readonly on: Readonly<Record<string, unknown>>;
    readonly jobs: {
      readonly ci: { readonly steps: readonly { run?: string }[]; "timeout-minutes": number };
    };
  };
  assertEquals(Object.keys(on), ["push", "pull_request"]);
  assert(jobs.ci.steps.some(({ run }) => run?.endsWith(" .ci/run")));
  const [, minutes] = /stay below (\d+) minutes/.exec(await Deno.readTextFile(`${ROOT}/.ci/run`)) ?? [];
  assert(jobs.ci["timeout-minutes"] > Number(minutes), minutes);
});
