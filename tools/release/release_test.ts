import { assertEquals, assertMatch, assertRejects, assertThrows } from "@std/assert";
import { e2eTest, program } from "../../tests/support/skip.ts";
import { wantedOf } from "../compile.ts";
import { checksums, sign } from "./checksums.ts";
import { buildCommit } from "./commit.ts";
import { ROOT } from "../project_files.ts";
import { hostTarget, TARGETS } from "./targets.ts";

Deno.test("sha256sum agrees with the checksums, and finds a file that was changed", async () => {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-sums-" });
  try {
    await Deno.mkdir(`${folder}/sub`);
    await Deno.writeTextFile(`${folder}/b`, "");
    await Deno.writeFile(`${folder}/sub/a`, crypto.getRandomValues(new Uint8Array(65_536)));
    await Deno.writeTextFile(`${folder}/SHA256SUMS`, await checksums(folder, ["sub/a", "b"]));
    const check = async (): Promise<string[]> => {
      const { stdout } = await new Deno.Command("sha256sum", {
        args: ["--check", "--strict", "SHA256SUMS"],
        cwd: folder,
        env: { LC_ALL: "C" },
        stderr: "null",
      }).output();
      return new TextDecoder().decode(stdout).trim().split("\n");
    };
    assertEquals(await check(), ["b: OK", "sub/a: OK"]);
    await Deno.writeTextFile(`${folder}/b`, "x");
    assertEquals(await check(), ["b: FAILED", "sub/a: OK"]);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

e2eTest(
  "who downloads a release finds by docs/deploy.md what was changed in it",
  [program("minisign")],
  async () => {
    const page = await Deno.readTextFile(`${ROOT}/docs/deploy.md`);
    const [verify = ""] = /^minisign -V .+$/m.exec(page) ?? [];
    const folder = await Deno.makeTempDir({ prefix: "kproxy-signed-" });
    try {
      const run = async (...argv: readonly string[]): Promise<{ isGood: boolean; told: string }> => {
        const [command = "", ...args] = argv;
        const { success, stdout, stderr } = await new Deno.Command(command, {
          args,
          cwd: folder,
          env: { LC_ALL: "C" },
          stdin: "null",
        }).output();
        return {
          isGood: success,
          told: [stdout, stderr].map((one) => new TextDecoder().decode(one)).join(""),
        };
      };
      const write = async (content: string): Promise<void> => {
        await Deno.writeTextFile(`${folder}/kproxy-linux-amd64`, content);
        await Deno.writeTextFile(`${folder}/SHA256SUMS`, await checksums(folder, ["kproxy-linux-amd64"]));
      };
      assertEquals((await run("minisign", "-G", "-W", "-p", "kproxy.pub", "-s", "kproxy.key")).isGood, true);
      await write("the program");
      await sign(`${folder}/SHA256SUMS`, `${folder}/kproxy.key`, "kproxy 1.0.0, commit abc");
      const good = await run("sh", "-c", verify);
      assertEquals(good.isGood, true, good.told);
      assertMatch(good.told, /^Trusted comment: kproxy 1\.0\.0, commit abc$/m);
      assertMatch(good.told, /^kproxy-linux-amd64: OK$/m);
      // The program alone; then with checksums that fit it; then signed with another key.
      await Deno.writeTextFile(`${folder}/kproxy-linux-amd64`, "another");
      assertMatch((await run("sh", "-c", verify)).told, /kproxy-linux-amd64: FAILED/);
      await write("another");
      const changed = await run("sh", "-c", verify);
      assertEquals([changed.isGood, changed.told.includes("OK")], [false, false], changed.told);
      await run("minisign", "-G", "-W", "-p", "other.pub", "-s", "other.key");
      await sign(`${folder}/SHA256SUMS`, `${folder}/other.key`, "kproxy 1.0.0, commit abc");
      const foreign = await run("sh", "-c", verify);
      assertEquals([foreign.isGood, foreign.told.includes("OK")], [false, false], foreign.told);
      await assertRejects(
        () => sign(`${folder}/SHA256SUMS`, `${folder}/none.key`, "x"),
        Error,
        "is not signed",
      );
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  },
);

async function git(folder: string, ...args: readonly string[]): Promise<string> {
  const identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
  const { success, stdout } = await new Deno.Command("git", {
    args: ["-C", folder, ...identity, ...args],
    stderr: "null",
  })
    .output();
  assertEquals(success, true, args.join(" "));
  return new TextDecoder().decode(stdout).trim();
}

Deno.test("a build knows its commit, and whether files were changed beside it", async () => {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-commit-" });
  try {
    assertEquals(await buildCommit(folder), "unknown");
    await git(folder, "init", "-q");
    assertEquals(await buildCommit(folder), "unknown");
    await Deno.writeTextFile(`${folder}/a`, "");
    await git(folder, "add", "a");
    await git(folder, "commit", "-q", "-m", "a");
    const commit = await git(folder, "rev-parse", "HEAD");
    assertEquals(await buildCommit(folder), commit);
    await Deno.writeTextFile(`${folder}/b`, "");
    assertEquals(await buildCommit(folder), `${commit}-dirty`);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("all targets are built unless some are named", { permissions: "none" }, () => {
  assertEquals(wantedOf([]), {
    targets: TARGETS,
    credentialPlugins: [],
    archives: undefined,
    key: undefined,
    isDry: false,
  });
  const { archives, key, isDry } = wantedOf(["--denort=/a", "--dry", "--sign=/k"]);
  assertEquals([archives, key, isDry], ["/a", "/k", true]);
  const args = ["--target=aarch64-unknown-linux-gnu", "--credential-plugin=a", "--credential-plugin=/b"];
  const { targets, credentialPlugins } = wantedOf(args);
  assertEquals([targets.map(({ file }) => file), credentialPlugins], [["kproxy-linux-arm64"], ["a", "/b"]]);
  assertThrows(
    () => wantedOf(["--target=vax"]),
    TypeError,
    'Unknown target "vax": want x86_64-unknown-linux-gnu, ',
  );
  for (const wrong of ["--targets=a", "x", "--credential-plugin=a,b", "--credential-plugin="]) {
    assertThrows(() => wantedOf([wrong]), TypeError, `found ${wrong}`);
  }
  assertEquals([hostTarget("aarch64-apple-darwin")?.file, hostTarget("vax")], [
    "kproxy-darwin-arm64",
    undefined,
  ]);
});
