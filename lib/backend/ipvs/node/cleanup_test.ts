import { assertEquals } from "@std/assert";
import { FakeIpvs } from "../../../../tests/support/fake_ipvs.ts";
import { probeSetName, setNames } from "../plan/sets.ts";
import { IPVS_CLEANUP } from "./cleanup.ts";

const NONE = { permissions: "none" } as const;
/** Sets that a proxy leaves, also one that was killed at a bad moment. */
const OWN = [
  ...setNames("IPv4"),
  ...setNames("IPv6"),
  "KPROXY-GROWING",
  "KPROXY-6-GROWING",
  probeSetName("hash:ip", "IPv4"),
  probeSetName("bitmap:port", "IPv6"),
];
const OTHERS = ["KUBE-OTHER", "KPROXY-GROWING-2", "cali40all"];

function node(): FakeIpvs {
  const fake = new FakeIpvs();
  for (const name of [...OWN, ...OTHERS]) {
    const line = `create ${name} hash:ip,port family inet hashsize 1024 maxelem 65536`;
    fake.kernel.do({ program: "ipset", line });
  }
  return fake;
}

async function clean(exec: FakeIpvs, dryRun = false) {
  const { removed, kept, failed } = await IPVS_CLEANUP.removeOthers!({
    exec,
    families: ["IPv4", "IPv6"],
    dryRun,
  });
  return {
    removed: removed.map(({ command }) => command).sort(),
    kept: kept.map(({ command }) => command),
    failed,
  };
}

Deno.test("exactly our sets go, those of a moment among them", NONE, async () => {
  const fake = node();
  const removed = OWN.map((name) => `destroy ${name}`).sort();
  assertEquals(await clean(fake, true), { removed, kept: [], failed: [] });
  assertEquals(fake.kernel.sets.size, OWN.length + OTHERS.length);
  assertEquals(await clean(fake), { removed, kept: [], failed: [] });
  assertEquals([...fake.kernel.sets.keys()], OTHERS);
  assertEquals(await clean(fake), { removed: [], kept: [], failed: [] });
});

Deno.test("a set that a rule uses stays and is reported, the others go", NONE, async () => {
  const fake = node();
  const rule = "-A INPUT -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT";
  fake.kernel.do({ program: "iptables", table: "filter", lines: [rule] });
  const { removed, kept, failed } = await clean(fake);
  assertEquals([removed.length, kept, failed], [OWN.length - 1, ["destroy KUBE-CLUSTER-IP"], []]);
  assertEquals([...fake.kernel.sets.keys()], ["KUBE-CLUSTER-IP", ...OTHERS]);
});
