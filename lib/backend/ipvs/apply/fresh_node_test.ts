import { assertEquals } from "@std/assert";
import { stateOf } from "../../../../tests/support/fake_iptables_state.ts";
import { FakeIpvs } from "../../../../tests/support/fake_ipvs.ts";
import { ipvsRig } from "../../../../tests/support/ipvs_rig.ts";
import { createSetLine } from "../../../netfilter/ipset.ts";
import { setDefinitions } from "../plan/sets.ts";

const NONE = { permissions: "none" } as const;
const STATE = stateOf("IPv4", { s1: 2, "s3-np": 1 });

/** A node as a preparation leaves it that began on nothing so many milliseconds ago. */
function freshRig(agoMs = 0) {
  const fake = new FakeIpvs();
  const sets = setDefinitions("IPv4");
  fake.kernel.do({ program: "ip", line: "link add kube-ipvs0 type dummy" });
  for (const set of sets) fake.kernel.do({ program: "ipset", line: createSetLine(set) });
  return ipvsRig(fake, { made: { sets, agoMs } });
}

async function endState(): Promise<unknown> {
  const { fake, syncState } = ipvsRig();
  await syncState(STATE, "all");
  return fake.kernel.snapshot();
}

const WRITES = ["ipset restore", "iptables-restore -w", "ipvsadm -R", "ip -force"];
const READS = ["ipvsadm -Sn", "ipset save", "ip -json", "iptables-save"];

Deno.test(
  "the first sync of a fresh node looks at its rules only, and ends where any first sync does",
  NONE,
  async () => {
    const { fake, syncState } = freshRig();
    const { commands } = await syncState(STATE, "all");
    assertEquals(fake.runs, ["iptables-save", ...WRITES]);
    assertEquals(commands, 5);
    assertEquals(fake.kernel.snapshot(), await endState());
  },
);

Deno.test("each later full sync looks at everything", NONE, async () => {
  const { fake, syncState } = freshRig();
  await syncState(STATE, "all");
  fake.runs.length = 0;
  fake.kernel.addresses?.add("10.96.0.99");
  await syncState(STATE, "all");
  assertEquals(fake.runs, [...READS, "ip -force"]);
  assertEquals(fake.kernel.snapshot(), await endState());
});

Deno.test("what was made ten seconds ago is looked at", NONE, async () => {
  const { fake, syncState } = freshRig(10_001);
  await syncState(STATE, "all");
  assertEquals(fake.runs, [...READS, ...WRITES]);
});

Deno.test(
  "a virtual server that somebody else has where a Service wants one is taken over in the same sync",
  NONE,
  async () => {
    const { fake, syncState } = freshRig();
    fake.kernel.do({ program: "ipvsadm", line: "-A -t 10.96.0.1:80 -s wlc" });
    fake.kernel.do({ program: "ipvsadm", line: "-A -t 203.0.113.9:80 -s wlc" });
    await syncState(STATE, "all");
    // What it has written before it noticed is found there.
    assertEquals(fake.runs, [
      "iptables-save",
      "ipset restore",
      "iptables-restore -w",
      "ipvsadm -R",
      ...READS,
      "ipvsadm -R",
      "ip -force",
    ]);
    assertEquals(fake.kernel.servers.get("-t 203.0.113.9:80")?.options, "-s wlc");
    fake.kernel.do({ program: "ipvsadm", line: "-D -t 203.0.113.9:80" });
    assertEquals(fake.kernel.snapshot(), await endState());
  },
);

Deno.test("a device that somebody took away is made again in the same sync", NONE, async () => {
  const { fake, syncState } = freshRig();
  fake.kernel.addresses = null;
  await syncState(STATE, "all");
  assertEquals(fake.runs, ["iptables-save", ...WRITES, ...READS, "ip -force"]);
  assertEquals(fake.kernel.snapshot(), await endState());
});
