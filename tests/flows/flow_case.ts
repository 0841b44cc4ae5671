/**
 * A flow case, the backend it runs through, and how one is run.
 *
 * A case says which packets go where: `10.244.0.5@cni0 → 10.96.0.1:80 ⇒ 10.244.0.11:8080 (1/2) | 10.244.1.12:8080 (1/2), masquerade
 * no`. What comes before `@` is the source, after it the interface it arrives on (`node`: sent by a process on the node). See
 * `lib/sim/flow.ts` for the words after `⇒`.
 *
 * @module
 */
import { EVERY_ADDRESS, type ExternalIpPolicy } from "../../lib/model/address_policy.ts";
import { type Flow, type FlowOutcome, formatFlow, type Packet, parsePacket } from "../../lib/sim/flow.ts";
import type { ApiJson } from "./objects.ts";

/** Settings and facts of the node, in the words of the configuration. */
export interface FlowOptions {
  readonly nodeName: string;
  readonly zone: string;
  /** The node's own addresses, primary ones first. */
  readonly nodeIps: { readonly IPv4: string; readonly IPv6: string };
  /** Addresses of all interfaces. */
  readonly interfaceIps: readonly string[];
  readonly detectLocalMode: "ClusterCIDR" | "BridgeInterface" | "InterfaceNamePrefix";
  readonly clusterCIDR: string;
  readonly bridgeInterface: string;
  readonly interfaceNamePrefix: string;
  readonly masqueradeAll: boolean;
  readonly masqueradeBit: number;
  readonly localhostNodePorts: boolean;
  /** null: unset. */
  readonly nodePortAddresses: readonly string[] | null;
  readonly externalIPPolicy: ExternalIpPolicy;
  /** Networks of the cluster's ServiceCIDRs, both families; empty: not known. */
  readonly serviceCidrs: readonly string[];
  /** `net.netfilter.nf_conntrack_tcp_be_liberal`. */
  readonly tcpBeLiberal: boolean;
  /** What the node's own firewall does with what no rule accepted. */
  readonly policies: { readonly INPUT: "ACCEPT" | "DROP"; readonly FORWARD: "ACCEPT" | "DROP" };
}

export const DEFAULT_OPTIONS: FlowOptions = {
  nodeName: "node-a",
  zone: "z1",
  nodeIps: { IPv4: "192.0.2.10", IPv6: "fd00:192::10" },
  interfaceIps: [
    ...["127.0.0.1", "192.0.2.10", "192.168.7.10", "10.244.0.1"],
    ...["::1", "fd00:192::10", "fd00:7::10", "fd00:10:244::1"],
  ],
  detectLocalMode: "ClusterCIDR",
  clusterCIDR: "10.244.0.0/16,fd00:10:244::/56",
  bridgeInterface: "",
  interfaceNamePrefix: "",
  masqueradeAll: false,
  masqueradeBit: 14,
  localhostNodePorts: true,
  nodePortAddresses: null,
  externalIPPolicy: EVERY_ADDRESS,
  serviceCidrs: [],
  tcpBeLiberal: false,
  policies: { INPUT: "ACCEPT", FORWARD: "ACCEPT" },
};

/** One packet with its circumstances. */
export interface FlowStep {
  readonly flow: string;
  /**
   * Mode → what becomes of the packet there, in the words after `⇒`, where the mode by its nature does something else
   * than what `flow` says. `counted` and `rejectWith` then say nothing about that mode.
   */
  readonly instead?: Readonly<Partial<Record<"ipvs" | "nftables" | "userspace", string>>>;
  /** Second at which it is sent; 0 if not given. */
  readonly atSeconds?: number;
  /** Which of the possible destinations the connection really took; what follows remembers it. */
  readonly takes?: string;
  /** Words of a rule that must have counted the packet, in backends whose rules count. */
  readonly counted?: string;
  /** The type of the refusal, where the backend says it. */
  readonly rejectWith?: string;
}

/** One case: objects, settings and what becomes of packets. */
export interface FlowCase {
  /** Plain words, unique. */
  readonly name: string;
  /** What it guards, in words or by the numbers of `guards.ts`. */
  readonly guards: readonly string[];
  readonly objects: readonly ApiJson[];
  readonly options?: Partial<FlowOptions>;
  readonly flows: readonly (string | FlowStep)[];
}

