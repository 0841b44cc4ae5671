/**
 * Gets a node ready for nftables mode: whether nft and the kernel take our rules, for which families; and makes the proxiers.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../../config/types.ts";
import { ExecError, UnsupportedError } from "../../../errors.ts";
import { interfaceIps } from "../../../kernel/machine.ts";
import { NEEDS_RIGHTS, servedFamilies } from "../../../kernel/ip_families.ts";
import { isAtLeast } from "../../../kernel/iptables.ts";
import { describeNftFailure, Nft, nftErrors, nftFailureKind, saysWhy } from "../../../kernel/nft.ts";
import { nftFamily } from "../../../netfilter/nft_words.ts";
import { cidrContains, type Ip } from "../../../model/ip.ts";
import { nodeIps } from "../../../model/node.ts";
import type { IpFamily } from "../../../model/objects.ts";
import type { Logger } from "../../../observe/log.ts";
import type { ModeContext, PreparedMode } from "../../node/mode.ts";
import { logFamilies, loggedSettings, reconfigureProxiers } from "../../node/node_settings.ts";
import { NftablesProxier, type NftablesSettings } from "../apply/proxier.ts";
import { TrafficReader } from "../apply/traffic.ts";
import { TABLE_NAME } from "../plan/chains.ts";
import { type Feature, neededFeatures } from "../plan/features.ts";
import { type ConfiguredNftables, configuredNftables, networksOfFamily } from "../plan/plan.ts";

/** Loopback of IPv6; that of IPv4 is in the settings. */
const IPV6_LOOPBACK: Ip = { family: "IPv6", text: "::1", bytes: [...Array(15).fill(0), 1] };
/** Older ones take the same rules, but do not list them such that they can be read back. */
export const MIN_NFT_VERSION = "1.0.1";

/**
 * Probes the node and prepares it.
 *
 * @throws {UnsupportedError} naming what is missing, if nftables does not work for the primary family
 * @throws {ExecError} if what works cannot be found out
 */
export async function prepareNftables(context: ModeContext): Promise<PreparedMode> {
  const { exec, config, log, sysctls } = context;
  const nft = new Nft(exec);
  const version = await requireNft(nft);
  log.info("Using nftables", { version });
  const { families, refused } = await servedFamilies({
    primaryFamily: nodeIps(null, config.bindAddress).primaryFamily,
    sysctls,
    log,
    probe: (family) => probeFamily(nft, configuredNftables(config, family, null).options, version),
    hasRules: (family) => holdsRules(nft, family),
  });
  warnOfRefusedCounters(config, families, log);
  logFamilies(families.keys(), log);
  return makeProxiers({ nft, config, log, families, refused });
}

/** True if our table exists; false, too, where that is unknown. */
async function holdsRules(nft: Nft, family: IpFamily): Promise<boolean> {
  try {
    return await nft.hasTable(nftFamily(family), TABLE_NAME);
  } catch (error) {
    if (error instanceof ExecError) return false;
    throw error;
  }
}

/** Optional features of nft and the kernel for one family. */
interface NodeNft {
  readonly objectComments: boolean;
  /** False if counters are not wanted, or refused. */
  readonly trafficCounters: boolean;
}

interface ProxierParts {
  readonly nft: Nft;
  readonly config: KubeProxyConfiguration;
  readonly log: Logger;
  readonly families: ReadonlyMap<IpFamily, NodeNft>;
}

function makeProxiers(
  { nft, config, log, families, refused }: ProxierParts & Pick<PreparedMode, "refused">,
): PreparedMode {
  const settingsOf = loggedSettings<NftablesSettings>({ config, log }, (family, node) => {
    const { options, problem } = configuredNftables(config, family, node);
    const { objectComments = false, trafficCounters = false } = families.get(family) ?? {};
    return { options: { ...options, objectComments, trafficCounters }, problem };
  });
  for (const family of families.keys()) warnOfLocalhostNodePorts(settingsOf(family, null), family, log);
  const proxiers = [...families.keys()].map((family) =>
    new NftablesProxier({
      family,
      nft,
      settings: settingsOf(family, null),
      interfaceIps,
      logger: log,
      nowMs: () => performance.now(),
    })
  );
  const serviceTraffic = trafficOf(proxiers, { nft, config, log, families });
  return {
    proxiers,
    refused,
    ...(serviceTraffic === undefined ? {} : { serviceTraffic }),
    reconfigure: (node) => reconfigureProxiers(proxiers, settingsOf, node),
    setServiceCidrs: (networks) => {
      log.info("ServiceCIDRs", { networks });
      return proxiers.filter((proxier) => proxier.setServiceCidrs(networksOfFamily(networks, proxier.family)))
        .map(({ family }) => family);
    },
  };
}

function warnOfRefusedCounters(
  { kproxy: { trafficCounters } }: KubeProxyConfiguration,
  families: ReadonlyMap<IpFamily, NodeNft>,
  log: Logger,
): void {
  for (const [family, node] of families) {
    if (!trafficCounters || node.trafficCounters) continue;
    log.warn("Traffic is not counted: nft or the kernel refuses counters of set elements", { family });
  }
}

