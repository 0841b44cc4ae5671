/**
 * From facts to findings: every judgement, in the order of the report.
 *
 * @module
 */
import { neededIpvsSysctls } from "../../backend/ipvs/node/preflight_sysctls.ts";
import type { KubeProxyConfiguration, ProxyMode } from "../../config/types.ts";
import { conntrackSettings } from "../../conntrack/settings.ts";
import type { DoctorFacts } from "./facts.ts";
import { type Fact, judged, known, unread } from "./fact.ts";
import type { Finding } from "./finding.ts";
import { judgeApi, judgeClock, judgeNoApi } from "./judge/api.ts";
import { judgeConntrack } from "./judge/conntrack.ts";
import { judgeDeviceForwarding, judgeForwarding } from "./judge/forwarding.ts";
import { judgeBaseChains, judgeForeignEnds, judgeForward } from "./judge/hooks.ts";
import { judgeLeftovers } from "./judge/leftovers.ts";
import { judgeLocalTraffic } from "./judge/local_traffic.ts";
import { judgeLock } from "./judge/lock.ts";
import { judgeMode } from "./judge/mode.ts";
import { judgeModeSettings } from "./judge/mode_settings.ts";
import { judgeMtu } from "./judge/mtu.ts";
import { ipv6Use, judgeNode } from "./judge/node.ts";
import { judgeOtherProxies } from "./judge/other_proxies.ts";
import { judgeProgramRuns } from "./judge/program_runs.ts";
import { judgePrograms } from "./judge/programs.ts";
import { judgeReversePath } from "./judge/reverse_path.ts";
import { judgeRights } from "./judge/rights.ts";
import { judgeVariant } from "./judge/variant.ts";

/** What the facts are judged by. */
export interface DoctorSettings {
  readonly config: KubeProxyConfiguration;
  readonly nodeName: string;
  readonly cpuCount: number;
  /** The mode to move to; null without one. */
  readonly migrateTo: ProxyMode | null;
}

/** The mode that runs here as far as anybody can tell: the one that works, else the configured one. */
export function modeHere(facts: DoctorFacts, { mode }: KubeProxyConfiguration): ProxyMode {
  const fact = known(facts.mode);
  return fact?.kind === "works" ? fact.mode : mode;
}

/** All findings. */
export function judgeNodeFacts(facts: DoctorFacts, settings: DoctorSettings): readonly Finding[] {
  const { config } = settings;
  const mode = modeHere(facts, config);
  const usesIpv6 = ipv6Use(nodeOf(facts), config);
  return [
    ...judgeOwnMode(facts, config),
    ...judgeOtherMode(facts, settings),
    ...judgeProgramRuns(facts.troubles),
    ...judgePrograms(facts.programs, wantedModes(mode, settings.migrateTo)),
    ...judged("rights", facts.rights, (fact) => judgeRights(fact, known(facts.mode))),
    ...judged("iptables variant", facts.variant, (fact) => judgeVariant(fact, mode)),
    ...judged(
      "xtables lock",
      facts.lock,
      (lock) => judgeLock(lock, { inContainer: facts.inContainer, isUsed: usesLock(facts, mode) }),
    ),
    ...judged(
      "leftovers",
      facts.leftovers,
      (left) => judgeLeftovers(left, mode, known(facts.links)?.links.map(({ device }) => device)),
    ),
    ...judgeOthers(facts, config, mode),
    ...judgeKernelSettings(facts, settings, { mode, usesIpv6 }),
    ...judged("packet sizes", facts.links, judgeMtu),
    ...judgeCluster(facts, settings),
  ];
}

/** What keeps the doctor from trying the mode keeps a start from it, too. */
function judgeOwnMode({ mode }: DoctorFacts, config: KubeProxyConfiguration): readonly Finding[] {
  return judged("mode", mode, (fact) => judgeMode(fact, config.mode))
    .map((finding) => "unread" in mode ? { ...finding, level: "failure" } : finding);
}

function wantedModes(mode: ProxyMode, migrateTo: ProxyMode | null): readonly ProxyMode[] {
  return migrateTo === null ? [mode] : [mode, migrateTo];
}

function judgeOtherMode({ otherMode }: DoctorFacts, { migrateTo }: DoctorSettings): readonly Finding[] {
  if (otherMode === null || migrateTo === null) return [];
  return judged(`mode ${migrateTo}`, otherMode, (fact) => judgeMode(fact, migrateTo));
}

