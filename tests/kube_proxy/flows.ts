/**
 * The flow cases with real packets, through kube-proxy itself: what `tests/flows` asks of kproxy is what kube-proxy does.
 *
 * @module
 */
import { optionsOf } from "../flows/flow_case.ts";
import { gapOf, groupsOf, prepareNode, startOptions } from "../support/flow_lab_cases.ts";
import { configuration, hasPolicy, nodeInZone } from "../support/flow_objects.ts";
import { ProxyApi } from "../support/kube_proxy/proxy_api.ts";
import { RealKubeProxy } from "../support/kube_proxy/real_kube_proxy.ts";
import { LabFlowCase } from "../support/lab_flow.ts";
import type { Netns } from "../support/netns.ts";
import { NodeLab } from "../support/node_lab.ts";
import { FLOW_DIFFERENCES } from "./flow_differences.ts";

/** What came of them. */
export interface FlowComparison {
  readonly cases: number;
  /** Names of those that are known to differ, and do. */
  readonly declared: readonly string[];
  /** What kube-proxy did otherwise in others, in words, with the case's name. */
  readonly differences: readonly string[];
}

/** Runs all cases but those of kproxy's own settings. */
export async function compareFlows(program: string, mode: "iptables" | "nftables"): Promise<FlowComparison> {
  await using lab = await NodeLab.create();
  const { netns } = lab.node;
  await using api = await ProxyApi.open([netns]);
  let cases = 0;
  const [declared, differences]: [string[], string[]] = [[], []];
  for (const group of groupsOf(mode)) {
    const options = startOptions(optionsOf(group[0]!));
    if (hasPolicy(options)) continue;
    await prepareNode(lab, options, { mode, variant: "nft" });
    await openApi(netns, api.port);
    const { kproxy: _, apiVersion: _1, kind: _2, ...fields } = configuration(mode, options);
    const node = nodeInZone(options.zone);
    api.replace([node]);
    await using kubeProxy = await RealKubeProxy.start(program, { netns, api, fields });
    for (const flowCase of group) {
      api.replace([node, ...flowCase.objects]);
      await api.inForce(netns, mode).catch((cause) => {
        throw new Error(`${flowCase.name}: kube-proxy said:\n${kubeProxy.log}`, { cause });
      });
      const found = await new LabFlowCase(lab, flowCase, { mode }).run((step) => gapOf(mode, step));
      cases++;
      if (found.length === 0) continue;
      if (FLOW_DIFFERENCES[flowCase.name] !== undefined) declared.push(flowCase.name);
      else differences.push(...found.map((words) => `${flowCase.name}: ${words}`));
    }
  }
  return { cases, declared, differences };
}

/** A node whose own firewall is closed lets its proxy ask the API server all the same. */
async function openApi(netns: Netns, port: number): Promise<void> {
  for (const end of ["--dport", "--sport"]) {
    const rule = ["-i", "lo", "-p", "tcp", end, String(port), "-j", "ACCEPT"];
    await netns.run(["iptables", "-w", "5", "-I", "INPUT", ...rule]);
  }
}
