/**
 * The objects and the configuration of the kproxy that runs on this node.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../config/types.ts";
import type { NamespacedName } from "../model/objects.ts";
import type { ObjectSelection } from "../serve/status/select_objects.ts";
import { DATA_PLANES } from "./desired/desired.ts";
import type { RunningAnswer } from "./objects.ts";
import type { KnownPortals } from "./live/portals.ts";
import { NotRunningError, RunningKproxy } from "./running/running.ts";

/** There is none, which is nothing to be told of. */
const NONE: ReadonlySet<NotRunningError["reason"]> = new Set(["nothing", "no address"]);

/** Asks it; says why if there is none. Who answers there instead `report` hears. */
export async function askRunning(
  { kproxy: { socket } }: KubeProxyConfiguration,
  selection: ObjectSelection,
  report: (problem: string) => void,
): Promise<RunningAnswer | string> {
  try {
    const running = new RunningKproxy(socket);
    const [status, { config }, held] = await Promise.all([
      running.status(),
      running.config(),
      running.objects(selection),
    ]);
    const quarantined = new Map<NamespacedName, string>(
      status.quarantine.services.map(({ service, problem }) => [service, problem]),
    );
    return {
      where: `kproxy on ${running.address}`,
      mode: DATA_PLANES.find((plane) => plane === status.mode.used) ?? null,
      config,
      nodeName: held.node,
      objects: held.objects,
      rejected: [...status.source.refused.objects, ...held.rejections],
      quarantined,
    };
  } catch (error) {
    if (!(error instanceof NotRunningError)) throw error;
    // Whatever answers there instead, the API server is asked next.
    if (!NONE.has(error.reason)) report(`${error.message}; objects are not taken from it`);
    return error.message;
  }
}

/** Asks it for the ports that it listens on in mode userspace; says why if nobody tells. */
export async function askPortals(
  { kproxy: { socket } }: KubeProxyConfiguration,
): Promise<KnownPortals | string> {
  try {
    const running = new RunningKproxy(socket);
    const { mode, portals, iptables } = await running.portals();
    if (mode !== "userspace") return `the kproxy on ${running.address} runs mode ${mode}`;
    return { where: `kproxy on ${running.address}`, portals, iptables };
  } catch (error) {
    if (!(error instanceof NotRunningError)) throw error;
    return error.message;
  }
}
