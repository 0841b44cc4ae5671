/**
 * `kproxy doctor`: the list of its checks, and what they go by, which is read side by side, each reading by itself.
 *
 * @module
 */
import { neededIpvsSysctls } from "../../backend/ipvs/node/preflight_sysctls.ts";
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
  /** The mode to move to; null without one. */
  readonly migrateTo: RenderedMode | null;
  /** What is doubtful in the files and the server that the command line and the configuration name. */
  readonly doubts?: readonly string[];
  /** The kproxy that runs here, in a sentence; absent: none does. */
  readonly runsHere?: string;
  /** What Services do not get of the kproxy that runs here; none without. */
  readonly unserved?: cluster.UnservedDestinations;
  /** What says where Services are, if another configuration does. */
  readonly servicesBy?: KubeProxyConfiguration;
  /** True: the command line names the API server, so that Services are not asked of a running kproxy. */
  readonly isSourceNamed: boolean;
  /** Why the API server is not asked; absent: it is, if there is one. */
  readonly apiUnasked?: string | undefined;
  /** Every reading has so long. @default {6000} */
  readonly limitMs?: number;
  readonly lockPath?: string;
}

/** Above what a large node needs for its slowest list, and such that the whole ends within 10 s. */
const LIMIT_MS = 6_000;
/** What has ended with the signal has been judged by then; the rest is unknown. */
const GRACE_MS = 250;
/** The API server has this share of the limit for the lists of a migration: its own error says more than that time is over. */
const LISTS_SHARE = 0.9;

/** Looks at the node; never rejects because of what it finds. @throws {UsageError} if nothing says where Services are for a migration */
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
    // Only now it is known which programs hang; beside the mode they say most.
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

/** What checks go by: what was asked for, and what several of them need to be read; a reading that fails rejects. */
type NodeFacts = ReturnType<typeof readNode>;

function readNode(options: ExamineOptions, exec: Exec, signal: AbortSignal) {
  const { config, migrateTo, apiUnasked } = options;
  // First, because it has the longest row of questions.
  const mode = handled(modes.readMode(exec, config));
  const variant = handled(modes.readVariant(exec, nodeIps(null, config.bindAddress).primaryFamily));
  /** The mode that runs here as far as it is known: the one that works, else the configured one. */
  const runs = mode.then(
    (found): ProxyMode => found.kind === "works" ? found.mode : config.mode,
    () => config.mode,
  );
  const isApiAsked = apiUnasked === undefined && usesApiServer(config, options.master);
  const api = handled(isApiAsked ? apiServer.readApi({ ...options, exec, signal }) : Promise.resolve(null));
  /** Null if it is not known. */
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
    /** Why the cluster is known to use IPv6; null if nothing says so. */
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

/** A reading whose failure is reported by the checks that need it, which may be none. */
function handled<T>(reading: Promise<T>): Promise<T> {
  reading.catch(() => undefined);
  return reading;
}

function known<T>(reading: Promise<T>): Promise<T | undefined> {
  return reading.catch(() => undefined);
}

/** Canonical; null where the runtime may not ask. */
function nodeIpsOrNull(): readonly string[] | null {
  const { state } = Deno.permissions.querySync({ name: "sys", kind: "networkInterfaces" });
  if (state !== "granted") return null;
  return interfaceIps().map((address) => parseIp(address.split("%", 1)[0] ?? "")?.text ?? address);
}

function isInPod(): boolean {
  const { state } = Deno.permissions.querySync({ name: "env", variable: "KUBERNETES_SERVICE_HOST" });
  return state === "granted" && (Deno.env.get("KUBERNETES_SERVICE_HOST") ?? "") !== "";
}

/** Compares the modes for the Services from files, a running kproxy, or the API server. */
async function compareServices(
  { config, servicesBy = config, nodeName, limitMs = LIMIT_MS, ...access }: ExamineOptions,
  to: RenderedMode,
  runs: Promise<ProxyMode>,
): Promise<{ readonly rejected: readonly string[]; readonly migration: Migration }> {
  const { from: objectsFrom, state: { states }, rejected } = await findObjects({
    ...access,
    config: { ...servicesBy, hostnameOverride: nodeName },
    limitMs: LISTS_SHARE * limitMs,
    // What of an object is left out is reported by the proxy that serves it.
    report: () => {},
  });
  const mode = await runs;
  // Where `auto` finds none that works, iptables is what a node has run so far.
  const from = RENDERED_MODES.find((one) => one === mode) ?? "iptables";
  return {
    rejected: rejected.map(({ where, message }) => `${where}: ${message}`),
    migration: compareModes({ from, to, config, states, objectsFrom }),
  };
}

/**
 * What is looked at, in the words of the report where that could not be read; and what waits for the readings and judges them: each
 * finding says how to fix it. Rejects where they could not be had.
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
    // Wrong use is no fact about the node.
    if (error instanceof UsageError) throw error;
    const finding = unknown(typeof name === "string" ? name : name(node), error);
    // Where the mode cannot be tried, kproxy cannot start.
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
    const mend = "name it with --config=FILE or --kubeconfig=FILE, or ask as that user";
    return [warning("API server", apiUnasked, mend)];
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
    // The nft variant needs none: the kernel takes whole transactions. Where the variant is not known, the lock may matter.
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
      // Without the program there may still be tables, but other modes need none to be looked at.
      if (error instanceof ExecError && error.isMissing() && await runs !== "nftables") return [];
      throw error;
    }
  }],
  [
    "rules of others",
    // Where they cannot be walked through, `kproxy trace` says why; the check before has named such tables.
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
    const mend = "mend these objects, they are not served either";
    return [warning(`move to mode ${migrateTo}`, rejectedText(rejected), mend)];
  }],
];

/** Null where there is no API server, or one that does not answer, which is a finding of its own. */
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
