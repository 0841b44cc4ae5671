import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { isWorse, landedCommit, type Pair, pairLine } from "./slower.ts";

const FINE: Pair = { what: "CPU", unit: "ms", before: [100, 100, 100], now: [120, 110, 130] };
const WORSE: Pair = { ...FINE, now: [111, 200, 130] };

Deno.test("what is worse by a tenth in every round fails with both figures, in all but one it does not", {
  permissions: "none",
}, () => {
  assertEquals([FINE, WORSE, { ...FINE, now: [90, 50, 80] }].map(isWorse), [false, true, false]);
  assertEquals(pairLine(FINE), "CPU: before 100 ms (100, 100, 100), now 120 ms (120, 110, 130): fine");
  assertStringIncludes(pairLine(WORSE), "before 100 ms (100, 100, 100), now 130 ms (111, 200, 130): SLOWER");
  assertEquals(isWorse({ ...FINE, before: [10], now: [12] }), true);
});

async function git(folder: string, ...args: readonly string[]): Promise<string> {
  const own = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-C", folder];
  const { success, stdout, stderr } = await new Deno.Command("git", { args: [...own, ...args] }).output();
  assert(success, new TextDecoder().decode(stderr));
  return new TextDecoder().decode(stdout).trim();
}

Deno.test("the commit to compare with is origin/main, where it was left, or the one before; without any it is said", async () => {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-slower-" });
  let commits = 0;
  // Two of one text within a second would be one.
  const commit = async (): Promise<string> => {
    await git(folder, "commit", "-q", "--allow-empty", "-m", `${commits++}`);
    return await git(folder, "rev-parse", "HEAD");
  };
  try {
    assert("missing" in await landedCommit(folder));
    await git(folder, "init", "-q");
    const first = await commit();
    assert("missing" in await landedCommit(folder));
    await git(folder, "update-ref", "refs/remotes/origin/main", first);
    assert("missing" in await landedCommit(folder), "origin/main itself is all that there is");
    const second = await commit();
    assertEquals(await landedCommit(folder), { commit: first, why: "origin/main" });
    await git(folder, "update-ref", "refs/remotes/origin/main", second);
    assertEquals(await landedCommit(folder), { commit: first, why: "the commit before the newest one" });
    await git(folder, "checkout", "-q", "-b", "work", first);
    const third = await commit();
    assertEquals(await landedCommit(folder), { commit: first, why: "where this left origin/main" });
    await git(folder, "update-ref", "-d", "refs/remotes/origin/main");
    await commit();
    assertEquals(await landedCommit(folder), { commit: third, why: "the commit before the newest one" });
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
