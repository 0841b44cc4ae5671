/**
 * Gets a node ready for userspace mode: variant of iptables, families, features of iptables; and makes the proxiers.
 *
 * @module
 */
import { parsePortRange } from "../../../config/value_texts.ts";
import { EVERYWHERE, interfaceIps } from "../../../kernel/machine.ts";
import type { Iptables } from "../../../kernel/iptables.ts";
import { iptablesOfNode } from "../../../kernel/iptables_variant.ts";
import { nodeIps } from "../../../model/node.ts";
import type { IpFamily } from "../../../model/objects.ts";
import { takesRule } from "../../apply/iptables_trial.ts";
import { ProcessWide } from "../../node/process_wide.ts";
import type { ModeContext, PreparedMode } from "../../node/mode.ts";
import { logFamilies, loggedSettings, reconfigureProxiers } from "../../node/node_settings.ts";
import { ListeningProxier, parseListenRange } from "../apply/listener.ts";
import { UserspaceProxier, type UserspaceSettings } from "../apply/proxier.ts";
import { Portals } from "../apply/portals.ts";
import { type SharedPortal, SharedPortals } from "../forward/shared_portals.ts";
import { StaleUdp, Withdrawal } from "../apply/withdrawal.ts";
import { configuredUserspace, type Portal } from "../plan/plan.ts";
import { addRelayMetrics } from "./metrics.ts";

/**
 * Probes the node.
 *
 * @throws {UnsupportedError} if iptables does not work for the primary family
 */
export async function prepareUserspace(context: ModeContext): Promise<PreparedMode> {
  const { config, log, processWide } = context;
  // A process that only asks whether the mode would run has nothing process-wide, and needs no thread.
  const shared = (processWide ?? new ProcessWide()).share(SharedPortals);
  shared.begun(config.udpIdleTimeout, (problem, message) => log.error(problem, new Error(message)));
  if (processWide !== undefined) shared.start();
  const range = parsePortRange(config.portRange);
  const prepared = config.kproxy.userspaceListen.length > 0
    ? prepareListening(context, shared)
    : await prepareRules(context, (family, listenIp, { protocol }, requested) => {
      const ip = listenIp ?? EVERYWHERE[family];
      return shared.open({ family, protocol, ip, requested, range, isOfOneFamily: true });
    });
  for (const iptables of processWide?.exec === undefined ? [] : prepared.families) {
    shared.ledBy(iptables.family, new Withdrawal(iptables, processWide!.exec!, log));
  }
  return {
    ...prepared,
    keepsFlows: true,
    addMetrics: (registry) => addRelayMetrics(registry, () => shared.counts),
    close: async () => {
      await prepared.close?.();
      shared.left();
    },
  };
}

/**
 * Prepares rules that lead to the ports of a kproxy that runs already; no port is opened.
 *
 * @throws {UnsupportedError} if iptables does not work for the primary family
 */
export async function prepareBesideAnother(
  context: ModeContext,
  portOf: (family: IpFamily, portal: Portal) => number | undefined,
): Promise<PreparedMode> {
  return await prepareRules(context, (family, ip, portal) => {
    const port = portOf(family, portal);
    if (port === undefined) return Promise.reject(new Error("the kproxy that runs has no port for it"));
    return Promise.resolve({
      ip: ip ?? "",
      port,
      update: () => {},
      leave: () => {},
      close: () => Promise.resolve(),
    });
  });
}

/** Opens a portal; `ip` as `listenIp` in the settings. */
type Open = (
  family: IpFamily,
  ip: string | null,
  portal: Portal,
  requested: number | null,
) => Promise<SharedPortal>;

/** A mode, and the families that rules are written for. */
interface Prepared extends PreparedMode {
  readonly families: readonly Iptables[];
}

async function prepareRules(context: ModeContext, open: Open): Promise<Prepared> {
  const { exec, config, log, sysctls } = context;
  const { primaryFamily } = nodeIps(null, config.bindAddress);
  const { families, refused } = await iptablesOfNode(exec, { primaryFamily, sysctls, log });
  logFamilies(families.keys(), log);
  const has = new Map<IpFamily, UserspaceSettings["has"]>();
  for (const [family, iptables] of families) {
    const found = await abilities(iptables, family);
    has.set(family, found);
    if (!found.firewall) {
      log.warn(
        "No rule can keep direct packets from the ports of Services: iptables lacks conntrack or REJECT",
        { family },
      );
    }
  }
  const settingsOf = loggedSettings(context, (family, node) => {
    const { options, problem } = configuredUserspace(config, family, node, interfaceIps());
    return { options: { ...options, has: has.get(family)! }, problem };
  });
  const portals = new Map<IpFamily, Portals>();
  const proxiers = [...families].map(([family, iptables]) => {
    const settings = settingsOf(family, null);
    const ofFamily = new Portals((portal, requested) => open(family, settings.listenIp, portal, requested));
    portals.set(family, ofFamily);
    const staleUdp = new StaleUdp(exec, family, log);
    return new UserspaceProxier({
      iptables,
      settings,
      portals: ofFamily,
      staleUdp,
      interfaceIps,
      logger: log,
    });
  });
  return {
    proxiers,
    refused,
    families: [...families.values()],
    reconfigure: (node) => reconfigureProxiers(proxiers, settingsOf, node),
    portals: () => ({
      portals: [...portals].flatMap(([family, ofFamily]) => ofFamily.facts(family)),
      iptables: Object.fromEntries(has),
    }),
    close: () => {
      for (const ofFamily of portals.values()) ofFamily.leave();
      return Promise.resolve();
    },
  };
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

/** Services are opened on addresses of the node itself, each of another IP family. No program is started and no right needed. */
function prepareListening({ config, log }: ModeContext, shared: SharedPortals): Prepared {
  const { userspaceListen: addresses } = config.kproxy;
  const proxiers = addresses.map((text) => {
    const range = parseListenRange(text);
    if (range === null) throw new TypeError(`${text} is neither an address nor a network`);
    return new ListeningProxier({ family: range.family, range, shared, log });
  });
  log.info("Opening Services on addresses of this node, without any rule", { addresses });
  return {
    proxiers,
    refused: [],
    families: [],
    reconfigure: () => [],
    portals: () => ({ portals: proxiers.flatMap(({ facts }) => facts), iptables: {} }),
    close: () => {
      for (const proxier of proxiers) proxier.leave();
      return Promise.resolve();
    },
  };
}
