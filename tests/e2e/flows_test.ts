/**
 * The flow cases with real packets: the same table that the simulators run, through `kproxy run` on manifest files, in a lab of
 * namespaces. Each case is an edit of the files of the one before it, so that all of them test changes as well. What the packets do
 * is what `kproxy trace` predicts of the rules that are in the kernel then.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { IMPLEMENTED_MODES } from "../../lib/backend/node/registry.ts";
import { parsePacket } from "../../lib/sim/flow.ts";
import { type FlowCase, flowOf, type FlowOptions, type FlowStep, optionsOf } from "../flows/flow_case.ts";
import { FLOW_CASES } from "../flows/flow_cases.ts";
import { SCTP_CASES } from "../flows/sctp_cases.ts";
import { commonFlags, configuration, flag, hasPolicy, marker, nodeInZone } from "../support/flow_objects.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { isLoopbackFromOutside, LabFlowCase } from "../support/lab_flow.ts";
import { LabManifests } from "../support/lab_manifests.ts";
import { mispredictions } from "../support/lab_trace.ts";
import { NodeLab } from "../support/node_lab.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";

/** A mode, and the programs that it works with here. */
interface Surface {
  readonly mode: "iptables" | "nftables" | "userspace";
  /** Which iptables the node's own firewall is written with, and the mode's rules if it writes such. */
  readonly variant: "nft" | "legacy";
}

const SURFACES: readonly Surface[] = [
  { mode: "iptables", variant: "nft" },
  { mode: "iptables", variant: "legacy" },
  { mode: "nftables", variant: "nft" },
  { mode: "userspace", variant: "nft" },
];

/** Cases that are not run here, and where they are. */
const CASE_GAPS: Readonly<Record<string, string>> = {
  "more than 1000 endpoints are still chosen evenly": "would need 1001 pods",
  "external IPs are sorted out by family, and blanks and leading zeros are forgiven":
    "manifests are held to what an API server would accept",
  "a pod that reaches itself without a Service is left alone": "such a packet never leaves the pod",
  "a slice port without a name is skipped": "in manifests it has the name that an API server would give it",
};
/** Those of one mode. */
const MODE_GAPS: Readonly<Record<Surface["mode"], Readonly<Record<string, string>>>> = {
  iptables: {},
  nftables: {
    "a cluster IP that no Service has": "needs ServiceCIDRs: tests/e2e/service_cidrs_test.ts",
  },
  userspace: {},
};

/** Packets that no program of this lab can send, or whose result it cannot see; undefined for all others. */
function gapOf(mode: string, step: FlowStep): string | undefined {
  const { packet: text, wanted } = flowOf(step, mode);
  const packet = parsePacket(text);
  if (packet.state === "ESTABLISHED" || packet.state === "RELATED") {
    return "part of a connection: every other flow has such packets";
  }
  if (isLoopbackFromOutside(packet) && packet.protocol !== "tcp") return "frames are made for TCP only";
  if (wanted.includes(`${packet.source}:`) && wanted.endsWith("masquerade no")) {
    return "no host answers a packet that comes back to it from itself";
  }
  return undefined;
}

/** Which endpoint comes first is the kernel's choice and hours are long: tests/e2e/affinity_test.ts. */
function isAffinityCase(flowCase: FlowCase): boolean {
  return flowCase.flows.some((flow) =>
    typeof flow !== "string" && (flow.takes !== undefined || flow.atSeconds !== undefined)
  );
}

/** What only a start of kproxy can change. */
type StartOptions = Omit<FlowOptions, "interfaceIps" | "nodeIps" | "nodeName" | "serviceCidrs">;

function startOptions(
  { interfaceIps: _, nodeIps: _1, nodeName: _2, serviceCidrs: _3, ...options }: FlowOptions,
): StartOptions {
  return options;
}

/** Modes iptables and userspace are told by flags, nftables mode by a file: it has no flag for its mark, nor has a policy one. */
function kproxyArgs(mode: Surface["mode"], options: StartOptions, configPath: string): string[] {
  if (mode === "nftables" || hasPolicy(options)) {
    return ["--hostname-override=node-a", `--config=${configPath}`];
  }
  return [
    ...(mode === "userspace" ? ["--proxy-mode=userspace"] : []),
    ...commonFlags(options),
    "--iptables-min-sync-period=0s",
    ...flag("iptables-localhost-nodeports", options.localhostNodePorts),
  ];
}

