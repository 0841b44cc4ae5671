/**
 * The ports that the kproxy of this node listens on in userspace mode: what it says of them, and whether anybody listens there.
 *
 * @module
 */
import { isPortTaken } from "../../kernel/port_probe.ts";
import { splitHostPort } from "../../model/ip.ts";
import type { IpFamily } from "../../model/objects.ts";
import type { NodePortals } from "../../model/portals.ts";
import { type HeldPortal, portalKey, type PortalSnapshot } from "../../sim/portals.ts";
import { ALL_ABILITIES, portalName, type PortalPorts } from "../desired/desired.ts";

/** What a running kproxy says of its ports. */
export interface KnownPortals extends NodePortals {
  /** E.g. `kproxy on /run/kproxy/kproxy.sock`. */
  readonly where: string;
}

/** Those of one family as a simulator takes them. */
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

/** Those of one family as the rules need them. */
export function portalPorts(known: KnownPortals, family: IpFamily): PortalPorts {
  const ofFamily = known.portals.filter((portal) => portal.family === family);
  return {
    portOf: new Map(
      ofFamily.map(({ servicePort, protocol, policy, port }) => [
        portalName(servicePort, protocol, policy),
        port,
      ]),
    ),
    has: known.iptables[family] ?? ALL_ABILITIES,
  };
}

/** What became of the question who listens on some ports. */
export interface JudgedPortals {
  readonly portals: PortalSnapshot;
  /** What is wrong with them, one sentence each. */
  readonly findings: readonly string[];
  /** What nobody can tell. */
  readonly unsure: readonly string[];
}

/**
 * Asks the kernel who listens on the ports that rules lead to.
 *
 * @param known a text: why nobody tells of them
 * @param keys as {@linkcode portalKey} says them
 * @param isHere false: the rules are those of another place, where nothing can be asked
 */
export async function judgePortals(
  known: KnownPortals | string,
  family: IpFamily,
  keys: Iterable<string>,
  isHere: boolean,
): Promise<JudgedPortals> {
  const portals = new Map<string, HeldPortal | "nobody" | "stranger">(
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
      findings.push(`Nobody listens on ${place}, to which rules lead${why}`);
      portals.set(key, "nobody");
    } else if (typeof known === "string") {
      unsure.push(
        `Who listens on ${place}, to which rules lead, and where it sends what comes, is not known: ${known}`,
      );
    } else if (!portals.has(key)) {
      portals.set(key, "stranger");
      findings.push(`Rules lead to ${place}, which is none of those of ${known.where}`);
    }
  }
  return { portals, findings, unsure };
}