/** Rules that were made for a case, ready for its packets. Remembers connections for affinity. */
export interface FlowTable {
  send(packet: Packet, atSeconds: number): Flow;
  /** The connection that `packet` began took this way. */
  take(packet: Packet, outcome: FlowOutcome, atSeconds: number): void;
}

/** A proxy mode as the flow cases see it. */
export interface FlowBackend {
  readonly name: string;
  /** Case name → why this mode cannot do what the case asks. */
  readonly gaps: Readonly<Record<string, string>>;
  load(objects: readonly ApiJson[], options: FlowOptions): FlowTable;
}

/** The packet of a step and what becomes of it in a mode, as text. */
export function flowOf(step: FlowStep, mode: string): { readonly packet: string; readonly wanted: string } {
  const [packet = "", usual] = step.flow.split(" ⇒ ");
  if (usual === undefined) throw new SyntaxError(`Flow "${step.flow}" has no " ⇒ "`);
  const inMode = mode === "userspace" ? userspaceWords(packet, usual) : usual;
  return { packet, wanted: insteadOf(step, mode) ?? inMode };
}

/**
 * What every packet has in common that kproxy itself takes: endpoints see the node's address, no mark is needed, and no client is refused:
 * who finds no endpoint is let in and closed, or gets no answer over UDP.
 */
function userspaceWords(packet: string, usual: string): string {
  if (usual === "rejected") return packet.includes("/udp") ? "dropped" : "closed";
  if (!/:\d/.test(usual)) return usual;
  const plain = usual.replace(/,? ?masquerade (?:yes|no)/g, "").replace(/,? ?mark 0x[0-9a-f]+ left/g, "");
  return `${plain.replaceAll(" ()", "")}, masquerade yes`;
}

function insteadOf({ instead }: FlowStep, mode: string): string | undefined {
  return mode === "ipvs" || mode === "nftables" || mode === "userspace" ? instead?.[mode] : undefined;
}

function differenceOf(table: FlowTable, mode: string, step: FlowStep): string | null {
  const { packet: packetText, wanted } = flowOf(step, mode);
  const packet = parsePacket(packetText);
  const atSeconds = step.atSeconds ?? 0;
  const flow = table.send(packet, atSeconds);
  const found = formatFlow(flow);
  if (found !== wanted) return `${packetText}\n  wanted ⇒ ${wanted}\n  found  ⇒ ${found}`;
  if (flow.problems.length > 0) return `${packetText}: ${flow.problems.join("; ")}`;
  if (insteadOf(step, mode) !== undefined) return null;
  // There a process refuses and not a rule.
  if (mode === "userspace") return takeOf(table, step, packet, flow);
  const counted = step.counted;
  if (
    counted !== undefined && !flow.outcomes.some((one) => one.hits.some((hit) => hit.rule.includes(counted)))
  ) {
    return `${packetText}: no rule with "${counted}" counted it`;
  }
  if (step.rejectWith !== undefined && flow.outcomes.some((one) => one.rejectWith !== step.rejectWith)) {
    return `${packetText}: refused with ${
      flow.outcomes.map((one) => one.rejectWith).join()
    }, not ${step.rejectWith}`;
  }
  return takeOf(table, step, packet, flow);
}

function takeOf(table: FlowTable, step: FlowStep, packet: Packet, { outcomes }: Flow): string | null {
  if (step.takes === undefined) return null;
  const outcome = outcomes.find((one) => one.translatedTo === step.takes);
  if (outcome === undefined) return `${step.flow}: cannot go to ${step.takes}`;
  table.take(packet, outcome, step.atSeconds ?? 0);
  return null;
}

/** Sends the packets of a case through the loaded rules of a mode and yields what is not as wanted, in words. */
export function differences(table: FlowTable, flows: FlowCase["flows"], mode = "iptables"): string[] {
  return flows.map((flow) => differenceOf(table, mode, typeof flow === "string" ? { flow } : flow))
    .filter((difference) => difference !== null);
}

/** The settings of a case. */
export function optionsOf(flowCase: FlowCase): FlowOptions {
  return { ...DEFAULT_OPTIONS, ...flowCase.options };
}
