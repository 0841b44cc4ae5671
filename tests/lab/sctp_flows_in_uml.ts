/**
 * Flow cases that need a kernel with SCTP, to be run inside of the user-mode Linux:
 * `tests/lab/uml.sh 'deno test -A tests/lab/sctp_flows_in_uml.ts'`.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { service } from "../flows/objects.ts";
import { SCTP_LAB_CASES } from "../support/ipvs_lab_cases.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { LabFlowCase } from "../support/lab_flow.ts";
import { LabManifests } from "../support/lab_manifests.ts";
import { NODE_OBJECT, NodeLab } from "../support/node_lab.ts";

/** Starting a program takes tens of milliseconds here, and a first packet may take as long. */
const PATIENCE = 6;

Deno.test("flow cases of SCTP in mode iptables", async (t) => {
  await using lab = await NodeLab.create();
  await using manifests = await LabManifests.create();
  await manifests.replace("node.json", [NODE_OBJECT]);
  await using kproxy = await KproxyProcess.start({
    netns: lab.node.netns,
    args: [
      "--hostname-override=node-a",
      "--cluster-cidr=10.244.0.0/16,fd00:10:244::/56",
      "--iptables-min-sync-period=0s",
      `--manifests=${manifests.folder}`,
    ],
  });
  for (const [index, flowCase] of SCTP_LAB_CASES.entries()) {
    await t.step(flowCase.name, async () => {
      const marker = service(`kp/marker-${index}`, { clusterIP: `10.111.0.${index + 1}`, ports: [":1"] });
      const edit = () => manifests.replace("case.json", [marker, ...flowCase.objects]);
      await kproxy.change(edit, `kp/marker-${index}`);
      assertEquals(await new LabFlowCase(lab, flowCase, { patience: PATIENCE }).run(() => undefined), []);
    });
  }
});
