/**
 * The same packets from the same places to the same Services, through kube-proxy's rules and through kproxy's.
 *
 * @module
 */
import { LabFlowCase } from "../support/lab_flow.ts";
import type { ProxyPair } from "./pair.ts";
import type { World, WorldPacket } from "./worlds.ts";

/** How often a packet is sent on both nodes, and again as long as it fares differently. */
const ROUNDS = [
  { requests: 8, isPatient: false },
  { requests: 30, isPatient: true },
  { requests: 100, isPatient: true },
] as const;

/** A packet that fares differently. */
export interface PacketDifference {
  readonly packet: string;
  readonly kubeProxy: readonly string[];
  readonly kproxy: readonly string[];
}

/** One node's answers. */
interface Observer {
  /** See {@linkcode LabFlowCase.observe}. */
  observe(packetText: string, requests: number, isPatient: boolean): Promise<string[]>;
}

/** What becomes of a packet on either node, if that is not the same; null if it is. */
async function packetDifference(
  { text, isSticky }: WorldPacket,
  theirs: Observer,
  ours: Observer,
): Promise<PacketDifference | null> {
  let found: readonly string[][] = [];
  for (const { requests, isPatient } of ROUNDS) {
    found = await Promise.all(
      [theirs, ours].map(async (one) => {
        const outcomes = await one.observe(text, requests, isPatient);
        return isSticky ? withoutChoice(outcomes) : outcomes;
      }),
    );
    if (JSON.stringify(found[0]) === JSON.stringify(found[1])) return null;
  }
  return { packet: text, kubeProxy: found[0]!, kproxy: found[1]! };
}

/** Outcomes of a client that stays with one endpoint: not which one. */
function withoutChoice(outcomes: readonly string[]): string[] {
  return outcomes.map((outcome) => outcome.replace(/^(?:[\d.]+|\[[\da-f:]+\]):\d+/, "one endpoint"));
}

/** What a comparison came to. */
export interface PacketComparison {
  readonly packets: number;
  readonly differences: readonly PacketDifference[];
}

/** Sends all packets of a world, which both proxies of the pair serve already. */
export async function comparePackets(
  pair: ProxyPair,
  { objects, packets }: World,
  patience: number,
): Promise<PacketComparison> {
  const flows = packets.map(({ text }) => `${text} ⇒ untranslated`);
  const [theirs, ours] = [pair.theirs, pair.ours].map((lab) =>
    new LabFlowCase(lab, { name: "world", guards: [], objects, flows }, { mode: pair.mode, patience })
  );
  const differences: PacketDifference[] = [];
  await Promise.all([theirs!.serve(), ours!.serve()]);
  for (const packet of packets) {
    const difference = await packetDifference(packet, theirs!, ours!);
    if (difference !== null) differences.push(difference);
  }
  await Promise.all([theirs!.end(), ours!.end()]);
  return { packets: packets.length, differences };
}
