/**
 * Predictions of `kproxy trace`, from the kernel's rules on a lab's node, compared with the packets that are really sent there.
 *
 * @module
 */
import { liveOfKernel } from "../../lib/inspect/live/kernel_rules.ts";
import {
  type HostNetwork,
  hostStateOf,
  readHostNetwork,
  readLocalnet,
} from "../../lib/inspect/live/host_network.ts";
import type { Exec, ExecResult } from "../../lib/kernel/exec.ts";
import type { LiveNode } from "../../lib/inspect/live/live.ts";
import { heldPortals, type KnownPortals } from "../../lib/inspect/live/portals.ts";
import { readElements } from "../../lib/inspect/live/unread_elements.ts";
import { tracePacket } from "../../lib/inspect/trace/trace.ts";
import type { IpFamily } from "../../lib/model/objects.ts";
import type { NodePortals } from "../../lib/model/portals.ts";
import { PORTALS_PATH } from "../../lib/serve/status/status_document.ts";
import { formatFlow, type Packet, parsePacket } from "../../lib/sim/flow.ts";
import type { RulesetSnapshot } from "../../lib/sim/ruleset_snapshot.ts";
import { RulesetSimulator } from "../../lib/sim/ruleset_simulator.ts";
import { type FlowCase, flowOf, type FlowStep } from "../flows/flow_case.ts";
import { socketIn } from "./netns.ts";
import type { NodeLab } from "./node_lab.ts";

/** Commands that list a mode's rules, and state that they change. Other commands run separately. */
const RULES: readonly string[] = [
  ...["nft", "legacy"].flatMap((variant) => [`iptables-${variant}-save -c`, `ip6tables-${variant}-save -c`]),
  "ipset save",
  "ip -json address show dev kube-ipvs0",
  "nft list ruleset",
  "ipvsadm -Sn",
  "ip -json -details address",
  "ip -json netconf",
];
/** Commands that list state which is the same in all cases. */
const NODE: readonly string[] = [
  "ip -json route",
  "ip -json -6 route",
  "ip -json rule",
  "sysctl net.ipv4.ip_forward net.ipv6.conf.all.forwarding net.bridge.bridge-nf-call-iptables net.bridge.bridge-nf-call-ip6tables " +
  "net.netfilter.nf_conntrack_tcp_be_liberal net.netfilter.nf_conntrack_count net.netfilter.nf_conntrack_max",
];
/** The kernel of a user-mode Linux has no nftables. */
const ABSENT_IN_UML: readonly string[] = RULES.filter((line) => /\bnft\b/.test(line));

const wordsOf = (lines: readonly string[]): string[][] => lines.map((line) => line.split(" "));

/** Marks the end of each program's output in {@linkcode readTogether}. */
const MARK = "@@ended";
/** Results of commands that failed when they were run separately. */
const failures = new Map<string, ExecResult>();

/** In a user-mode Linux each program takes a tenth of a second: state that all cases of a node share is read once. */
const commonReads = new WeakMap<NodeLab, Promise<Exec>>();

function commonRead(lab: NodeLab): Promise<Exec> {
  let read = commonReads.get(lab);
  if (read === undefined) {
    read = readTogether(lab.node.netns.exec, wordsOf([...NODE, ...ABSENT_IN_UML]));
    commonReads.set(lab, read);
  }
  return read;
}

/**
 * Packets that fare differently from their walk through the live rules, in words. To be called when the real packets of
 * the case have passed.
 */
export async function mispredictions(
  lab: NodeLab,
  flowCase: FlowCase,
  mode: string,
  gapOf: (step: FlowStep) => string | undefined,
): Promise<string[]> {
  const isUml = isUserModeLinux();
  const looks = isUml ? RULES.filter((line) => !ABSENT_IN_UML.includes(line)) : [...RULES, ...NODE];
  const exec = await readTogether(isUml ? await commonRead(lab) : lab.node.netns.exec, wordsOf(looks));
  const [rules, around] = await Promise.all([liveOfKernel(exec), readHostNetwork(exec)]);
  const isClosed = flowCase.options?.policies?.INPUT === "DROP";
  const known = mode === "userspace" ? await portalsIn(lab, isClosed) : null;
  const portalsOf = (family: IpFamily): Partial<RulesetSnapshot> =>
    known === null ? {} : { portals: heldPortals(known, family) };
  const live = new Map([...rules].map(([family, held]) => [family, { ...held, ...portalsOf(family) }]));
  const wrong = [...live.values()].flatMap(({ problems }) => problems)
    .concat(around.problems).map(({ place, message }) => `${place}: ${message}`);
  // Reading on demand runs further programs.
  const unread = isUml ? null : {
    exec: lab.node.netns.exec,
    live: await liveOfKernel(lab.node.netns.exec, { areElementsLeft: true }),
  };
  for (const flow of flowCase.flows) {
    const step = typeof flow === "string" ? { flow } : flow;
    if (gapOf(step) !== undefined) continue;
    const { packet, wanted } = flowOf(step, mode);
    const predicted = await predict(exec, { live, unread, portalsOf }, around, parsePacket(packet));
    for (const one of new Set(predicted)) {
      if (one !== wanted) wrong.push(`${packet}\n  really    ⇒ ${wanted}\n  predicted ⇒ ${one}`);
    }
  }
  return [...new Set(wrong)];
}

