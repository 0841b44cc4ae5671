/**
 * The flow cases with real packets in IPVS mode, through `kproxy run` on manifest files, to be run inside of the user-mode Linux:
 * `tests/lab/uml.sh 'deno test -A tests/lab/ipvs_flows_in_uml.ts'`.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { type FlowCase, type FlowOptions, optionsOf } from "../flows/flow_case.ts";
import { commonFlags, configuration, hasPolicy, marker, nodeInZone } from "../support/flow_objects.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { isTraced } from "../support/flow_lab_cases.ts";
import { IPVS_LAB_CASES, ipvsLabGap } from "../support/ipvs_lab_cases.ts";
import { LabFlowCase } from "../support/lab_flow.ts";
import { LabManifests } from "../support/lab_manifests.ts";
import { mispredictions } from "../support/lab_trace.ts";
import { NodeLab } from "../support/node_lab.ts";

/** Starting a program takes tens of milliseconds here, and a first packet may take as long. */
const PATIENCE = 6;

const CONFIG_PATH = await Deno.makeTempFile({ prefix: "kproxy-config-", suffix: ".json" });

/** What only a start of kproxy changes: every one costs many seconds here. No flag says a policy. */
function kproxyArgs(options: FlowOptions): string[] {
  if (hasPolicy(options)) return ["--hostname-override=node-a", `--config=${CONFIG_PATH}`];
  return ["--proxy-mode=ipvs", "--ipvs-min-sync-period=0s", ...commonFlags(options)];
}

/** What else on the node decides about packets. */
async function prepareNode(lab: NodeLab, policies: FlowOptions["policies"]): Promise<void> {
  const { netns } = lab.node;
  for (const tool of ["iptables", "ip6tables"]) {
    for (const chain of ["INPUT", "FORWARD"] as const) {
      await netns.run([tool, "-w", "5", "-P", chain, policies[chain]]);
    }
  }
}

/** Words after `--` choose cases by name. */
const isChosen = ({ name }: FlowCase): boolean =>
  Deno.args.length === 0 || Deno.args.some((word) => name.includes(word));

const groups = Map.groupBy(IPVS_LAB_CASES.filter(isChosen), (one) => {
  const options = optionsOf(one);
  return JSON.stringify([kproxyArgs(options), options.zone, options.externalIPPolicy]);
});

Deno.test("flow cases with real packets in IPVS mode", async (t) => {
  await using lab = await NodeLab.create();
  await using _file = { [Symbol.asyncDispose]: () => Deno.remove(CONFIG_PATH) };
  let index = 0;
  let prepared = "";
  for (const cases of groups.values()) {
    await using manifests = await LabManifests.create();
    let kproxy: KproxyProcess | undefined;
    try {
      for (const flowCase of cases) {
        await t.step(flowCase.name, async () => {
          const number = index++;
          const options = optionsOf(flowCase);
          if (JSON.stringify(options.policies) !== prepared) await prepareNode(lab, options.policies);
          prepared = JSON.stringify(options.policies);
          const objects = [nodeInZone(options.zone), marker(number % 250), ...flowCase.objects];
          const edit = () => manifests.replace("case.json", objects);
          if (kproxy === undefined) {
            await edit();
            await Deno.writeTextFile(CONFIG_PATH, JSON.stringify(configuration("ipvs", options)));
            const args = [...kproxyArgs(options), `--manifests=${manifests.folder}`];
            kproxy = await KproxyProcess.start({ netns: lab.node.netns, args });
          } else {
            await kproxy.change(edit, `kp/marker-${number % 250}`, 2);
          }
          const flow = new LabFlowCase(lab, flowCase, { mode: "ipvs", patience: PATIENCE });
          assertEquals(await flow.run(ipvsLabGap), []);
          if (!isTraced("ipvs", flowCase)) return;
          assertEquals(
            await mispredictions(lab, flowCase, "ipvs", ipvsLabGap),
            [],
            "kproxy trace on the live rules",
          );
        });
      }
    } finally {
      await kproxy?.[Symbol.asyncDispose]();
    }
  }
});
