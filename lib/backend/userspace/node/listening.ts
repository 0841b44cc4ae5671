/**
 * Userspace mode without rules: Services are opened on addresses of the node itself. No program is started and no right needed.
 *
 * @module
 */
import type { FamilyProxier } from "../../backend.ts";
import type { ModeContext, PreparedMode } from "../../node/mode.ts";
import { ListeningProxier } from "../apply/listener.ts";
import type { SharedPortals } from "../apply/shared_portals.ts";
import { parseListenRange } from "../plan/listen.ts";
import { addRelayMetrics } from "./metrics.ts";

/** Makes a proxier for each address or network that is configured; each is of another IP family. */
export function prepareListening({ config, log }: ModeContext, shared: SharedPortals): PreparedMode {
  const proxiers = config.kproxy.userspaceListen.map((text) => {
    const range = parseListenRange(text);
    if (range === null) throw new TypeError(`${text} is neither an address nor a network`);
    const { lingering } = shared;
    return new ListeningProxier({
      family: range.family,
      range,
      open: (place) => shared.open(place, config.udpIdleTimeout),
      lingering,
      log,
    });
  });
  log.info("Opening Services on addresses of this node, without any rule", {
    addresses: config.kproxy.userspaceListen,
  });
  return {
    proxiers: proxiers satisfies readonly FamilyProxier[],
    refused: [],
    reconfigure: () => [],
    addMetrics: (registry) => addRelayMetrics(registry, () => shared.counts),
    portals: () => ({ portals: proxiers.flatMap(({ facts }) => facts), iptables: {} }),
    keepsFlows: true,
    close: () => {
      for (const proxier of proxiers) proxier.leave();
      shared.left();
      return Promise.resolve();
    },
  };
}