/** Proxy ports that kproxy on the lab's node reports. @param isClosed the policy of INPUT is DROP */
async function portalsIn({ node: { netns } }: NodeLab, isClosed: boolean): Promise<KnownPortals> {
  const open = (action: string): Promise<string> =>
    netns.run(["iptables", "-w", "5", action, "INPUT", "-i", "lo", "-j", "ACCEPT"]);
  if (isClosed) await open("-I");
  const text = await netns.run([
    ...["curl", "-sf", "-m", "120", "--unix-socket", socketIn(netns.name)],
    `http://localhost${PORTALS_PATH}`,
  ]);
  if (isClosed) await open("-D");
  return { where: "kproxy", ...JSON.parse(text) as NodePortals };
}

/** Predictions with all nftables elements, and with only those that the packet looks up. */
async function predict(
  exec: Exec,
  { live, unread, portalsOf }: {
    readonly live: LiveNode;
    readonly unread: { readonly exec: Exec; readonly live: LiveNode } | null;
    readonly portalsOf: (family: IpFamily) => Partial<RulesetSnapshot>;
  },
  around: HostNetwork,
  packet: Packet,
): Promise<readonly string[]> {
  const family: IpFamily = packet.source.includes(":") ? "IPv6" : "IPv4";
  const addresses = around.addresses?.map(({ address }) => address) ?? [];
  // A process of the node may use a lent address for its packet.
  const own = packet.inInterface === "" ? [...addresses, packet.source] : addresses;
  const isLocalnet = [packet.source, packet.destination].some((text) => text.startsWith("127."));
  const hostState = hostStateOf(
    isLocalnet ? await readLocalnet(exec, around) : around,
    own,
    packet.inInterface,
  );
  const rules = live.get(family) ?? null;
  const { live: side } = tracePacket({
    family,
    packet,
    hostState,
    desired: null,
    live: rules,
    findings: [],
    notes: [],
  });
  const all = side === null ? "nothing" : formatFlow(side.flow);
  const held = unread?.live.get(family);
  if (unread === null || held === undefined) return [all];
  const walk = (met: RulesetSnapshot): string =>
    formatFlow(new RulesetSimulator({ ...met, ...portalsOf(family) }).send(packet, hostState));
  return [all, walk(await readElements(unread.exec, held, rules, walk))];
}

/** True inside of a user-mode Linux. */
function isUserModeLinux(): boolean {
  return /^model name\s*: UML$/m.test(Deno.readTextFileSync("/proc/cpuinfo"));
}

function quoted(word: string): string {
  return `'${word.replaceAll("'", "'\\''")}'`;
}

/**
 * Runs read-only commands in one shell, which starts them far faster than a large process does in a user-mode Linux, and serves
 * their output from memory whenever they are run. A failed command keeps failing with its first error; other commands run
 * itself.
 */
async function readTogether(exec: Exec, commands: readonly (readonly string[])[]): Promise<Exec> {
  const script = commands.map((argv) =>
    `${argv.map(quoted).join(" ")} 2>/dev/null; printf '${MARK} %s\\n' $?`
  );
  const { stdout } = await exec.run(["sh", "-c", script.join("\n")]);
  const texts = stdout.split(new RegExp(`^${MARK} (\\d+)\\n`, "m"));
  const results = new Map<string, ExecResult | null>();
  for (const [at, argv] of commands.entries()) {
    const [text, code] = [texts[2 * at], texts[2 * at + 1]];
    if (text === undefined || code === undefined) continue;
    results.set(argv.join(" "), code === "0" ? { code: 0, stdout: text, stderr: "" } : null);
  }
  return {
    run: async (argv, options) => {
      const line = argv.join(" ");
      const result = options?.stdin === undefined ? results.get(line) : undefined;
      const known = result ?? (result === null ? failures.get(line) : undefined);
      if (known === undefined) {
        const own = await exec.run(argv, options);
        if (result === null && own.code !== 0) failures.set(line, own);
        return own;
      }
      options?.onStdout?.(new TextEncoder().encode(known.stdout));
      return options?.onStdout === undefined ? known : { ...known, stdout: "" };
    },
  };
}
