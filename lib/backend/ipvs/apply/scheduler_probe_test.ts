import { assertEquals, assertRejects } from "@std/assert";
import { FakeIpvs } from "../../../../tests/support/fake_ipvs.ts";
import { ExecError, UnsupportedError } from "../../../errors.ts";
import { Ipvsadm } from "../../../kernel/ipvsadm.ts";
import { SchedulerProbe } from "./proxier.ts";

const NONE = { permissions: "none" } as const;
const LEFT = "-A -t 198.51.100.0:20000 -s rr";

Deno.test("a scheduler is tried in one run, also over what a killed try left", NONE, async () => {
  for (const [isMissing, isLeft] of [[false, false], [false, true], [true, false], [true, true]]) {
    const fake = new FakeIpvs();
    if (isLeft) fake.kernel.do({ program: "ipvsadm", line: LEFT });
    if (isMissing) fake.missingSchedulers.add("lc");
    assertEquals(await new Ipvsadm(fake).hasScheduler("lc"), !isMissing);
    assertEquals([fake.runs, fake.kernel.servers.size], [["ipvsadm -R"], 0]);
  }
});

Deno.test("a configured scheduler that the kernel lacks names its module", NONE, async () => {
  const fake = new FakeIpvs();
  fake.missingSchedulers.add("sed");
  await assertRejects(
    () => new SchedulerProbe(new Ipvsadm(fake), "sed").require(),
    UnsupportedError,
    "the kernel module ip_vs_sed",
  );
});

Deno.test("any other failure of a try is reported", NONE, async () => {
  for (
    const [code, stderr] of [
      [0, "Memory allocation problem\n"],
      [0, "No such service\nMemory allocation problem\nNo such service\n"],
      [255, "No such service\nNo such service\n"],
      [255, "No such service\nScheduler or persistence engine not found\n"],
      [0, "No such service\nScheduler or persistence engine not found\nNo such service\n"],
      [137, "No such service\n"],
      [137, ""],
      [2, "Can't initialize ipvs: Protocol not available\n"],
    ] as const
  ) {
    const fake = new FakeIpvs();
    fake.fail = () => ({ code, stdout: "", stderr });
    await assertRejects(() => new Ipvsadm(fake).hasScheduler("lc"), ExecError);
  }
});
