import { assertEquals } from "@std/assert";
import { groupFlows } from "../../lib/sync/stale_flows.ts";
import { Conntrack } from "../../lib/kernel/conntrack.ts";
import type { Exec, ExecResult } from "../../lib/kernel/exec.ts";
import type { IpFamily } from "../../lib/model/objects.ts";
import { FakeConntrack } from "../support/fake_conntrack.ts";
import { withNetns } from "../support/netns.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";

/** Options of `conntrack -I` for each flow of the table both start with. */
const FLOWS: readonly string[] = [
  "-s 10.0.0.5 -d 10.96.0.10 --sport 1 --dport 53",
  "-s 10.0.0.5 -d 10.96.0.10 --sport 2 --dport 53 -r 10.244.1.3 -q 10.0.0.5 --reply-port-src 5353 --reply-port-dst 2",
  "-s 10.0.0.5 -d 10.96.0.10 --sport 3 --dport 53 -r 10.244.1.3 -q 10.0.0.5 --reply-port-src 5353 --reply-port-dst 3",
  "-s 10.0.0.6 -d 10.96.0.11 --sport 3 --dport 53 -r 10.244.1.3 -q 10.0.0.6 --reply-port-src 5353 --reply-port-dst 3",
  "-s 10.0.0.6 -d 10.96.0.10 --sport 4 --dport 53 -r 10.244.1.4 -q 10.0.0.6 --reply-port-src 5353 --reply-port-dst 4",
  "-s 10.0.0.5 -d 10.96.0.10 --sport 5 --dport 53 --zone 5",
  "-s 10.0.0.5 -d 10.96.0.10 --sport 6 --dport 53 --orig-zone 7",
  "-s 10.0.0.5 -d 10.96.0.10 --sport 7 --dport 53 --reply-zone 8",
  "-s fd00::5 -d fd00:96::a --sport 1 --dport 53",
  "-s fd00::5 -d fd00:96::a --sport 2 --dport 53 -r fd00:244::3 -q fd00::5 --reply-port-src 5353 --reply-port-dst 2",
];

const TO_DNS = ["--orig-dst", "10.96.0.10", "--orig-port-dst", "53"];
const V4 = ["-p", "udp", "-f", "ipv4"];
const V6 = ["-p", "udp", "-f", "ipv6"];
const DEFAULT_ZONE = ["--zone", "0", "--orig-zone", "0", "--reply-zone", "0"];

/** Deletions played one after another on one table. */
const DELETIONS: readonly [name: string, deletions: readonly (readonly string[])[]][] = [
  ["nothing", []],
  ["an endpoint nobody has", [[...V4, "--reply-src", "10.244.9.9", "--reply-port-src", "5353"]]],
  ["the wrong port", [[...V4, "--reply-src", "10.244.1.3", "--reply-port-src", "53"]]],
  ["untranslated flows of zone 7", [[...V4, ...TO_DNS, "--reply-src", "10.96.0.10", "--orig-zone", "7"]]],
  ["untranslated flows of the default zone", [[
    ...V4,
    ...TO_DNS,
    ...["--reply-src", "10.96.0.10", "--reply-port-src", "53"],
    ...DEFAULT_ZONE,
  ]]],
  ["one destination and endpoint", [[...V4, ...TO_DNS, "--reply-src", "10.244.1.3"]]],
  ["an endpoint, wherever it is reached, and a zone, at once", [
    [...V4, "--reply-src", "10.244.1.3", "--reply-port-src", "5353"],
    [...V4, ...TO_DNS, "--zone", "5"],
    [...V4, ...TO_DNS, "--reply-src", "10.244.1.3"],
  ]],
  ["IPv6", [[...V6, "--reply-src", "fd00:244::3", "--reply-port-src", "5353"]]],
  ["the rest of IPv4", [V4]],
];

interface Outcome {
  readonly name: string;
  readonly result: number | string;
  readonly left: Readonly<Record<IpFamily, readonly string[]>>;
}

async function play(exec: Exec): Promise<Outcome[]> {
  const conntrack = new Conntrack(exec);
  for (const options of FLOWS) {
    const argv = ["conntrack", "-I", "-p", "udp", "-t", "300", ...options.split(" ")];
    assertEquals((await exec.run(argv)).code, 0, options);
  }
  const outcomes: Outcome[] = [{ name: "start", result: 0, left: await tableOf(conntrack) }];
  for (const [name, deletions] of DELETIONS) {
    const result = await conntrack.delete(deletions);
    outcomes.push({ name, result, left: await tableOf(conntrack) });
  }
  return outcomes;
}

async function tableOf(conntrack: Conntrack): Promise<Outcome["left"]> {
  const family = async (family: IpFamily): Promise<string[]> => {
    const { text, complete } = await conntrack.dump(family);
    assertEquals(complete, true);
    return groupFlows(text).map(({ destination, replySource, zone, flows }) =>
      `${destination} ${replySource} ${zone.join(" ")} ${flows}`
    ).sort();
  };
  return { IPv4: await family("IPv4"), IPv6: await family("IPv6") };
}

const NEEDS = [ROOT_NAMESPACES, program("conntrack")];

e2eTest("the fake conntrack deletes what the real one deletes", NEEDS, async () => {
  const real = await withNetns((netns) => play(netns.exec));
  assertEquals(await play(new FakeConntrack()), real);
  // A table in which nothing ever changed would be equal too.
  assertEquals(real.map(({ result }) => result), [0, 0, 0, 0, 1, 1, 2, 2, 1, 2]);
});

e2eTest("single deletions and listings end as on the real one", NEEDS, async () => {
  const commands = [
    "-L -p udp -f ipv4",
    "-D -p udp -f ipv4 --orig-dst 10.0.0.1",
    "-D -p udp -f ipv4 --sport 2",
  ];
  const play = async (exec: Exec): Promise<Omit<ExecResult, "stdout">[]> => {
    const results: Omit<ExecResult, "stdout">[] = [];
    for (const command of [`-I -p udp -t 300 ${FLOWS[1]}`, ...commands]) {
      const { code, stdout, stderr } = await exec.run(["conntrack", ...command.split(" ")]);
      if (!command.startsWith("-I")) {
        const lines = stdout.split("\n").length - 1;
        assertEquals(stderr.includes(`: ${lines} flow entries have been`), true, stderr);
      }
      results.push({ code, stderr: stderr.replace(/v[\d.]+/, "") });
    }
    return results;
  };
  const real = await withNetns((netns) => play(netns.exec));
  assertEquals(await play(new FakeConntrack()), real);
});
