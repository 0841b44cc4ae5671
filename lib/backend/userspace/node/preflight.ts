/**
 * Gets a node ready for userspace mode: which iptables, which families, what its iptables has; and makes the proxiers.
 *
 * @module
 */
import { parsePortRange } from "../../../config/port_range.ts";
import { interfaceIps } from "../../../kernel/interfaces.ts";
import type { Iptables } from "../../../kernel/iptables.ts";
import { iptablesOfNode } from "../../../kernel/iptables_families.ts";
import { EVERYWHERE } from "../../../kernel/port_probe.ts";
import { nodeIps } from "../../../model/node.ts";
import type { IpFamily } from "../../../model/objects.ts";
import { takesRule } from "../../apply/iptables_trial.ts";
import { Afterlife } from "../../node/afterlife.ts";
import type { ModeContext, PreparedMode } from "../../node/mode.ts";
import { reconfigureProxiers, tellFamilies, tellingSettings } from "../../node/node_settings.ts";
import { UserspaceProxier, type UserspaceSettings } from "../apply/proxier.ts";
import { type PortalKeeper, Portals, PortalsOfAnother } from "../apply/portals.ts";
import { SharedPortals } from "../apply/shared_portals.ts";
import { StaleUdp } from "../apply/stale_udp.ts";
import { Withdrawal } from "../apply/withdrawal.ts";
import type { Portal } from "../plan/ruleset.ts";
import { configuredUserspace } from "../plan/settings.ts";
import { prepareListening } from "./listening.ts";
import { addRelayMetrics } from "./metrics.ts";

/** Makes the portals of a family; `listenIp` as in its settings. */
type MakeKeeper = (family: IpFamily, listenIp: string | null) => PortalKeeper;

/**
 * Probes the node.
 *
 * @throws {UnsupportedError} if iptables does not work for the primary family
 */
export async function prepareUserspace(context: ModeContext): Promise<PreparedMode> {
  const { config } = context;
  const shared = sharedPortals(context);
  if (config.kproxy.userspaceListen.length > 0) return prepareListening(context, shared);
  const portals: Portals[] = [];
  const { has, families, ...prepared } = await prepareRules(context, (family, listenIp) => {
    const ofFamily = new Portals({
      family,
      ip: listenIp ?? EVERYWHERE[family],
      range: parsePortRange(config.portRange),
      lingering: shared.lingering,
      open: (place) => shared.open(place, config.udpIdleTimeout),
    });
    portals.push(ofFamily);
    return ofFamily;
  });
  const { afterlife, log } = context;
  for (const iptables of afterlife?.exec === undefined ? [] : families) {
    shared.ledBy(iptables.family, new Withdrawal(iptables, afterlife!.exec!, log));
  }
  return {
    ...prepared,
    addMetrics: (registry) => addRelayMetrics(registry, () => shared.counts),
    portals: () => ({
      portals: portals.flatMap(({ facts }) => facts),
      iptables: Object.fromEntries(has),
    }),
    close: () => {
      for (const ofFamily of portals) ofFamily.leave();
      shared.left();
      return Promise.resolve();
    },
  };
}

/**
 * Likewise for rules that lead to the ports of a kproxy that runs already; none is opened.
 *
 * @throws {UnsupportedError} if iptables does not work for the primary family
 */
export async function prepareBesideAnother(
  context: ModeContext,
  portOf: (family: IpFamily, portal: Portal) => number | undefined,
): Promise<PreparedMode> {
  const { has: _, families: __, ...prepared } = await prepareRules(
    context,
    (family) => new PortalsOfAnother((portal) => portOf(family, portal)),
  );
  return prepared;
}

interface PreparedRules extends Pick<PreparedMode, "proxiers" | "refused" | "reconfigure" | "keepsFlows"> {
  readonly has: ReadonlyMap<IpFamily, UserspaceSettings["has"]>;
  readonly families: readonly Iptables[];
}

async function prepareRules(context: ModeContext, makeKeeper: MakeKeeper): Promise<PreparedRules> {
  const { exec, config, log, sysctls } = context;
  const { primaryFamily } = nodeIps(null, config.bindAddress);
  const { families, refused } = await iptablesOfNode(exec, { primaryFamily, sysctls, log });
  tellFamilies(families.keys(), log);
  const has = new Map<IpFamily, UserspaceSettings["has"]>();
  for (const [family, iptables] of families) {
    const found = await abilities(iptables, family);
    has.set(family, found);
    if (!found.firewall) {
      log.warn(
        "No rule can keep direct packets from the ports of Services: iptables lacks conntrack or REJECT",
        {
          family,
        },
      );
    }
  }
  const settingsOf = tellingSettings(context, (family, node) => {
    const { options, problem } = configuredUserspace(config, family, node, interfaceIps());
    return { options: { ...options, has: has.get(family)! }, problem };
  });
  const proxiers = [...families].map(([family, iptables]) => {
    const settings = settingsOf(family, null);
    return new UserspaceProxier({
      iptables,
      settings,
      portals: makeKeeper(family, settings.listenIp),
      staleUdp: new StaleUdp({ exec, family, log }),
      interfaceIps,
      logger: log,
    });
  });
  return {
    proxiers,
    refused,
    reconfigure: (node) => reconfigureProxiers(proxiers, settingsOf, node),
    keepsFlows: true,
    has,
    families: [...families.values()],
  };
}

/** Those of the process. Whoever only asks whether the mode would run has no afterlife, and needs no thread. */
function sharedPortals({ afterlife, log }: ModeContext): SharedPortals {
  const shared = (afterlife ?? new Afterlife()).share(SharedPortals);
  shared.begun((problem, message) => log.error(problem, new Error(message)));
  if (afterlife !== undefined) shared.start();
  return shared;
}

async function abilities(iptables: Iptables, family: IpFamily): Promise<UserspaceSettings["has"]> {
  const [to, loopback] = family === "IPv4" ? ["192.0.2.1/32", "127.0.0.1"] : ["2001:db8::1/128", "[::1]"];
  const match = `-p tcp -m tcp --dport 1 -d ${to}`;
  return {
    dnat: await takesRule(iptables, `${match} -j DNAT --to-destination ${loopback}:1`),
    physdev: await takesRule(iptables, `${match} -m physdev ! --physdev-is-in -j ACCEPT`),
    firewall: await takesRule(iptables, `${match} -m conntrack ! --ctstate DNAT -j REJECT`, "filter"),
  };
}
