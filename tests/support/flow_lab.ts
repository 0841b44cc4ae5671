/**
 * Runs flow cases with real packets: `kproxy run` on manifest files in a lab of namespaces. Each case edits the files of the one
 * before it, so that all of them test changes as well. Results are also compared with `kproxy trace` on the live rules.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { type FlowCase, type FlowOptions, type FlowStep, optionsOf } from "../flows/flow_case.ts";
import { service } from "../flows/objects.ts";
import { type FlowMode, gapOf, isTraced } from "./flow_lab_cases.ts";
import { KproxyProcess } from "./kproxy_process.ts";
import { LabFlowCase } from "./lab_flow.ts";
import { LabManifests } from "./lab_manifests.ts";
import { mispredictions } from "./lab_trace.ts";
import { NODE_OBJECT, NodeLab } from "./node_lab.ts";

/** A mode, and the programs that it uses in the lab. */
export interface Surface {
  readonly mode: FlowMode;
  /** iptables variant of the node's own firewall, and of the mode's rules if it writes iptables rules. */
  readonly variant: "nft" | "legacy";
  /** Factor of all waits, on a slow kernel. @default {1} */
  readonly patience?: number;
  /** False: not compared with `kproxy trace`. @default {true} */
  readonly isTraced?: boolean;
}

/** The Node with a zone; `""`: without one. */
export function nodeInZone(zone: string): Record<string, unknown> {
  const labels = zone === "" ? {} : { "topology.kubernetes.io/zone": zone };
  return { ...NODE_OBJECT, metadata: { ...NODE_OBJECT.metadata, labels } };
}

/**
 * A Service whose sync shows that everything written with it is programmed, in IPv4 or in both families.
 *
 * @param index 0 to 255
 */
function marker(index: number, isDual: boolean): Record<string, unknown> {
  const clusterIP = `10.111.0.${index}`;
  const dual = {
    clusterIPs: [clusterIP, `fd00:10:111::${index.toString(16)}`],
    ipFamilies: ["IPv4", "IPv6"],
  } as const;
  return service(`kp/marker-${index}`, { clusterIP, ports: [":1"], ...isDual ? dual : {} });
}

/** True if a case has IPv6 objects; without them that family has nothing to sync. */
function hasIpv6({ objects }: FlowCase): boolean {
  return /::|IPv6/.test(JSON.stringify(objects));
}

/** A flag of kproxy; no flag if the value is empty. */
function flag(name: string, value: string | number | boolean): string[] {
  return value === "" ? [] : [`--${name}=${value}`];
}

/** Flags for options that all modes but nftables share. */
function commonFlags(options: FlowOptions): string[] {
  return [
    "--hostname-override=node-a",
    ...flag("detect-local-mode", options.detectLocalMode),
    ...flag("cluster-cidr", options.clusterCIDR),
    ...flag("pod-bridge-interface", options.bridgeInterface),
    ...flag("pod-interface-name-prefix", options.interfaceNamePrefix),
    ...flag("masquerade-all", options.masqueradeAll),
    ...flag("iptables-masquerade-bit", options.masqueradeBit),
    ...flag("nodeport-addresses", (options.nodePortAddresses ?? []).join(",")),
  ];
}

/** True if there is a policy, which no flag can express. */
export function hasPolicy({ externalIPPolicy }: Pick<FlowOptions, "externalIPPolicy">): boolean {
  return Object.values(externalIPPolicy).some((value) => value !== null);
}

/** The options as a configuration file, for any mode. */
export function configuration(mode: string, options: FlowOptions): Record<string, unknown> {
  const { masqueradeAll, masqueradeBit, localhostNodePorts } = options;
  // Zero would be read as unset, which is a second.
  const common = { masqueradeAll, masqueradeBit, minSyncPeriod: "1ms" };
  return {
    apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
    kind: "KubeProxyConfiguration",
    mode,
    detectLocalMode: options.detectLocalMode,
    clusterCIDR: options.clusterCIDR,
    detectLocal: {
      bridgeInterface: options.bridgeInterface,
      interfaceNamePrefix: options.interfaceNamePrefix,
    },
    iptables: { ...common, localhostNodePorts },
    nftables: common,
    kproxy: { externalIPPolicy: options.externalIPPolicy },
    ...(options.nodePortAddresses === null ? {} : { nodePortAddresses: options.nodePortAddresses }),
  };
}

/** Modes iptables, ipvs and userspace are configured by flags, mode nftables by a file: its mark has no flag, nor has a policy. */
function kproxyArgs(mode: FlowMode, options: FlowOptions, configPath: string): string[] {
  if (mode === "nftables" || hasPolicy(options)) {
    return ["--hostname-override=node-a", `--config=${configPath}`];
  }
  return [
    `--proxy-mode=${mode}`,
    ...commonFlags(options),
    `--${mode === "ipvs" ? "ipvs" : "iptables"}-min-sync-period=0s`,
    ...(mode === "ipvs" ? [] : flag("iptables-localhost-nodeports", options.localhostNodePorts)),
  ];
}

