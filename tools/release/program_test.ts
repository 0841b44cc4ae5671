import { assertEquals } from "@std/assert";
import { Buffer } from "node:buffer";
import { bundle, writeBundle } from "../bundle.ts";
import { permissionFlags } from "../permissions.ts";
import {
  compileArgs,
  compileProgram,
  embeddedPermissions,
  embeddedProblems,
  permissionProblems,
} from "./program.ts";

Deno.test("a compiled program carries the whole bundle, and exactly the permissions of the list", async () => {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-compile-" });
  try {
    await writeBundle(await bundle("0123456789abcdef0123456789abcdef01234567"), `${folder}/js`);
    const options = { bundle: `${folder}/js`, credentialPlugins: ["aws-login", "/opt/bin/token"] };
    const path = `${folder}/program`;
    // It is never started: on the whole of deno it would have all rights.
    assertEquals(await compileProgram(path, options, { DENORT_BIN: Deno.execPath() }), {
      kind: "built",
      path,
    });
    const embedded = embeddedPermissions(Buffer.from((await Deno.readFile(path)).buffer));
    assertEquals(permissionProblems(embedded, options.credentialPlugins), []);
    assertEquals(permissionProblems(embedded).length, 1);
    const others = { ...embedded, allow_ffi: [], allow_run: ["sh"] };
    assertEquals(permissionProblems(others, options.credentialPlugins).length, 2);
    // A file that the program was built without, and one with other content.
    await Deno.writeTextFile(`${folder}/js/later.js`, "later();");
    await Deno.writeTextFile(`${folder}/js/build.js`, "other();");
    assertEquals((await embeddedProblems(path, options)).toSorted(), [
      "build.js is not in it",
      "later.js is not in it",
    ]);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test(
  "a program is compiled with the permissions of the list, for the target",
  { permissions: "none" },
  () => {
    const args = compileArgs("out", {
      bundle: "js",
      triple: "aarch64-unknown-linux-gnu",
      credentialPlugins: ["x"],
    }, ["kproxy.js", "help-AB.js", "run-CD.js", "doctor-EF.js"]);
    assertEquals(args.filter((arg) => /^--(allow|deny|ignore|no-prompt)/.test(arg)), [
      ...permissionFlags(),
      "--allow-run=x",
    ]);
    assertEquals(args.filter((arg) => /^--(v8-flags|target|include|output)/.test(arg)), [
      "--target=aarch64-unknown-linux-gnu",
      "--include=js/relay_worker.ts",
      "--include=js/doctor-EF.js",
      "--include=js/help-AB.js",
      "--v8-flags=--max-semi-space-size=1,--expose-gc",
      "--output=out",
    ]);
    assertEquals(args.at(-1), "js/kproxy.js");
  },
);
