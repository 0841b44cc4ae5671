import { assert, assertEquals, assertRejects } from "@std/assert";
import { childPids, childrenWith, readUnlessGone, saysGone } from "./processes.ts";

Deno.test("children are found while they are there, by their command line, too", async () => {
  const child = new Deno.Command("sleep", { args: ["59.25"], stdin: "null" }).spawn();
  // Opened while it lives: a look at a process that ends in the middle of it.
  using file = await Deno.open(`/proc/${child.pid}/stat`);
  try {
    assert((await childPids(Deno.pid)).includes(child.pid));
    assertEquals(await childrenWith(Deno.pid, "sleep 59.25"), [child.pid]);
    assertEquals(await childrenWith(Deno.pid, "sleep 59.26"), []);
  } finally {
    child.kill("SIGKILL");
    await child.status;
  }
  assert(!(await childPids(Deno.pid)).includes(child.pid));
  assertEquals(await readUnlessGone(`/proc/${child.pid}/stat`), "");
  assert(saysGone(await assertRejects(() => file.read(new Uint8Array(100)))));
});

Deno.test("what keeps us from reading is no end of a process", async () => {
  const error = await assertRejects(() => readUnlessGone("/proc/self/task"));
  assertEquals(saysGone(error), false);
});
