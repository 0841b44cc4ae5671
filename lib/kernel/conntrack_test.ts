import { assertEquals, assertRejects } from "@std/assert";
import { FakeConntrack } from "../../tests/support/fake_conntrack.ts";
import { ExecError } from "../errors.ts";
import { Conntrack } from "./conntrack.ts";

const TO_GONE = ["-p", "udp", "-f", "ipv4", "--reply-src", "10.244.9.9"];
const TO_NOWHERE = ["-p", "udp", "-f", "ipv4", "--reply-src", "10.96.0.10"];
const SAID = "conntrack v1.4.7 (conntrack-tools): ";

function table(): FakeConntrack {
  const fake = new FakeConntrack();
  fake.add("10.0.0.5:1", "10.96.0.10:53", "10.244.9.9:53");
  fake.add("10.0.0.5:2", "10.96.0.10:53", "10.244.1.3:53");
  fake.add("10.0.0.5:3", "10.96.0.10:53");
  fake.add("[fd00::5]:3", "[fd00:96::a]:53");
  return fake;
}

const LIVE = [
  "10.0.0.5:2 > 10.96.0.10:53 < 10.244.1.3:53",
  "fd00::5:3 > fd00:96::a:53 < fd00:96::a:53",
];

Deno.test("a dump holds one family", { permissions: "none" }, async () => {
  const conntrack = new Conntrack(table());
  assertEquals((await conntrack.dump("IPv4")).text.split("\n").length - 1, 3);
  assertEquals((await conntrack.dump("IPv6")).text.split("\n").length - 1, 1);
});

Deno.test("all deletions are one run of the program", { permissions: "none" }, async () => {
  const fake = table();
  assertEquals(await new Conntrack(fake).delete([TO_GONE, TO_NOWHERE, TO_GONE]), 2);
  assertEquals(fake.flows, LIVE);
  assertEquals(fake.runs.length, 1);
  assertEquals(await new Conntrack(fake).delete([]), 0);
  assertEquals(fake.runs.length, 1);
});

Deno.test("a program that reads no deletions from a file is run once per deletion", {
  permissions: "none",
}, async () => {
  const fake = table();
  fake.batches = false;
  const conntrack = new Conntrack(fake);
  assertEquals(await conntrack.delete([TO_GONE, TO_GONE, TO_NOWHERE]), 2);
  assertEquals(fake.flows, LIVE);
  fake.runs.length = 0;
  assertEquals(await conntrack.delete([TO_GONE]), 0);
  assertEquals(fake.runs, [`conntrack -D ${TO_GONE.join(" ")}`], "it is not asked again");
});

Deno.test("where there is no /dev/stdin, it is run once per deletion", { permissions: "none" }, async () => {
  const fake = table();
  fake.planned.push({ code: 2, stderr: `${SAID}Failed to open file /dev/stdin for reading\n` });
  assertEquals(await new Conntrack(fake).delete([TO_GONE, TO_NOWHERE]), 2);
  assertEquals(fake.flows, LIVE);
});

Deno.test("a dump that others disturb is read again, at most five times", {
  permissions: "none",
}, async () => {
  const disturbed = { code: 1, stderr: `${SAID}Operation failed: Interrupted system call\n` };
  const fake = table();
  fake.planned.push(disturbed, disturbed);
  assertEquals((await new Conntrack(fake).dump("IPv4")).complete, true);
  assertEquals(fake.runs.length, 3);

  fake.planned.push(...Array.from({ length: 5 }, (_, i) => ({ ...disturbed, stdout: `part ${i}` })));
  assertEquals(await new Conntrack(fake).dump("IPv4"), { text: "part 4", complete: false });
});

Deno.test("a flow that ends just before it is deleted stops nothing", { permissions: "none" }, async () => {
  const fake = table();
  const line = "udp      17 29 src=10.0.0.5 …\n";
  fake.planned.push({
    code: 1,
    stdout: line + line,
    stderr: `${SAID}Operation failed: such conntrack doesn't exist\n`,
  });
  assertEquals(await new Conntrack(fake).delete([TO_GONE]), 3);
  assertEquals(fake.runs.length, 2);
});

Deno.test("other failures are errors that carry the command", { permissions: "none" }, async () => {
  const stderr = `${SAID}Operation failed: Operation not permitted\n`;
  for (const work of [(c: Conntrack) => c.dump("IPv4"), (c: Conntrack) => c.delete([TO_GONE])]) {
    const fake = table();
    fake.planned.push({ code: 1, stderr });
    await assertRejects(() => work(new Conntrack(fake)), ExecError, "Operation not permitted");
    assertEquals(fake.runs.length, 1);
  }
  const single = table();
  single.batches = false;
  const conntrack = new Conntrack(single);
  await conntrack.delete([TO_GONE]);
  single.planned.push({ code: 1, stderr });
  await assertRejects(() => conntrack.delete([TO_GONE]), ExecError, "conntrack -D");
});

Deno.test("a missing program is an error that says so", { permissions: "none" }, async () => {
  const fake = table();
  fake.planned.push(new ExecError(["conntrack"], -1, "No such file or directory"));
  const error = await assertRejects(() => new Conntrack(fake).dump("IPv4"), ExecError);
  assertEquals(error.isMissing(), true);
});