/** What a kernel must be told before kproxy starts, and what else on the node decides about packets. */
async function prepareNode(lab: NodeLab, options: StartOptions, { mode, variant }: Surface): Promise<void> {
  const { netns } = lab.node;
  if (mode !== "nftables") {
    // Rules stay when kproxy ends, and not all of them are its own to remove.
    for (const tool of ["iptables", "ip6tables"]) {
      const empty = ["filter", "nat", "mangle"].map((table) => `*${table}\nCOMMIT\n`).join("");
      await netns.run([`${tool}-${variant}-restore`, "-w", "5"], { stdin: empty });
    }
    // The variant is the one in which another agent has left its hint.
    await netns.run([`iptables-${variant}`, "-w", "5", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT"]);
  }
  const setting = `net.netfilter.nf_conntrack_tcp_be_liberal=${options.tcpBeLiberal ? 1 : 0}`;
  await netns.run(["sysctl", "-q", "-w", setting, "net.ipv4.conf.all.route_localnet=0"]);
  for (const tool of ["iptables", "ip6tables"]) {
    for (const chain of ["INPUT", "FORWARD"] as const) {
      await netns.run([`${tool}-${variant}`, "-w", "5", "-P", chain, options.policies[chain]]);
    }
  }
}

Deno.test("every gap of the cases with real packets is a case", { permissions: "none" }, () => {
  const names = new Set(FLOW_CASES.map(({ name }) => name));
  const gaps = [CASE_GAPS, ...Object.values(MODE_GAPS)].flatMap((one) => Object.keys(one));
  assertEquals(gaps.filter((name) => !names.has(name)), []);
});

function groupsOf(mode: Surface["mode"]): readonly FlowCase[][] {
  const gaps = { ...CASE_GAPS, ...MODE_GAPS[mode] };
  const cases = [...FLOW_CASES, ...SCTP_CASES].filter((one) =>
    gaps[one.name] === undefined && !isAffinityCase(one)
  );
  return [...Map.groupBy(cases, (one) => JSON.stringify(startOptions(optionsOf(one)))).values()];
}

for (const surface of SURFACES.filter(({ mode }) => IMPLEMENTED_MODES.includes(mode))) {
  const { mode, variant } = surface;
  const tools = [`iptables-${variant}`, `ip6tables-${variant}`, ...(mode === "nftables" ? ["nft"] : [])];
  const needs = [ROOT_NAMESPACES, ...["ip", "sysctl", "conntrack", ...tools].map(program)];
  const name = mode === "iptables" ? `iptables ${variant}` : mode;
  e2eTest(`flow cases with real packets, ${name}`, needs, async (t) => {
    await using lab = await NodeLab.create();
    const configPath = await Deno.makeTempFile({ prefix: "kproxy-config-", suffix: ".json" });
    let index = 0;
    try {
      for (const cases of groupsOf(mode)) {
        const options = startOptions(optionsOf(cases[0]!));
        await prepareNode(lab, options, surface);
        await Deno.writeTextFile(configPath, JSON.stringify(configuration(mode, options)));
        await using manifests = await LabManifests.create();
        const args = [...kproxyArgs(mode, options, configPath), `--manifests=${manifests.folder}`];
        index = await runGroup(t, { lab, manifests, args, mode, zone: options.zone }, cases, index);
      }
    } finally {
      await Deno.remove(configPath);
    }
  });
}

interface Group {
  readonly lab: NodeLab;
  readonly manifests: LabManifests;
  readonly args: readonly string[];
  readonly mode: Surface["mode"];
  readonly zone: string;
}

/** Runs cases that one kproxy can serve; yields the number of the next case. */
async function runGroup(
  t: Deno.TestContext,
  { lab, manifests, args, mode, zone }: Group,
  cases: readonly FlowCase[],
  first: number,
): Promise<number> {
  let kproxy: KproxyProcess | undefined;
  try {
    for (const [index, flowCase] of cases.entries()) {
      await t.step(flowCase.name, async () => {
        const number = (first + index) % 250;
        const objects = [nodeInZone(zone), marker(number), ...flowCase.objects];
        const edit = () => manifests.replace("case.json", objects);
        if (kproxy === undefined) {
          await edit();
          kproxy = await KproxyProcess.start({ netns: lab.node.netns, args });
        } else {
          await kproxy.change(edit, `kp/marker-${number}`, 2);
        }
        const stepGap = (step: FlowStep): string | undefined => gapOf(mode, step);
        assertEquals(await new LabFlowCase(lab, flowCase, { mode }).run(stepGap), []);
        assertEquals(
          await mispredictions(lab, flowCase, mode, stepGap),
          [],
          "kproxy trace on the live rules",
        );
      });
    }
  } finally {
    await kproxy?.[Symbol.asyncDispose]();
  }
  return first + cases.length;
}