/** Reads the traffic counters of all families; undefined if none counts. */
function trafficOf(
  proxiers: readonly NftablesProxier[],
  { nft, log, families }: ProxierParts,
): PreparedMode["serviceTraffic"] {
  const readers = proxiers.filter(({ family }) => families.get(family)?.trafficCounters === true)
    .map((proxier) =>
      new TrafficReader({
        nft,
        family: proxier.family,
        state: () => proxier.state,
        logger: log,
        nowMs: () => performance.now(),
      })
    );
  if (readers.length === 0) return undefined;
  return async () => (await Promise.all(readers.map((reader) => reader.read()))).flat();
}

/** An operator who names a loopback network expects node ports there. "Every address" is the default of other modes, and means less. */
function warnOfLocalhostNodePorts(
  { nodePortAddresses: { matchAll, cidrs, containsIPv4Loopback } }: NftablesSettings,
  family: IpFamily,
  log: Logger,
): void {
  const isNamed = containsIPv4Loopback || cidrs.some((cidr) => cidrContains(cidr, IPV6_LOOPBACK));
  if (matchAll || !isNamed) return;
  const address = family === "IPv4" ? "127.0.0.1" : IPV6_LOOPBACK.text;
  log.warn(`Node ports will not answer on ${address}: mode nftables does not serve them there`, {
    advice: "use another address of the node, or mode iptables",
  });
}

async function requireNft(nft: Nft): Promise<string | null> {
  let version: string | null;
  try {
    version = await nft.version();
  } catch (error) {
    if (!(error instanceof ExecError) || error.isInconclusive()) throw error;
    const message = error.isMissing()
      ? "install nftables (not on PATH: nft)"
      : `nft does not work here: ${error.message}`;
    throw new UnsupportedError("nftables", "the program nft", error.message, { cause: error, message });
  }
  // An nft without a version number may still be new enough: then the dry run decides.
  if (version !== null && !isAtLeast(version, MIN_NFT_VERSION)) {
    throw new UnsupportedError("nftables", `nft ${MIN_NFT_VERSION} or newer`, `nft ${version}`);
  }
  return version;
}

/** Dry run of all features that our rules use; leaves out optional ones that are refused. */
async function probeFamily(
  nft: Nft,
  { family, trafficCounters }: ConfiguredNftables,
  version: string | null,
): Promise<NodeNft> {
  let features = neededFeatures(family).filter(({ option }) =>
    option !== "trafficCounters" || trafficCounters === true
  );
  for (;;) {
    const failure = await checkFailure(nft, features);
    if (failure === null) break;
    if (nftFailureKind(failure) !== "rejected") throw withoutRights(family, failure, version);
    const refused = refusedFeatures(failure, features);
    const [lacking] = refused.filter(({ option }) => option === undefined);
    if (lacking !== undefined) throw missingFeature(family, lacking, failure, version);
    features = features.filter((feature) => !refused.includes(feature));
  }
  const has = (wanted: Feature["option"]): boolean => features.some(({ option }) => option === wanted);
  return { objectComments: has("objectComments"), trafficCounters: has("trafficCounters") };
}

/**
 * Null if nft takes the features.
 *
 * @throws {ExecError} if that is unknown: nft was killed, hung, or fails without saying why
 */
async function checkFailure(nft: Nft, features: readonly Feature[]): Promise<ExecError | null> {
  try {
    await nft.check(features.flatMap(({ commands }) => commands).map((line) => `${line}\n`).join(""));
    return null;
  } catch (error) {
    if (error instanceof ExecError && saysWhy(error)) return error;
    throw error;
  }
}

/** Features whose lines nft names; the first if it names none, because then nothing works. */
function refusedFeatures({ stderr }: ExecError, features: readonly Feature[]): readonly Feature[] {
  const owners = features.flatMap((feature) => feature.commands.map(() => feature));
  const named = new Set(nftErrors(stderr).map(({ line }) => owners[line - 1]));
  const refused = features.filter((feature) => named.has(feature));
  return refused.length === 0 ? features.slice(0, 1) : refused;
}

function missingFeature(
  family: IpFamily,
  { name, kernel }: Feature,
  failure: ExecError,
  version: string | null,
): UnsupportedError {
  // What the program itself does not understand never gets to the kernel.
  const isKernel = failure.stderr.includes("Could not process rule") ||
    nftErrors(failure.stderr).length === 0;
  const needs = isKernel ? `in the kernel: ${kernel}` : "a newer nft";
  return new UnsupportedError(`${family} through nftables: ${name}`, needs, foundText(failure, version), {
    cause: failure,
  });
}

function foundText(failure: ExecError, version: string | null): string {
  return `${describeNftFailure(failure)} (nft ${version ?? "of unknown version"})`;
}

/** Error of a process that may not use nftables. */
function withoutRights(family: IpFamily, failure: ExecError, version: string | null): UnsupportedError {
  return new UnsupportedError(
    `${family} through nftables`,
    "root or CAP_NET_ADMIN",
    foundText(failure, version),
    { message: NEEDS_RIGHTS, cause: failure },
  );
}
