/**
 * `kproxy doctor`: the list of its checks, and the facts that they use, which are read in parallel, each by itself.
 *
 * @module
 */
import { neededIpvsSysctls } from "../../backend/ipvs/node/preflight.ts";
import { configForMode } from "../../config/defaults.ts";
import type { KubeProxyConfiguration, ProxyMode } from "../../config/types.ts";
import { conntrackSettings } from "../../kernel/conntrack_settings.ts";
import { ExecError, UsageError } from "../../errors.ts";
import type { Exec } from "../../kernel/exec.ts";
import { readDeviceSettings } from "../../kernel/ip_address.ts";
import { readXtablesLock } from "../../kernel/iptables.ts";
import { cpuCount, interfaceIps, kernelRelease } from "../../kernel/machine.ts";
import { Nft } from "../../kernel/nft.ts";
import { Runner } from "../../kernel/runner.ts";
import { parseIp } from "../../model/ip.ts";
import { nodeIps } from "../../model/node.ts";
import { usesApiServer } from "../../node/source.ts";
import { errorText } from "../../observe/log.ts";
import { RENDERED_MODES, type RenderedMode } from "../desired/desired.ts";
import { findObjects } from "../objects.ts";
import * as apiServer from "./api.ts";
import * as cluster from "./cluster.ts";
import * as settings from "./kernel_settings.ts";
import { compareModes, type Migration } from "./migration.ts";
import * as modes from "./mode.ts";
import * as others from "./others.ts";
import { checkPrograms, checkTroubles, DoctorExec } from "./programs.ts";
import {
  type DoctorReport,
  doctorReport,
  type Finding,
  ok,
  rejectedText,
  unknown,
  warning,
} from "./report.ts";

export interface ExamineOptions {
  readonly exec: Exec;
  readonly config: KubeProxyConfiguration;
  readonly master: string;
  readonly nodeName: string;
  /** Target mode of a migration; null: none. */
  readonly migrateTo: RenderedMode | null;
  /** Doubts about the files and the server that the command line and the configuration name. */
  readonly doubts?: readonly string[];
  /** A sentence about the kproxy that runs here; absent: none runs. */
  readonly runsHere?: string;
  /** Unserved destinations of the running kproxy; absent: none runs. */
  readonly unserved?: cluster.UnservedDestinations;
  /** Configuration that names the source of Services, if it is another one. */
  readonly servicesBy?: KubeProxyConfiguration;
  /** True: the command line names the API server, so that Services do not come from a running kproxy. */
  readonly isSourceNamed: boolean;
  /** Why the API server is not asked; absent: it is asked, if there is one. */
  readonly apiUnasked?: string | undefined;
  /** Time limit of each reading, in milliseconds. @default {6000} */
  readonly limitMs?: number;
  readonly lockPath?: string;
}

/** More than the slowest list of a large node needs, and little enough to end the whole within 10 s. */
const LIMIT_MS = 6_000;
/** Time after the limit for findings of readings that ended with it; the rest is unknown. */
const GRACE_MS = 250;
/** Share of the limit for the API lists of a migration: the server's own error says more than a timeout. */
const LISTS_SHARE = 0.9;

/** Runs all checks; never rejects for what they find. @throws {UsageError} if a migration has no source of Services */
export async function examine(options: ExamineOptions): Promise<DoctorReport> {
  const { nodeName, config, limitMs = LIMIT_MS } = options;
  const end = new AbortController();
  const programs = new DoctorExec(options.exec, end.signal);
  using exec = new Runner(programs, { caches: true });
  const over = Promise.withResolvers<never>();
  const limited = <T>(work: Promise<T>): Promise<T> => Promise.race([work, over.promise]);
  let timer = setTimeout(() => {
    programs.noteHanging(limitMs);
    end.abort(new DOMException(`it took longer than ${limitMs / 1000} s`, "AbortError"));
    timer = setTimeout(() => over.reject(end.signal.reason), GRACE_MS);
  }, limitMs);
  try {
    const node = readNode(options, exec, end.signal);
    const found = await Promise.all(CHECKS.map((check) => run(check, node, limited)));
    // Only now is it known which programs hang; these findings belong to the check of programs.
    const findings = found.flatMap((some, index) =>
      CHECKS[index]?.[0] === "programs" ? [...checkTroubles(programs.troubles), ...some] : some
    );
    const moved = await known(limited(node.move));
    const mode = await known(limited(node.runs)) ?? config.mode;
    return doctorReport({ node: nodeName, mode, findings, migration: moved?.migration ?? null });
  } finally {
    clearTimeout(timer);
    if (end.signal.aborted) await programs.ended();
    end.abort(new DOMException("the examination is over", "AbortError"));
  }
}

