import { assertEquals, assertThrows } from "@std/assert";
import { wantedOf } from "../compile.ts";
import { checksums } from "./checksums.ts";
import { buildCommit } from "./commit.ts";
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
  assertEquals(wantedOf([]), { targets: TARGETS, credentialPlugins: [] });
  const args = ["--target=aarch64-unknown-linux-gnu", "--credential-plugin=a", "--credential-plugin=/b"];
  const { targets, credentialPlugins } = wantedOf(args);
  assertEquals([targets.map(({ file }) => file), credentialPlugins], [["kproxy-linux-arm64"], ["a", "/b"]]);
  assertThrows(
    () => wantedOf(["--target=vax"]),
    TypeError,
    'Unknown target "vax": want x86_64-unknown-linux-gnu, ',
  );
  for (const wrong of ["--target=", "x", "--credential-plugin=a,b"]) {
    assertThrows(() => wantedOf([wrong]), TypeError, `found ${wrong}`);
  }
  assertEquals([hostTarget("aarch64-apple-darwin")?.file, hostTarget("vax")], [
    "kproxy-darwin-arm64",
    undefined,
  ]);
});
