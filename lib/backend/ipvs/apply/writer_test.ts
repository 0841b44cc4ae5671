import { assertEquals, assertRejects } from "@std/assert";
import { FakeIpvs } from "../../../../tests/support/fake_ipvs.ts";
import { Mutex, systemClock } from "../../../kernel/clock.ts";
import { Ipvsadm } from "../../../kernel/ipvsadm.ts";
import { silentLogger } from "../../../observe/log.ts";
import { RefusedLinesError } from "../store/refusals.ts";
import type { Step } from "../store/transaction.ts";
import { GracefulTermination } from "./graceful_termination.ts";
import { newProgress } from "../../apply/proxier.ts";
import { writeSteps, WRITTEN_KINDS } from "./writer.ts";

const NONE = { permissions: "none" } as const;

function writing(fake: FakeIpvs, ...steps: readonly Omit<Step, "changes">[]) {
  const ipvs = new Ipvsadm(fake);
  const terminations = new GracefulTermination({
    ipvs,
    clock: systemClock,
    log: silentLogger,
    deadlineMs: 0,
    mutex: new Mutex(),
  });
  const progress = newProgress(WRITTEN_KINDS);
  const iptables = fake.iptables("IPv4");
  return {
    progress,
    refused: writeSteps(
      steps.map((step) => ({ ...step, changes: [] })),
      { exec: fake, ipvs, terminations, iptables },
      progress,
    ),
  };
}

const CREATE = "hash:ip family inet hashsize 1024 maxelem";

Deno.test(
  "a set that grows takes all entries but the refused one, which is reported under its own name",
  NONE,
  async () => {
    const fake = new FakeIpvs();
    const { refused, progress } = writing(fake, {
      program: "ipset",
      lines: [
        `create KUBE-IPVS-IPS ${CREATE} 65536`,
        "add KUBE-IPVS-IPS 10.0.0.1",
        `create KPROXY-GROWING ${CREATE} 131072`,
        "add KPROXY-GROWING 10.0.0.1",
        "add KPROXY-GROWING 0.0.0.0",
        "add KPROXY-GROWING 10.0.0.2",
        "swap KPROXY-GROWING KUBE-IPVS-IPS",
        "destroy KPROXY-GROWING",
      ],
    }, { program: "ip", lines: ["link add kube-ipvs0 type dummy"] });
    assertEquals((await assertRejects(() => refused, RefusedLinesError)).lines, [{
      program: "ipset",
      line: "add KUBE-IPVS-IPS 0.0.0.0",
      problem: "Null-valued element, cannot be stored in a hash type of set",
    }]);
    assertEquals([...fake.kernel.sets.keys()], ["KUBE-IPVS-IPS"]);
    assertEquals([...fake.kernel.sets.get("KUBE-IPVS-IPS")?.entries ?? []], ["10.0.0.1", "10.0.0.2"]);
    // What comes behind would count on it.
    assertEquals([fake.runs, progress.commands], [["ipset restore", "ipset restore"], 2]);
  },
);

Deno.test(
  "refused rules of Services are found by halving; jumps come once, other rules before them",
  NONE,
  async () => {
    const fake = new FakeIpvs();
    const guard = (n: number): string => `-A KUBE-IPVS-OUT-FILTER -s 203.0.113.${n} -j DROP`;
    fake.kernel.refuse = (_, line) => [guard(7), guard(50)].includes(line) ? "no" : undefined;
    const guards = Array.from({ length: 64 }, (_, i) => guard(i));
    const { refused, progress } = writing(fake, {
      program: "iptables",
      lines: [
        ...["*nat", ":KUBE-SERVICES - [0:0]", "-I OUTPUT 1 -j KUBE-SERVICES", "COMMIT"],
        ...["*filter", ":KUBE-IPVS-OUT-FILTER - [0:0]", "-I OUTPUT 1 -j KUBE-IPVS-OUT-FILTER", ...guards],
        "COMMIT",
      ],
    });
    const { lines } = await assertRejects(() => refused, RefusedLinesError);
    assertEquals(lines.map(({ line }) => line), [guard(7), guard(50)]);
    const { tables } = fake.kernel;
    assertEquals(tables.get("nat")?.get("OUTPUT")?.rules, ["-j KUBE-SERVICES"]);
    assertEquals(tables.get("filter")?.get("OUTPUT")?.rules, ["-j KUBE-IPVS-OUT-FILTER"]);
    assertEquals(tables.get("filter")?.get("KUBE-IPVS-OUT-FILTER")?.rules.length, 62);
    assertEquals([fake.runs.length, progress.commands], [25, 25]);
  },
);
