/**
 * The flow cases with real packets, through kube-proxy itself: what `tests/flows` asks of kproxy is what kube-proxy does.
 *
 * @module
 */
import { optionsOf } from "../flows/flow_case.ts";
import {
  configuration,
  groupsOf,
  hasPolicy,
  nodeInZone,
  prepareNode,
  setPolicies,
} from "../support/flow_lab.ts";
import { gapOf, labCases } from "../support/flow_lab_cases.ts";
import { ProxyApi } from "../support/kube_proxy/proxy_api.ts";
import { RealKubeProxy } from "../support/kube_proxy/real_kube_proxy.ts";
import { LabFlowCase } from "../support/lab_flow.ts";
import type { Netns } from "../support/netns.ts";
import { NodeLab } from "../support/node_lab.ts";

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
  const surface = { mode, variant: "nft" } as const;
  // What the model decides in most modes, too.
  const all = new Set([...labCases(mode), ...labCases("nftables")]);
  for (const group of groupsOf(mode, [...all])) {
    const options = optionsOf(group[0]!);
    if (hasPolicy(options)) continue;
    await prepareNode(lab, options, surface);
    await openApi(netns, api.port);
    const { kproxy: _, apiVersion: _1, kind: _2, ...fields } = configuration(mode, options);
    const node = nodeInZone(options.zone);
    api.replace([node]);
    await using kubeProxy = await RealKubeProxy.start(program, { netns, api, fields });
    for (const flowCase of group) {
      await setPolicies(lab, optionsOf(flowCase).policies, surface);
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

const CHANCE =
  "kube-proxy writes rules for all Services that want the same address and port, and chance decides whose come first; " +
  "kproxy gives it to the oldest";
const CLUSTER_IP =
  "kube-proxy lets an external IP take a cluster IP, by chance; with kproxy that stays its Service's";

/** Flow cases whose words are not, or not always, what kube-proxy does. */
export const FLOW_DIFFERENCES: Readonly<Record<string, string>> = {
  "no Service takes another one's cluster IP, not even an older one that is first by name": CLUSTER_IP,
  "no Service takes the cluster IP of a Service without endpoints": CLUSTER_IP,
  "of Services without creation times the first by name has what several want": CHANCE,
  "the older of two Services has what both want, and one that has no creation time is younger than any":
    CHANCE,
  "the next one takes over when the Service goes that had what several want": CHANCE,
  "the next one takes over what a Service does not want any more": CHANCE,
  "of two Services with one cluster IP the older is served, and the other not at all": CHANCE,
  "load-balancer IPs of special use are not served":
    "kube-proxy serves 169.254.169.254, which is where a cloud answers its machines; kproxy refuses it",
};