/** Facts that checks use: the options, and what several of them need to be read; a reading that fails rejects. */
type NodeFacts = ReturnType<typeof readNode>;

function readNode(options: ExamineOptions, exec: Exec, signal: AbortSignal) {
  const { config, migrateTo, apiUnasked } = options;
  // First, because it needs the most programs in sequence.
  const mode = handled(modes.readMode(exec, config));
  const variant = handled(modes.readVariant(exec, nodeIps(null, config.bindAddress).primaryFamily));
  /** The mode in use, as far as it is known: the one that works, else the configured one. */
  const runs = mode.then(
    (found): ProxyMode => found.kind === "works" ? found.mode : config.mode,
    () => config.mode,
  );
  const isApiAsked = apiUnasked === undefined && usesApiServer(config, options.master);
  const api = handled(isApiAsked ? apiServer.readApi({ ...options, exec, signal }) : Promise.resolve(null));
  /** The own Node; null: unknown. */
  const ownNode = known(api).then((found) => found?.node.status === "fulfilled" ? found.node.value : null);
  return {
    ...options,
    exec,
    ownIps: nodeIpsOrNull(),
    mode,
    runs,
    variant,
    links: handled(settings.readLinksAndRoutes(exec)),
    baseChains: handled(new Nft(exec).baseChains()),
    kernelChains: handled(kernelChainsOf(exec, variant)),
    api,
    ownNode,
    /** Reason why the cluster is known to use IPv6; null: nothing says so. */
    usesIpv6: ownNode.then((found) => cluster.ipv6Use(found, config)),
    move: handled(
      migrateTo === null ? Promise.resolve(null) : compareServices({ ...options, exec }, migrateTo, runs),
    ),
  };
}

async function kernelChainsOf(
  exec: Exec,
  variant: Promise<modes.VariantFact>,
): Promise<others.KernelChains | null> {
  const found = await variant.catch((error) => {
    throw new Error(`the variant of iptables is not known: ${errorText(error)}`);
  });
  return found === null ? null : await others.readKernelChains(exec, found.chosen.variant);
}

/** Marks a rejection as handled: the checks that need the fact report it, if any do. */
function handled<T>(reading: Promise<T>): Promise<T> {
  reading.catch(() => undefined);
  return reading;
}

function known<T>(reading: Promise<T>): Promise<T | undefined> {
  return reading.catch(() => undefined);
}

/** Canonical addresses of this node; null without the permission. */
function nodeIpsOrNull(): readonly string[] | null {
  const { state } = Deno.permissions.querySync({ name: "sys", kind: "networkInterfaces" });
  if (state !== "granted") return null;
  return interfaceIps().map((address) => parseIp(address.split("%", 1)[0] ?? "")?.text ?? address);
}

function isInPod(): boolean {
  const { state } = Deno.permissions.querySync({ name: "env", variable: "KUBERNETES_SERVICE_HOST" });
  return state === "granted" && (Deno.env.get("KUBERNETES_SERVICE_HOST") ?? "") !== "";
}

