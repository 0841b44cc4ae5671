import { assert, assertEquals, assertRejects } from "@std/assert";
import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import { crc32 } from "node:zlib";
import { bundle, writeBundle } from "../bundle.ts";
import { permissionFlags } from "../permissions.ts";
import { DENORT_PINS, placeDenort } from "./denort.ts";
import {
  compile,
  compileArgs,
  compileProgram,
  embeddedPermissions,
  embeddedProblems,
  permissionProblems,
} from "./program.ts";
import { TARGETS } from "./targets.ts";

Deno.test("a compiled program carries the whole bundle, and exactly the permissions of the list", async () => {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-compile-" });
  try {
    await writeBundle(await bundle("0123456789abcdef0123456789abcdef01234567"), `${folder}/js`);
    const options = { bundle: `${folder}/js`, credentialPlugins: ["aws-login", "/opt/bin/token"] };
    const path = `${folder}/program`;
    // It is never started: on the whole of deno it would have all rights.
    await compileProgram(path, options, { DENORT_BIN: Deno.execPath() });
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

const TRIPLE = Deno.build.target;
const ARCHIVE = `denort-${TRIPLE}.zip`;

/** An archive as Deno's, with one file that is not compressed. */
function archiveOf(name: string, content: Uint8Array): Uint8Array<ArrayBuffer> {
  const title = Buffer.from(name);
  // Version, flags, method, time and date; then the sum, both sizes, and the name's length.
  const facts = Buffer.alloc(26);
  facts.writeUInt16LE(20, 0);
  facts.writeUInt32LE(crc32(content), 10);
  facts.writeUInt32LE(content.length, 14);
  facts.writeUInt32LE(content.length, 18);
  facts.writeUInt16LE(title.length, 22);
  const signed = (text: string, ...parts: readonly Uint8Array[]): Buffer =>
    Buffer.concat([Buffer.from(text, "latin1"), ...parts]);
  const local = signed("PK\x03\x04", facts, title);
  const directory = signed("PK\x01\x02", Buffer.from([20, 0]), facts, Buffer.alloc(14), title);
  const end = Buffer.alloc(18);
  end.writeUInt16LE(1, 4);
  end.writeUInt16LE(1, 6);
  end.writeUInt32LE(directory.length, 8);
  end.writeUInt32LE(local.length + content.length, 12);
  return new Uint8Array(Buffer.concat([local, content, directory, signed("PK\x05\x06", end)]));
}

function pinsOf(archive: Uint8Array): typeof DENORT_PINS {
  const sha256 = { [TRIPLE]: createHash("sha256").update(archive).digest("hex") };
  return { version: Deno.version.deno, sha256 };
}

Deno.test("a program stands on the runtime whose checksum is pinned, and on no other", async () => {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-denort-" });
  try {
    await Deno.mkdir(`${folder}/js`);
    await Deno.writeTextFile(`${folder}/js/kproxy.js`, "void 1;\n".repeat(10_000));
    await Deno.writeTextFile(`${folder}/js/relay_worker.ts`, "");
    const options = { bundle: `${folder}/js`, triple: TRIPLE };
    const output = `${folder}/program`;
    // In the place of denort, so that nothing is downloaded; it is never started.
    const archive = archiveOf("denort", await Deno.readFile(Deno.execPath()));
    const pins = pinsOf(archive);
    await Deno.writeFile(`${folder}/${ARCHIVE}`, archive);
    assertEquals(await compile(output, options, { archives: folder, pins }), true);
    await Deno.remove(output);
    // One byte of the program that somebody else changed; the archive is whole and in order.
    const other = await Deno.readFile(Deno.execPath());
    const middle = other.length >> 1;
    other[middle] = (other[middle] ?? 0) ^ 1;
    await Deno.writeFile(`${folder}/${ARCHIVE}`, archiveOf("denort", other));
    const build = (): Promise<boolean> => compile(output, options, { archives: folder, pins });
    await assertRejects(build, Error, `${ARCHIVE} of ${folder} is not the one that is pinned: `);
    await assertRejects(() => Deno.stat(output), Deno.errors.NotFound);
    // What would have gone before the archive.
    Deno.env.set("DENORT_BIN", Deno.execPath());
    await assertRejects(build, Error, "DENORT_BIN");
  } finally {
    Deno.env.delete("DENORT_BIN");
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("a program runs no code that another user of the machine left in /tmp", async () => {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-cached-" });
  try {
    await Deno.mkdir(`${folder}/js`);
    await Deno.writeTextFile(`${folder}/js/kproxy.js`, "void 1;\n".repeat(10_000));
    await Deno.writeTextFile(`${folder}/js/relay_worker.ts`, "");
    const options = { bundle: `${folder}/js` };
    const args = compileArgs(`${folder}/program`, options, ["kproxy.js"]);
    assert(args.includes("--no-code-cache"));
    // As `deno compile` makes it unless it is told otherwise.
    const { success } = await new Deno.Command(Deno.execPath(), {
      args: args.filter((arg) => arg !== "--no-code-cache"),
      env: { DENORT_BIN: Deno.execPath() },
    }).output();
    assert(success);
    assertEquals(await embeddedProblems(`${folder}/program`, options), [
      "it would run code that it finds in /tmp",
    ]);
    await compileProgram(`${folder}/program`, options, { DENORT_BIN: Deno.execPath() });
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("without a pinned checksum, or with another Deno than its own, no runtime is taken", async () => {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-denort-" });
  try {
    const archive = archiveOf("denort", new Uint8Array(10));
    const { version, sha256 } = pinsOf(archive);
    const place = (pins: typeof DENORT_PINS): Promise<boolean> =>
      placeDenort(`${folder}/dir`, { triple: TRIPLE, archives: folder, pins });
    await assertRejects(() => place({ version, sha256 }), Deno.errors.NotFound, ARCHIVE);
    await Deno.writeFile(`${folder}/${ARCHIVE}`, archive);
    await assertRejects(
      () => place({ version, sha256: { [TRIPLE]: "" } }),
      Error,
      `No checksum of ${ARCHIVE} is pinned, so no program is built on it. This one has ${sha256[TRIPLE]}`,
    );
    await assertRejects(() => place({ version: "2.0.0", sha256 }), Error, "built with Deno 2.0.0, not");
    await assertRejects(() => Deno.stat(`${folder}/dir`), Deno.errors.NotFound);
    assertEquals(await place({ version, sha256 }), true);
    const placed = await Deno.readFile(`${folder}/dir/dl/release/v${version}/${ARCHIVE}`);
    assertEquals(placed, archive);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("every target has its place for a checksum, of the Deno that the project is tested with", async () => {
  assertEquals(Object.keys(DENORT_PINS.sha256), TARGETS.map(({ triple }) => triple));
  for (const sum of Object.values(DENORT_PINS.sha256)) assert(/^([0-9a-f]{64})?$/.test(sum), sum);
  const readme = await Deno.readTextFile(new URL("../../README.md", import.meta.url));
  assert(readme.includes(`npx -y deno@${DENORT_PINS.version} task test`));
});
