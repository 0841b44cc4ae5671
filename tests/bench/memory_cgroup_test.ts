import { assert, assertEquals, assertThrows } from "@std/assert";
import { e2eTest, ROOT_NAMESPACES } from "../support/skip.ts";
import { eventually } from "../support/until.ts";
import { CONTROL_GROUPS, MemoryCgroup, memoryHierarchy } from "./memory_cgroup.ts";

const NONE = { permissions: "none" } as const;

Deno.test("memory is counted where the kernel has its groups, in either version", NONE, () => {
  const first =
    "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\ncgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n";
  const second = "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n";
  assertEquals(memoryHierarchy(first + second, "5:cpu:/a\n4:memory:/a/b\n0::/\n"), {
    folder: "/sys/fs/cgroup/memory/a/b",
    version: 1,
  });
  assertEquals(memoryHierarchy(first, "4:memory:/\n").folder, "/sys/fs/cgroup/memory");
  assertEquals(memoryHierarchy(second, "0::/user.slice\n"), { folder: "/sys/fs/cgroup", version: 2 });
  assertThrows(() => memoryHierarchy("proc /proc proc rw 0 0\n", "0::/\n"), RangeError, "No control group");
});

e2eTest(
  "a group is charged with what runs in it, at most what it took, and goes",
  [ROOT_NAMESPACES, CONTROL_GROUPS],
  async () => {
    const before = await MemoryCgroup.create();
    {
      await using cgroup = before;
      // 20 MB for a moment.
      const [program = "", ...args] = [
        ...cgroup.starter,
        "sh",
        "-c",
        "head -c 20000000 /dev/zero | tail -c 20000000 | wc -c",
      ];
      const { code, stdout } = await new Deno.Command(program, { args, stdin: "null" }).output();
      assertEquals([code, new TextDecoder().decode(stdout).trim()], [0, "20000000"]);
      const { peakMb } = await cgroup.memory();
      assert(peakMb > 20 && peakMb < 100, `${peakMb}`);
      // What has ended is given back a little later, and the figures are not of one moment.
      await eventually(async () => {
        const { nowMb, kernelMb } = await cgroup.memory();
        assert(nowMb < 15 && kernelMb <= nowMb, `${nowMb}, ${kernelMb}`);
      });
      // Nobody waits for this one; the group does.
      const [left = "", ...rest] = [...cgroup.starter, "sh", "-c", "sleep 0.3 >&- 2>&- &"];
      assertEquals((await new Deno.Command(left, { args: rest, stdin: "null" }).output()).code, 0);
    }
    await before.memory().then(() => assert(false), (error) => assert(error instanceof Deno.errors.NotFound));
  },
);