/** Compares two modes for the Services from files, a running kproxy, or the API server. */
async function compareServices(
  { config, servicesBy = config, nodeName, limitMs = LIMIT_MS, ...access }: ExamineOptions,
  to: RenderedMode,
  runs: Promise<ProxyMode>,
): Promise<{ readonly rejected: readonly string[]; readonly migration: Migration }> {
  const { from: objectsFrom, state: { states }, rejected } = await findObjects({
    ...access,
    config: { ...servicesBy, hostnameOverride: nodeName },
    limitMs: LISTS_SHARE * limitMs,
    // Parts of objects that are left out are reported by the proxy that serves them.
    report: () => {},
  });
  const mode = await runs;
  // If no mode of `auto` works, iptables is what the node has used so far.
  const from = RENDERED_MODES.find((one) => one === mode) ?? "iptables";
  return {
    rejected: rejected.map(({ where, message }) => `${where}: ${message}`),
    migration: compareModes({ from, to, config, states, objectsFrom }),
  };
}

/**
 * A check: its name in the report, also if the facts could not be read; and a function that awaits the facts and yields findings,
 * each with its fix. It rejects if facts could not be read.
 */
type Check = readonly [
  name: string | ((node: NodeFacts) => string),
  check: (node: NodeFacts) => Promise<readonly Finding[]> | readonly Finding[],
];

async function run(
  [name, check]: Check,
  node: NodeFacts,
  limited: <T>(work: Promise<T>) => Promise<T>,
): Promise<readonly Finding[]> {
  try {
    return await limited(Promise.resolve(check(node)));
  } catch (error) {
    // A usage error is no finding about the node.
    if (error instanceof UsageError) throw error;
    const finding = unknown(typeof name === "string" ? name : name(node), error);
    // If the mode cannot be probed, kproxy cannot start.
    return [name === "mode" ? { ...finding, level: "failure" } : finding];
  }
}

