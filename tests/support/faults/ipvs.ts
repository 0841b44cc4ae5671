/**
 * Faults of mode ipvs, and those of a machine that belong to a kernel of one's own: told in the user-mode Linux.
 *
 * @module
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import type { Run } from "../../cli/kproxy.ts";
import { runOk, systemExec } from "../../../lib/kernel/exec.ts";
import { WEB_ARGS, type WebLab } from "../lab_web.ts";
import type { Netns } from "../netns.ts";
import { NetnsCli } from "../netns_cli.ts";
import { CLUSTER } from "../web_changes.ts";

/** What is done to virtual servers, sets and addresses; `check` names it, and `--repair` fixes it. */
interface IpvsFault {
  readonly argv: readonly string[];
  readonly says: RegExp;
}

/** Each in another place: asking costs seconds here, so that they are planted all at once. */
const FAULTS: readonly IpvsFault[] = [
  {
    argv: ["ipvsadm", "-D", "-t", "192.168.7.10:30080"],
    says:
      /^Service shop\/web\n(?: {2}.*\n)* {2}IPVS 192\.168\.7\.10:30080\/TCP: the virtual server is missing$/m,
  },
  {
    argv: ["ipvsadm", "-d", "-t", "10.96.0.1:80", "-r", "10.244.0.12:8080"],
    says: /^ {2}IPVS 10\.96\.0\.1:80\/TCP: a real server is missing\n {4}- 10\.244\.0\.12:8080/m,
  },
  {
    argv: ["ipvsadm", "-e", "-t", "192.0.2.10:30080", "-r", "10.244.0.12:8080", "-m", "-w", "7"],
    says:
      /^ {2}IPVS 192\.0\.2\.10:30080\/TCP: a real server has another weight .*\n.*\n {4}\+ 10\.244\.0\.12:8080 weight 7/m,
  },
  {
    argv: ["ipset", "del", "KUBE-CLUSTER-IP", "10.96.0.1,tcp:80"],
    says: /^ {2}ipset KUBE-CLUSTER-IP: an entry is missing\n {4}- 10\.96\.0\.1,tcp:80/m,
  },
  {
    argv: ["ip", "address", "del", "10.96.0.1/32", "dev", "kube-ipvs0"],
    says: /^ {2}\S.*kube-ipvs0.*: an address is missing\n {4}- 10\.96\.0\.1/m,
  },
];

/** The one line that a repair writes on its error stream. */
const AUDIT = /^I.*"Audit" action="repair" .*\n$/;

/** A virtual server of others, which stays. */
const OTHERS = ["-A -t 172.16.0.1:80 -s wlc", "-a -t 172.16.0.1:80 -r 172.16.1.1:80 -g -w 5"];

/** In a node whose kproxy does not run. */
export async function ipvsFaultsAreNamed(web: WebLab): Promise<void> {
  const { netns } = web.lab.node;
  using cli = await NetnsCli.start(netns);
  const flags = [...WEB_ARGS.filter((flag) => !flag.includes("-sync-period")), "--proxy-mode=ipvs"];
  const kproxy = (...args: readonly string[]): Promise<Run> =>
    cli.run([...args, ...flags, `--manifests=${web.manifests.folder}`]);
  const reaches = async (): Promise<boolean> => {
    const [found] = await web.pod.probe({ protocol: "tcp", to: CLUSTER, timeoutMs: 3_000 });
    return found?.kind === "answer";
  };
  await netns.run(["ipvsadm", "-R"], { stdin: `${OTHERS.join("\n")}\n` });
  const ready = await kproxy("check", "--repair");
  assertEquals(ready.code, 0, ready.out);
  assertMatch(ready.err, AUDIT);
  assert(await reaches(), "before");
  for (const { argv } of FAULTS) await netns.run(argv);
  const answer = await kproxy("check");
  for (const { says } of FAULTS) assertMatch(answer.out, says);
  assertEquals([answer.code, answer.err], [1, ""], answer.out);
  assertEquals(await reaches(), false, "meanwhile");
  const fixed = await kproxy("check", "--repair");
  assertEquals(fixed.code, 0, fixed.out);
  assertMatch(fixed.err, AUDIT);
  assert(await reaches(), "after the fix");
  const saved = await netns.run(["ipvsadm", "-Sn"]);
  for (const line of OTHERS) assert(saved.includes(line), saved);
  await netns.run(["ipvsadm", "-D", "-t", "172.16.0.1:80"]);
  await trackingIsFull(netns, kproxy);
}

/** How many connections may be tracked is told by the kernel as a whole: on a shared machine no test may change it. */
async function trackingIsFull(
  netns: Netns,
  kproxy: (...args: readonly string[]) => Promise<Run>,
): Promise<void> {
  const setting = "net.netfilter.nf_conntrack_max";
  const former = (await runOk(systemExec, ["sysctl", "-n", setting])).trim();
  const count = (await netns.run(["sysctl", "-n", "net.netfilter.nf_conntrack_count"])).trim();
  assert(Number(count) > 0, "nothing is tracked");
  await runOk(systemExec, ["sysctl", "-q", "-w", `${setting}=1`]);
  try {
    const trace = await kproxy("trace", "10.244.0.5@cni0", "shop/web");
    assertMatch(
      trace.out,
      /Wrong: Connection tracking is full, and drops new connections: \d+, and \S+ is 1/,
    );
    assertEquals(trace.code, 1);
    const doctor = await kproxy("doctor");
    assertMatch(
      doctor.out,
      /FAILURE +connection tracking +\d+ of 1 connections are tracked: new ones are dropped/,
    );
  } finally {
    await runOk(systemExec, ["sysctl", "-q", "-w", `${setting}=${former}`]);
  }
}
