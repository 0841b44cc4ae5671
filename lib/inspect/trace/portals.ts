/**
 * What a trace says of the ports that rules of userspace mode lead to: who listens there, and what nobody can tell.
 *
 * @module
 */
import type { ServicePort } from "../../model/state.ts";
import { splitHostPort } from "../../model/ip.ts";
import type { FlowOutcome, Packet } from "../../sim/flow.ts";
import { portalKey } from "../../sim/portals.ts";
import { RulesetSimulator } from "../../sim/ruleset_simulator.ts";
import type { HostState } from "../../sim/packet_walk.ts";
import { portalName, stateOf } from "../desired/desired.ts";
import type { LiveRules } from "../live/live.ts";
import { judgePortals } from "../live/portals.ts";
import type { Look } from "../look.ts";
import { isOwnHit } from "./compare.ts";

/** Live rules beside what listens where they lead the packet. */
export interface JudgedLive {
  readonly live: LiveRules | null;
  readonly findings: readonly string[];
  readonly unsure: readonly string[];
}

/** Asks who listens on the ports that the packet is led to. @param isHere false: the rules are saved ones */
export async function withPortalsJudged(
  { portals }: Pick<Look, "portals">,
  live: LiveRules | null,
  packet: Packet,
  hostState: HostState,
  isHere: boolean,
): Promise<JudgedLive> {
  const isLed = live?.proxies.some(({ mode }) => mode === "userspace") === true;
  if (live === null || !isLed) return { live, findings: [], unsure: [] };
  const { portals: _, ...rules } = live;
  const { outcomes } = new RulesetSimulator(rules).send(packet, hostState);
  const keys = outcomes.flatMap((outcome) => portOf(outcome, packet));
  const known = portals ?? "another mode should run here";
  const judged = await judgePortals(known, live.family, keys, isHere);
  return { ...judged, live: { ...live, portals: judged.portals } };
}

function portOf(
  { verdict, toNode, translatedTo, hits }: FlowOutcome,
  { protocol }: Packet,
): readonly string[] {
  if (verdict !== "accept" || !toNode || translatedTo === "" || !hits.some(isOwnHit)) return [];
  return [portalKey(protocol, splitHostPort(translatedTo)[1])];
}

/** What is not known of the packet's desired way, where nobody tells which ports there are. */
export function unknownPorts({ portals, ports, objects }: Look, packet: Packet): readonly string[] {
  if (typeof portals !== "string" || ports === null || objects === null) return [];
  const family = packet.destination.includes(":") ? "IPv6" : "IPv4";
  const known = ports.get(family)?.portOf;
  const isMeant = (
    { clusterIP, externalIPs, loadBalancerVIPs, port, nodePort, protocol }: ServicePort,
  ): boolean =>
    protocol.toLowerCase() === packet.protocol &&
    ([clusterIP, ...externalIPs, ...loadBalancerVIPs].includes(packet.destination) && port === packet.port ||
      nodePort !== 0 && nodePort === packet.port);
  return [...stateOf(objects.state, family).services.values()].flat()
    .filter((one) => one.protocol !== "SCTP" && isMeant(one))
    .filter(({ text, protocol }) =>
      known?.has(portalName(text, protocol, "cluster")) !== true &&
      known?.has(portalName(text, protocol, "local")) !== true
    )
    .map(({ text }) => `Which port kproxy has for ${text} is not known, as no rule leads to one: ${portals}`);
}
