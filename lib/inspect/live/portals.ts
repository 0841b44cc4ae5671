/**
 * The ports that the kproxy of this node listens on in userspace mode: what it reports, and whether a process listens.
 *
 * @module
 */
import { isPortTaken } from "../../kernel/machine.ts";
import { splitHostPort } from "../../model/ip.ts";
import type { IpFamily } from "../../model/objects.ts";
import type { NodePortals } from "../../model/portals.ts";
import { type FlowOutcome, type Packet, serviceProtocol } from "../../sim/flow.ts";
import type { HostState } from "../../sim/packet_walk.ts";
import { type HeldPortal, portalKey, type PortalSnapshot } from "../../sim/portals.ts";
import { RulesetSimulator } from "../../sim/ruleset_simulator.ts";
import { type DesiredInput, stateOf } from "../desired/desired.ts";
import { findService } from "../service/service_match.ts";
import { isOwnHit } from "../trace/compare.ts";
import type { LiveRules } from "./live.ts";

/** Proxy ports that a running kproxy reports. */
export interface KnownPortals extends NodePortals {
  /** Its socket, e.g. `kproxy on /run/kproxy/kproxy.sock`. */
  readonly where: string;
}

/** Ports of one family in the simulator's form. */
export function heldPortals(known: KnownPortals, family: IpFamily): PortalSnapshot {
  const ofFamily = known.portals.filter((portal) => portal.family === family);
  return new Map(ofFamily.map(({ protocol, port, servicePort, policy, endpoints, affinitySeconds }) => {
    const portal: HeldPortal = {
      servicePort,
      policy: policy === "Local" ? "local" : "cluster",
      endpoints: endpoints.map((text) => {
        const [ip, port] = splitHostPort(text);
        return { ip, port };
      }),
      stickySeconds: affinitySeconds,
    };
    return [portalKey(protocol, port), portal];
  }));
}

/** Listeners on proxy ports, with their problems. */
export interface JudgedPortals {
  readonly portals: PortalSnapshot;
  /** Problems of the ports, one sentence each. */
  readonly findings: readonly string[];
  readonly unsure: readonly string[];
}

/**
 * Asks the kernel whether a process listens on the ports that rules lead to.
 *
 * @param known reported ports; a text: why they are unknown
 * @param keys ports as {@linkcode portalKey} writes them
 * @param isHere false: the rules are those of another machine, where nothing can be asked
 */
export async function judgePortals(
  known: KnownPortals | string,
  family: IpFamily,
  keys: Iterable<string>,
  isHere: boolean,
): Promise<JudgedPortals> {
  const portals = new Map<string, HeldPortal | "nothing" | "another program">(
    typeof known === "string" ? [] : heldPortals(known, family),
  );
  const findings: string[] = [];
  const unsure: string[] = [];
  for (const key of new Set(keys)) {
    const [protocol = "", port = ""] = key.split(" ");
    const place = `${protocol} port ${port} (${family})`;
    const taken = isHere ? await isPortTaken(family, protocol as "tcp" | "udp", Number(port)) : null;
    if (taken === false) {
      const why = typeof known === "string"
        ? `: ${known}`
        : portals.has(key)
        ? `, although ${known.where} says that it does`
        : "";
      findings.push(`No process listens on ${place}, to which rules lead${why}`);
      portals.set(key, "nothing");
    } else if (typeof known === "string") {
      unsure.push(
        `Who listens on ${place}, to which rules lead, and where it sends what comes, is not known: ${known}`,
      );
    } else if (!portals.has(key)) {
      portals.set(key, "another program");
      findings.push(`Rules lead to ${place}, which is none of those of ${known.where}`);
    }
  }
  return { portals, findings, unsure };
}

/** Live rules with the listeners on the ports that they lead the packet to. */
export interface JudgedLive {
  readonly live: LiveRules | null;
  readonly findings: readonly string[];
  readonly unsure: readonly string[];
}

/** Adds the listeners on ports that the packet is led to. @param isHere false: the rules are saved ones */
export async function withPortalsJudged(
  portals: KnownPortals | string | null,
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
  const judged = await judgePortals(portals ?? "another mode should run here", live.family, keys, isHere);
  return { ...judged, live: { ...live, portals: judged.portals } };
}

function portOf(
  { verdict, toNode, translatedTo, hits }: FlowOutcome,
  { protocol }: Packet,
): readonly string[] {
  if (verdict !== "accept" || !toNode || translatedTo === "" || !hits.some(isOwnHit)) return [];
  return [portalKey(protocol, splitHostPort(translatedTo)[1])];
}

/** Doubts about the packet's desired path if proxy ports are unknown. */
export function unknownPorts(
  portals: KnownPortals | string | null,
  desired: DesiredInput | null,
  packet: Packet,
): readonly string[] {
  if (typeof portals !== "string" || desired?.portals === undefined) return [];
  const family = packet.destination.includes(":") ? "IPv6" : "IPv4";
  const { destination: ip, port, protocol } = packet;
  const destination = { ip, port, protocol: serviceProtocol(protocol), isNodeAddress: true };
  const { match } = findService(stateOf(desired, family), destination);
  if (match === null || match.kind === "health-check node port" || match.port.protocol === "SCTP") return [];
  const { text } = match.port;
  const isKnown = desired.portals.portals.some((one) =>
    one.family === family && one.servicePort === text && one.protocol.toLowerCase() === protocol
  );
  if (isKnown) return [];
  return [`Which port kproxy has for ${text} is not known, as no rule leads to one: ${portals}`];
}
