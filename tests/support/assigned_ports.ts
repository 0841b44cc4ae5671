/**
 * Proxy ports of userspace mode as a running kproxy may assign them: from 40001 on, one for each planned portal.
 *
 * @module
 */
import { portalFacts } from "../../lib/backend/userspace/apply/portals.ts";
import { type DesiredInput, stateOf } from "../../lib/inspect/desired/desired.ts";
import { userspacePlan } from "../../lib/inspect/modes/userspace.ts";
import type { KnownPortals } from "../../lib/inspect/live/portals.ts";
import type { PortalFacts } from "../../lib/model/portals.ts";

const FIRST_PORT = 40_001;
const ALL = { dnat: true, physdev: true, firewall: true };

/** Proxy ports as a running kproxy reports them. */
export function assignedPortals(input: Omit<DesiredInput, "portals">): KnownPortals {
  let port = FIRST_PORT;
  const portals = [...input.states.keys()].flatMap((family): PortalFacts[] => {
    const address = family === "IPv4" ? "0.0.0.0" : "::";
    const plan = userspacePlan(input, family);
    // In the order of the objects, so that another one does not change the ports of the others.
    return [...stateOf(input, family).services.keys()].flatMap((name) => plan.get(name)?.portals ?? [])
      .map((portal) => portalFacts(portal, { family, address, port: port++ }));
  });
  return { where: "kproxy", portals, iptables: { IPv4: ALL, IPv6: ALL } };
}
