/**
 * The flow cases with real packets in IPVS mode, through `kproxy run` on manifest files, to be run inside of the user-mode Linux:
 * `tests/lab/uml.sh 'deno test -A tests/lab/ipvs_flows_in_uml.ts'`.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { parsePacket } from "../../lib/netfilter/flow.ts";
import { type FlowCase, flowOf, type FlowOptions, type FlowStep, optionsOf } from "../flows/flow_case.ts";
import { FLOW_CASES } from "../flows/flow_cases.ts";
import { service } from "../flows/objects.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { isLoopbackFromOutside, LabFlowCase } from "../support/lab_flow.ts";
import { LabManifests } from "../support/lab_manifests.ts";
import { NODE_OBJECT, NodeLab } from "../support/node_lab.ts";

/** Starting a program takes tens of milliseconds here, and a first packet may take as long. */
const PATIENCE = 6;

/** Cases that are not run here, and why. */
const CASE_GAPS: Readonly<Record<string, string>> = {
  "more than 1000 endpoints are still chosen evenly": "would need 1001 pods",
  "external IPs are sorted out by family, and blanks and leading zeros are forgiven":
    "manifests are held to what an API server would accept",
  "a slice port without a name is skipped": "in manifests it has the name that an API server would give it",
};

/** Packets that no program of this lab can send, or whose result it cannot see; undefined for all others. */
function gapOf(step: FlowStep): string | undefined {
  const { packet: text, wanted } = flowOf(step, "ipvs");
  const packet = parsePacket(text);
  if (packet.state === "ESTABLISHED" || packet.state === "RELATED") {
    return "part of a connection: every other flow has such packets";
  }
  if (isLoopbackFromOutside(packet)) {
    return "IPVS mode leaves localhost to the kernel, which refuses such packets";
  }
  const comesBack = wanted.includes(`${packet.source}:`);
  if (comesBack && wanted.includes("masquerade no") && !wanted.includes("masquerade yes")) {
    return "who gets its own packet back does not answer it";
  }
  if (comesBack && packet.inInterface === "") return "masquerading leaves it the address and port it has";
  return undefined;
}

/** Cases about nothing but the choice of endpoints: the model's, which other modes' tests send real packets to. */
function isModelCase({ guards }: FlowCase): boolean {
  return guards.every((guard) => guard.startsWith("vector "));
}

function isAffinityCase(flowCase: FlowCase): boolean {
  return flowCase.flows.some((flow) =>
    typeof flow !== "string" && (flow.takes !== undefined || flow.atSeconds !== undefined)
  );
}

/** What only a start of kproxy can change. */
type StartOptions = Omit<FlowOptions, "interfaceIps" | "nodeIps" | "nodeName" | "localhostNodePorts">;

function startOptions(
  { interfaceIps: _, nodeIps: _1, nodeName: _2, localhostNodePorts: _3, ...options }: FlowOptions,
): StartOptions {
  return options;
}

function kproxyArgs(options: StartOptions): string[] {
  const flag = (name: string, value: string | number | boolean): string[] =>
    value === "" ? [] : [`--${name}=${value}`];
  return [
    "--proxy-mode=ipvs",
    "--hostname-override=node-a",
    "--ipvs-min-sync-period=0s",
    ...flag("detect-local-mode", options.detectLocalMode),
    ...flag("cluster-cidr", options.clusterCIDR),
    ...flag("pod-bridge-interface", options.bridgeInterface),
    ...flag("pod-interface-name-prefix", options.interfaceNamePrefix),
    ...flag("masquerade-all", options.masqueradeAll),
    ...flag("iptables-masquerade-bit", options.masqueradeBit),
    ...flag("nodeport-addresses", (options.nodePortAddresses ?? []).join(",")),
  ];
}

function nodeObject(zone: string): Record<string, unknown> {
  const labels = zone === "" ? {} : { "topology.kubernetes.io/zone": zone };
  return { ...NODE_OBJECT, metadata: { ...NODE_OBJECT.metadata, labels } };
}

/** A Service whose sync shows that everything that was written with it is in force, in both families. */
function marker(index: number): Record<string, unknown> {
  return service(`kp/marker-${index}`, {
    clusterIP: `10.111.0.${index}`,
    clusterIPs: [`10.111.0.${index}`, `fd00:10:111::${index.toString(16)}`],
    ipFamilies: ["IPv4", "IPv6"],
    ports: [":1"],
  });
}

/** What else on the node decides about packets. */
async function prepareNode(lab: NodeLab, options: StartOptions): Promise<void> {
  const { netns } = lab.node;
  for (const tool of ["iptables", "ip6tables"]) {
    for (const chain of ["INPUT", "FORWARD"] as const) {
      await netns.run([tool, "-w", "5", "-P", chain, options.policies[chain]]);
    }
  }
}

/** Words after `--` choose cases by name. */
const isChosen = ({ name }: FlowCase): boolean =>
  Deno.args.length === 0 || Deno.args.some((word) => name.includes(word));

const groups = Map.groupBy(
  FLOW_CASES.filter((one) => CASE_GAPS[one.name] === undefined && !isAffinityCase(one) && !isModelCase(one))
    .filter(isChosen),
  (one) => JSON.stringify(startOptions(optionsOf(one))),
);

Deno.test("flow cases with real packets in IPVS mode", async (t) => {
  await using lab = await NodeLab.create();
  let index = 0;
  for (const cases of groups.values()) {
    const options = startOptions(optionsOf(cases[0]!));
    await prepareNode(lab, options);
    await using manifests = await LabManifests.create();
    let kproxy: KproxyProcess | undefined;
    try {
      for (const flowCase of cases) {
        await t.step(flowCase.name, async () => {
          const number = index++;
          const objects = [nodeObject(options.zone), marker(number % 250), ...flowCase.objects];
          const edit = () => manifests.replace("case.json", objects);
          if (kproxy === undefined) {
            await edit();
            const args = [...kproxyArgs(options), `--manifests=${manifests.folder}`];
            kproxy = await KproxyProcess.start({ netns: lab.node.netns, args });
          } else {
            await kproxy.change(edit, `kp/marker-${number % 250}`, 2);
          }
          const flow = new LabFlowCase(lab, flowCase, { mode: "ipvs", patience: PATIENCE });
          assertEquals(await flow.run(gapOf), []);
        });
      }
    } finally {
      await kproxy?.[Symbol.asyncDispose]();
    }
  }
});