const CHECKS: readonly Check[] = [
  ["kproxy", ({ runsHere }) => runsHere === undefined ? [] : [ok("kproxy", runsHere)]],
  [
    "files",
    ({ doubts = [] }) =>
      doubts.map((doubt) => warning("files", doubt, "see docs/sources.md, Who may write them")),
  ],
  ["API server", ({ apiUnasked }) => {
    if (apiUnasked === undefined) return [];
    const fix = "name it with --config=FILE or --kubeconfig=FILE, or ask as that user";
    return [warning("API server", apiUnasked, fix)];
  }],
  ["mode", async ({ mode, config }) => modes.checkMode(await mode, config.mode)],
  [
    ({ migrateTo }) => `mode ${migrateTo}`,
    async ({ exec, config, migrateTo }) =>
      migrateTo === null
        ? []
        : modes.checkMode(await modes.readMode(exec, configForMode(config, migrateTo)), migrateTo),
  ],
  [
    "programs",
    ({ exec, runs, migrateTo }) =>
      checkPrograms(exec, runs.then((mode) => [mode, ...migrateTo === null ? [] : [migrateTo]])),
  ],
  ["rights", async ({ mode }) => modes.checkRights(modes.readRights(), await known(mode))],
  ["iptables variant", async ({ variant, runs }) => modes.checkVariant(await variant, await runs)],
  ["xtables lock", async ({ lockPath, variant, runs }) => {
    const lock = await readXtablesLock(lockPath);
    // The nft variant needs no lock: the kernel takes whole transactions. If the variant is unknown, the lock may matter.
    const isUsed = await runs !== "nftables" && (await known(variant))?.chosen.variant !== "nft";
    return modes.checkLock(lock, { inContainer: isInPod(), isUsed });
  }],
  ["leftovers", async ({ exec, config, runs, links }) => {
    const mode = await runs;
    const leftovers = await others.readLeftovers(exec, config, mode);
    return others.checkLeftovers(leftovers, mode, (await known(links))?.links.map(({ device }) => device));
  }],
  ["other proxies", otherProxies],
  ["rules of others", async ({ baseChains, runs }) => {
    try {
      return others.checkBaseChains(await baseChains);
    } catch (error) {
      // Without nft there may still be tables, but other modes do not need it.
      if (error instanceof ExecError && error.isMissing() && await runs !== "nftables") return [];
      throw error;
    }
  }],
  [
    "rules of others",
    // If tables cannot be walked, `kproxy trace` says why; the check before has named them.
    async ({ exec, config, baseChains, kernelChains, runs }) => [
      ...others.checkForeignEnds(
        await known(others.readForeignEnds(exec, config, await known(baseChains) ?? [])) ?? [],
      ),
      ...others.checkForward((await known(kernelChains))?.forward ?? [], await runs),
    ],
  ],
  ["kernel settings", async ({ exec, config, runs, usesIpv6 }) => {
    const [found, mode] = await Promise.all([settings.readSettings(exec, config), runs]);
    return [
      ...settings.checkForwarding(found, await usesIpv6),
      ...settings.checkConntrack(found, conntrackSettings(config.conntrack, await cpuCount())),
      ...settings.checkModeSettings(found, {
        mode,
        needed: neededIpvsSysctls(config),
        wantsLocalhost: config.iptables.localhostNodePorts,
        release: kernelRelease(),
      }),
    ];
  }],
  ["settings of devices", async ({ exec, usesIpv6, links }) => {
    const found = await readDeviceSettings(exec);
    const pods = (await known(links))?.links.filter(({ kind }) => kind === "veth") ?? [];
    return [
      ...settings.checkDeviceForwarding(found, await usesIpv6),
      ...settings.checkReversePath(found, new Set(pods.map(({ device }) => device))),
    ];
  }],
  ["packet sizes", async ({ links }) => settings.checkMtu(await links)],
  ["API server", async ({ api }) => {
    try {
      const found = await api;
      return found === null ? [] : apiServer.checkApi(found);
    } catch (error) {
      return apiServer.checkNoApi(errorText(error));
    }
  }],
  ["node", async ({ api, mode, nodeName, ownIps, config: { bindAddress } }) => {
    const found = await answered(api);
    if (found === null) return [];
    if (found.node.status === "rejected") throw found.node.reason;
    const tried = await known(mode);
    const refused = tried?.kind === "works" ? tried.refused.map(({ family }) => family) : [];
    const { allNodes } = found;
    return cluster.checkNode(found.node.value, { nodeName, ownIps, bindAddress, refused, allNodes });
  }],
  ["local traffic", async ({ api, config, ownNode, runs }) => {
    const found = await answered(api);
    if (found === null) return [];
    const { allNodes } = found;
    return cluster.checkLocalTraffic(config, { mode: await runs, node: await ownNode, allNodes });
  }],
  ["clock", async ({ api }) => {
    const found = await answered(api);
    if (found === null) return [];
    if (found.version.status === "rejected") throw found.version.reason;
    return apiServer.checkClock(found.version.value.aheadMs);
  }],
  ["addresses", ({ unserved }) => unserved === undefined ? [] : cluster.checkUnserved(unserved)],
  [
    "manifests",
    ({ config, unserved, nodeName }) =>
      cluster.checkManifests(config, unserved === undefined ? nodeName : null),
  ],
  [({ migrateTo }) => `move to mode ${migrateTo}`, async ({ move, migrateTo }) => {
    const { rejected = [] } = await move ?? {};
    if (rejected.length === 0) return [];
    const fix = "fix these objects, they are not served either";
    return [warning(`move to mode ${migrateTo}`, rejectedText(rejected), fix)];
  }],
];

/** Facts of the API server; null if there is none, or it does not answer, which is a finding of its own. */
async function answered(api: Promise<apiServer.ApiFacts | null>): Promise<apiServer.ApiFacts | null> {
  const found = await known(api);
  const isSilent = found?.version.status === "rejected" && found.node.status === "rejected";
  return found === undefined || isSilent ? null : found;
}

async function otherProxies(node: NodeFacts): Promise<readonly Finding[]> {
  const { config, runs, baseChains, kernelChains, links } = node;
  const metricsOwner = handled(others.readMetricsOwner(config.metricsBindAddress));
  const findings = others.checkOtherProxies({
    metricsAddress: config.metricsBindAddress,
    mode: await runs,
    owner: await known(metricsOwner),
    baseChains: await known(baseChains),
    prerouting: (await known(kernelChains))?.prerouting,
    links: (await known(links))?.links,
  });
  const read = await Promise.allSettled([metricsOwner, kernelChains]);
  const failed = read.filter((one) => one.status === "rejected");
  return [...findings, ...failed.map(({ reason }) => unknown("other proxies", reason))];
}