/** The nft variant needs no lock: the kernel takes whole transactions. Where nobody can tell the variant, the lock may matter. */
function usesLock({ variant }: DoctorFacts, mode: ProxyMode): boolean {
  return mode !== "nftables" && known(variant)?.chosen.variant !== "nft";
}

function judgeOthers(
  facts: DoctorFacts,
  { metricsBindAddress: metricsAddress }: KubeProxyConfiguration,
  mode: ProxyMode,
): readonly Finding[] {
  const { metricsOwner, baseChains, kernelChains, links } = facts;
  const unknown = [metricsOwner, kernelChains].flatMap((fact: Fact<unknown>) =>
    "unread" in fact ? [fact] : []
  );
  return [
    ...judgeOtherProxies({
      metricsAddress,
      mode,
      owner: known(metricsOwner),
      baseChains: known(baseChains),
      prerouting: known(kernelChains)?.prerouting,
      links: known(links)?.links,
    }),
    ...unknown.map(({ unread: reason }) => unread("other proxies", reason)),
    ...judgeChains(facts, mode),
  ];
}

function judgeChains(
  { baseChains, foreignEnds, kernelChains, programs }: DoctorFacts,
  mode: ProxyMode,
): readonly Finding[] {
  const nft = known(programs.get("nft") ?? { unread: "" });
  // Without the program there may still be tables, but mode iptables needs none to be looked at.
  const isWithoutNft = nft !== undefined && nft.kind !== "found" && mode !== "nftables";
  return [
    ...(isWithoutNft ? [] : judged("rules of others", baseChains, judgeBaseChains)),
    // Where they cannot be walked through, `kproxy trace` says why; that there are such tables was told.
    ...judgeForeignEnds(known(foreignEnds) ?? []),
    ...judgeForward(known(kernelChains)?.forward ?? [], mode),
  ];
}

function judgeKernelSettings(
  facts: DoctorFacts,
  { config, cpuCount }: DoctorSettings,
  { mode, usesIpv6 }: { readonly mode: ProxyMode; readonly usesIpv6: string | null },
): readonly Finding[] {
  const podDevices = new Set(
    known(facts.links)?.links.filter(({ kind }) => kind === "veth").map(({ device }) => device) ?? [],
  );
  return [
    ...judged("kernel settings", facts.settings, (found) => [
      ...judgeForwarding(found, usesIpv6),
      ...judgeConntrack(found, conntrackSettings(config.conntrack, cpuCount)),
      ...judgeModeSettings(found, {
        mode,
        needed: mode === "ipvs" ? neededIpvsSysctls(config) : [],
        wantsLocalhost: config.iptables.localhostNodePorts,
        release: facts.release,
      }),
    ]),
    ...judged("settings of devices", facts.deviceSettings, (found) => [
      ...judgeDeviceForwarding(found, usesIpv6),
      ...judgeReversePath(found, podDevices),
    ]),
  ];
}

function judgeCluster(facts: DoctorFacts, settings: DoctorSettings): readonly Finding[] {
  const { api, mode, ownIps } = facts;
  if (api === null) return [];
  if ("unread" in api) return judgeNoApi(api.unread);
  const { nodeName, config: { bindAddress } } = settings;
  const modeFact = known(mode);
  const refused = modeFact?.kind === "works" ? modeFact.refused.map(({ family }) => family) : [];
  const { node, aheadMs, namesakes, podCIDRs } = api.value;
  const findings = judgeApi(api.value);
  // What does not answer was told once.
  const isSilent = "unread" in aheadMs && "unread" in node;
  if (isSilent) return findings;
  return [
    ...findings,
    ...judged(
      "node",
      node,
      (found) => judgeNode(found, { nodeName, ownIps, bindAddress, refused, namesakes }),
    ),
    ...judgeLocalTraffic(settings.config, {
      mode: modeHere(facts, settings.config),
      node: known(node) ?? null,
      podCIDRs,
    }),
    ...judged("clock", aheadMs, judgeClock),
  ];
}

function nodeOf({ api }: DoctorFacts): Parameters<typeof ipv6Use>[0] {
  const facts = api === null ? undefined : known(api);
  return facts === undefined ? null : known(facts.node) ?? null;
}