/** Groups of cases that one kproxy can serve in sequence: options that need a restart are the same. */
export function groupsOf(mode: FlowMode, cases: readonly FlowCase[]): readonly (readonly FlowCase[])[] {
  return [...Map.groupBy(cases, (one) => startKey(mode, optionsOf(one))).values()];
}

function startKey(mode: FlowMode, options: FlowOptions): string {
  const config = mode === "nftables" || hasPolicy(options) ? configuration(mode, options) : {};
  return JSON.stringify([kproxyArgs(mode, options, ""), config, options.zone, options.tcpBeLiberal]);
}

/** Prepares the kernel before kproxy starts: no rules, and the sysctls of the case. */
export async function prepareNode(
  { node: { netns } }: NodeLab,
  options: FlowOptions,
  surface: Surface,
): Promise<void> {
  const { mode, variant } = surface;
  const setting = `net.netfilter.nf_conntrack_tcp_be_liberal=${options.tcpBeLiberal ? 1 : 0}`;
  await netns.run(["sysctl", "-q", "-w", setting, "net.ipv4.conf.all.route_localnet=0"]);
  if (mode === "nftables" || mode === "ipvs") return;
  // Rules stay when kproxy ends, and some are not its own to remove.
  for (const tool of ["iptables", "ip6tables"]) {
    const empty = ["filter", "nat", "mangle"].map((table) => `*${table}\nCOMMIT\n`).join("");
    await netns.run([`${tool}-${variant}-restore`, "-w", "5"], { stdin: empty });
  }
  // kproxy chooses the variant in which another agent has left its hint.
  await netns.run([`iptables-${variant}`, "-w", "5", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT"]);
}

/** Sets the policies of the node's own firewall. */
export async function setPolicies(
  { node: { netns } }: NodeLab,
  policies: FlowOptions["policies"],
  { variant }: Surface,
): Promise<void> {
  const chains = Object.entries(policies).map(([chain, policy]) => `:${chain} ${policy} [0:0]\n`);
  const stdin = `*filter\n${chains.join("")}COMMIT\n`;
  for (const tool of ["iptables", "ip6tables"]) {
    await netns.run([`${tool}-${variant}-restore`, "-w", "5", "--noflush"], { stdin });
  }
}

/** Runs each case as a step of `t`; cases with the same start options share one kproxy. */
export async function runFlowCases(
  t: Deno.TestContext,
  cases: readonly FlowCase[],
  surface: Surface,
): Promise<void> {
  const { mode } = surface;
  await using lab = await NodeLab.create();
  const folder = await Deno.makeTempDir({ prefix: "kproxy-config-" });
  await using _folder = { [Symbol.asyncDispose]: () => Deno.remove(folder, { recursive: true }) };
  const configPath = `${folder}/config.json`;
  let index = 0;
  for (const group of groupsOf(mode, cases)) {
    const options = optionsOf(group[0]!);
    await prepareNode(lab, options, surface);
    await Deno.writeTextFile(configPath, JSON.stringify(configuration(mode, options)));
    await using manifests = await LabManifests.create();
    const args = [...kproxyArgs(mode, options, configPath), `--manifests=${manifests.folder}`];
    let [policies, wasDual] = ["", false];
    let kproxy: KproxyProcess | undefined;
    await using _kproxy = { [Symbol.asyncDispose]: async () => await kproxy?.[Symbol.asyncDispose]() };
    for (const flowCase of group) {
      await t.step(flowCase.name, async () => {
        const wanted = optionsOf(flowCase).policies;
        if (JSON.stringify(wanted) !== policies) await setPolicies(lab, wanted, surface);
        policies = JSON.stringify(wanted);
        const number = index++ % 250;
        const isDual = hasIpv6(flowCase);
        const families = isDual || wasDual ? 2 : 1;
        wasDual = isDual;
        const objects = [nodeInZone(options.zone), marker(number, families === 2), ...flowCase.objects];
        const edit = () => manifests.replace("case.json", objects);
        if (kproxy === undefined) {
          await edit();
          kproxy = await KproxyProcess.start({ netns: lab.node.netns, args });
        } else {
          await kproxy.change(edit, `kp/marker-${number}`, families);
        }
        await assertFares(lab, flowCase, surface);
      });
    }
  }
}

async function assertFares(lab: NodeLab, flowCase: FlowCase, surface: Surface): Promise<void> {
  const { mode, patience = 1 } = surface;
  const stepGap = (step: FlowStep): string | undefined => gapOf(mode, step);
  assertEquals(await new LabFlowCase(lab, flowCase, { mode, patience }).run(stepGap), []);
  if (surface.isTraced === false || !isTraced(mode, flowCase)) return;
  assertEquals(await mispredictions(lab, flowCase, mode, stepGap), [], "kproxy trace on the live rules");
}
