/**
 * Gets a node ready for userspace mode: which iptables, which families, what its iptables has; and makes the proxiers.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../../config/types.ts";
import { parsePortRange } from "../../../config/port_range.ts";
import { interfaceIps } from "../../../kernel/interfaces.ts";
import type { Iptables } from "../../../kernel/iptables.ts";
import { type RefusedFamily, usableFamilies } from "../../../kernel/iptables_families.ts";
import { chooseIptablesVariant } from "../../../kernel/iptables_variant.ts";
import { RememberingExec } from "../../../kernel/remembering_exec.ts";
import { isLoopback, isUnspecified, parseIp } from "../../../model/ip.ts";
import { nodeIps } from "../../../model/node.ts";
import type { IpFamily, NodeObject } from "../../../model/objects.ts";
import { familySettings } from "../../family_settings.ts";
import { Afterlife } from "../../node/afterlife.ts";
import type { ModeContext, PreparedMode } from "../../node/mode.ts";
import { reconfigureProxiers, tellFamilies, tellingSettings } from "../../node/node_settings.ts";
import { UserspaceProxier, type UserspaceSettings } from "../apply/apply.ts";
import { takesRule } from "../apply/apply_refusals.ts";
import { Portals } from "../apply/portals.ts";
import { SharedPortals } from "../apply/shared_portals.ts";
import { StaleUdp } from "../apply/stale_udp.ts";
import { prepareListening } from "./listening.ts";
import { addRelayMetrics } from "./metrics.ts";

/** The addresses that stand for all. */
const EVERYWHERE: Readonly<Record<IpFamily, string>> = { IPv4: "0.0.0.0", IPv6: "::" };

/**
 * Probes the node.
 *
 * @throws {UnsupportedError} if iptables does not work for the primary family
 */
export async function prepareUserspace(context: ModeContext): Promise<PreparedMode> {
  if (context.config.kproxy.userspaceListen.length > 0) {
    return prepareListening(context, sharedPortals(context));
  }
  const { exec, config, log, sysctls } = context;
  const shared = sharedPortals(context);
  const probing = new RememberingExec(exec);
  const { primaryFamily } = nodeIps(null, config.bindAddress);
  const { variant, reason } = await chooseIptablesVariant(probing, { primaryFamily });
  log.info("Using iptables", { variant, reason });
  const refused: RefusedFamily[] = [];
  const onRefused = (family: RefusedFamily): void => {
    refused.push(family);
    log.info("IP family cannot be served", { family: family.family, reason: family.reason });
  };
  const families = await usableFamilies(exec, { variant, primaryFamily, sysctls, onRefused, probing });
  tellFamilies(families.keys(), log);
  const has = new Map<IpFamily, UserspaceSettings["has"]>();
  for (const [family, iptables] of families) has.set(family, await abilities(iptables, family));
  const settingsOf = tellingSettings(context, (family, node) => {
    const { options, problem } = userspaceSettings(config, family, node);
    return { options: { ...options, has: has.get(family)! }, problem };
  });
  const proxiers: UserspaceProxier[] = [];
  const portals: Portals[] = [];
  for (const [family, iptables] of families) {
    const settings = settingsOf(family, null);
    const ofFamily = new Portals({
      family,
      ip: settings.listenIp ?? EVERYWHERE[family],
      range: parsePortRange(config.portRange),
      lingering: shared.lingering,
      open: (place) => shared.open(place, config.udpIdleTimeout),
    });
    portals.push(ofFamily);
    proxiers.push(
      new UserspaceProxier({
        iptables,
        settings,
        portals: ofFamily,
        staleUdp: new StaleUdp({ exec, family, log }),
        interfaceIps,
        logger: log,
      }),
    );
  }
  return {
    proxiers,
    refused,
    reconfigure: (node) => reconfigureProxiers(proxiers, settingsOf, node),
    addMetrics: (registry) => addRelayMetrics(registry, () => shared.counts),
    keepsFlows: true,
    close: () => {
      for (const ofFamily of portals) ofFamily.leave();
      shared.left();
      return Promise.resolve();
    },
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
  };
}

/**
 * An address for the node's own packets. Answers of UDP come from the address that the kernel prefers towards the client, which is none
 * of loopback's unless the client is there, too: where the Node tells no address, an interface does.
 */
function reachable(nodeIp: string, family: IpFamily): string {
  if (!isLoopback(parseIp(nodeIp)!)) return nodeIp;
  const found = interfaceIps().map((text) => parseIp(text)).find((ip) =>
    ip?.family === family && !isLoopback(ip) && !ip.text.startsWith("fe80:")
  );
  return found?.text ?? nodeIp;
}

/** What the configuration and the Node say of one family. */
function userspaceSettings(
  config: KubeProxyConfiguration,
  family: IpFamily,
  node: NodeObject | null,
): ReturnType<typeof familySettings> extends { problem: infer Problem }
  ? { readonly options: Omit<UserspaceSettings, "has">; readonly problem: Problem }
  : never {
  const { settings, problem } = familySettings(config, "iptables", family, node);
  const bind = parseIp(config.bindAddress);
  const listenIp = bind === null || isUnspecified(bind) || bind.family !== family ? null : bind.text;
  const { nodeIp, detector, nodePortAddresses } = settings;
  return { options: { listenIp, nodeIp: reachable(nodeIp, family), detector, nodePortAddresses }, problem };
}
