/**
 * Removes UDP flows that contradict the rules just written, for one IP family, by the fewest deletions that remove just them.
 *
 * UDP has no set-up that would fail: a client that keeps sending keeps its translation alive, to an endpoint that is gone or
 * to nowhere, for as long as it sends.
 *
 * @module
 */
import { within } from "../kernel/clock.ts";
import { ExecError } from "../errors.ts";
import type { Conntrack } from "../kernel/conntrack.ts";
import type { IpFamily } from "../model/objects.ts";
import type { Logger } from "../observe/log.ts";
import type { SyncOutcome } from "./family_runner.ts";
import { backoffMs } from "./bounded_frequency_runner.ts";
import { joinHostPort, parseIp } from "../model/ip.ts";
import type { Endpoint, ProxyState, ServicePort } from "../model/state.ts";

/** Rules that flows are compared with. */
export interface FlowRules {
  readonly targets: UdpTargets;
  /** Frontends and endpoints of earlier states. */
  readonly former: UdpTargets;
  /** The addresses that node ports are served on. */
  readonly nodePortIps: ReadonlySet<string>;
}

/**
 * Decides which flows go where no flow would go now:
 *
 * - to a frontend, but not answered by one of its endpoints: translated to another, or not translated at all;
 * - to what used to be a frontend, and still translated to one of its former endpoints.
 *
 * In another tracking zone than the default one, only translated flows count: there, a CNI may track the same packet a second
 * time before it is translated.
 *
 * Source: kube-proxy 1.36 conntrack reconciler; differs: node ports count on the node's own addresses only, so that flows to
 * the same port of other hosts are left alone; flows of frontends that are gone are found; zones.
 */
export function isStale(flow: FlowGroup, { targets, former, nodePortIps }: FlowRules): boolean {
  const isTranslated = flow.destination !== flow.replySource;
  const find = (all: UdpTargets): ReadonlySet<string> | undefined =>
    all.get(flow.destination) ??
      (nodePortIps.has(flow.destinationIp) ? all.get(nodePortKey(flow.destinationPort)) : undefined);
  const wanted = find(targets);
  if (wanted !== undefined) {
    return !wanted.has(flow.replySource) && (isTranslated || flow.zone.length === 0);
  }
  return isTranslated && (find(former)?.has(flow.replySource) ?? false);
}

/** One deletion, as the options of `conntrack -D`, and how many flows of the dump it removes. */
interface FlowDeletion {
  readonly options: readonly string[];
  readonly flows: number;
}

/** Only the default zone: without it flows of all zones would match. */
const DEFAULT_ZONE: ZoneOptions = ["--zone", "0", "--orig-zone", "0", "--reply-zone", "0"];

/**
 * Yields deletions that match every stale flow of the dump and no other, those with most flows first. Each costs the program
 * a pass over the whole table, so flows that share destination and endpoint are one deletion, and so are all flows to an
 * endpoint that nothing leads to any more.
 */
export function planDeletions(
  family: IpFamily,
  groups: readonly FlowGroup[],
  rules: FlowRules,
): readonly FlowDeletion[] {
  const stale: FlowGroup[] = [];
  const keptSources = new Set<string>();
  let zoned = false;
  for (const group of groups) {
    if (isStale(group, rules)) stale.push(group);
    else keptSources.add(group.replySource);
    if (group.zone.length > 0) zoned = true;
  }
  if (stale.length === 0) return [];
  // A new flow to it may appear after the dump.
  for (const keys of rules.targets.values()) for (const key of keys) keptSources.add(key);
  const deletions = new Map<string, { options: string[]; flows: number }>();
  for (const group of stale) {
    const zone = group.zone.length > 0 ? group.zone : zoned ? DEFAULT_ZONE : [];
    const bySource = group.destination !== group.replySource && !keptSources.has(group.replySource);
    const options = ["-p", "udp", "-f", family === "IPv4" ? "ipv4" : "ipv6"];
    if (!bySource) {
      options.push("--orig-dst", group.destinationIp, "--orig-port-dst", String(group.destinationPort));
    }
    options.push("--reply-src", group.replyIp, "--reply-port-src", String(group.replyPort), ...zone);
    const key = options.join(" ");
    const known = deletions.get(key);
    if (known === undefined) deletions.set(key, { options, flows: group.flows });
    else known.flows += group.flows;
  }
  return [...deletions.values()].sort((left, right) => right.flows - left.flows);
}

/** The tracking zones of a flow, as `conntrack` options; empty for the default zone. */
type ZoneOptions = readonly string[];

/**
 * All flows of a dump that were sent to the same address and are answered from the same address, in one zone: nothing else
 * decides whether they are stale.
 */
export interface FlowGroup {
  /** Where the client sends to: `ip:port` or `[ip]:port`. */
  readonly destination: string;
  readonly destinationIp: string;
  readonly destinationPort: number;
  /** Where the answers come from: the endpoint, or the destination itself if it is not translated. */
  readonly replySource: string;
  readonly replyIp: string;
  readonly replyPort: number;
  readonly zone: ZoneOptions;
  readonly flows: number;
}

/** One line: the original tuple, then the reply tuple, each with counters where accounting is on. */
const TUPLE = String.raw`src=([0-9a-f.:]+) dst=([0-9a-f.:]+) sport=(\d{1,5}) dport=(\d{1,5})(?!\d)`;
const FLOW = new RegExp(String.raw`^udp +17 .*?${TUPLE}(.*?)${TUPLE}(.*)$`, "gm");
const ZONE = / (zone|zone-orig|zone-reply)=(\d{1,5})(?!\d)/g;
const ZONE_OPTION: Readonly<Record<string, string>> = {
  "zone": "--zone",
  "zone-orig": "--orig-zone",
  "zone-reply": "--reply-zone",
};

interface CountedGroup extends FlowGroup {
  flows: number;
}

/** Groups the UDP flows of a dump, in order of first appearance. Lines of other kinds, without addresses, and lines cut off are passed over. */
export function groupFlows(dump: string): readonly FlowGroup[] {
  const groups = new Map<string, CountedGroup>();
  for (const match of dump.matchAll(FLOW)) {
    const [, , dst = "", , dport = "", middle = "", replySrc = "", , replySport = "", , rest = ""] = match;
    const tail = middle + rest;
    const zones = tail.includes("zone") ? zoneOptions(tail) : NO_ZONE;
    const key = `${dst} ${dport} ${replySrc} ${replySport} ${zones.join(" ")}`;
    const known = groups.get(key);
    if (known !== undefined) {
      known.flows++;
      continue;
    }
    const [destinationIp, replyIp] = [parseIp(dst)?.text, parseIp(replySrc)?.text];
    if (destinationIp === undefined || replyIp === undefined) continue;
    groups.set(key, {
      destination: joinHostPort(destinationIp, Number(dport)),
      destinationIp,
      destinationPort: Number(dport),
      replySource: joinHostPort(replyIp, Number(replySport)),
      replyIp,
      replyPort: Number(replySport),
      zone: zones,
      flows: 1,
    });
  }
  return [...groups.values()];
}

const NO_ZONE: ZoneOptions = [];

function zoneOptions(text: string): ZoneOptions {
  return [...text.matchAll(ZONE)].flatMap(([, name = "", id = ""]) => [ZONE_OPTION[name] ?? "", id]);
}

/**
 * A snapshot of one family: where flows may lead that are sent to a frontend, which is `ip:port` or `[ip]:port` of a cluster IP, external IP
 * or load balancer IP, or `:port` for a node port.
 */
export type UdpTargets = ReadonlyMap<string, ReadonlySet<string>>;

export const NO_UDP_TARGETS: UdpTargets = new Map();

function nodePortKey(port: number): string {
  return `:${port}`;
}

/**
 * Yields every UDP frontend of the state with the endpoints that flows to it may lead to, whatever node they are on and
 * whatever traffic policy says: a flow that a live endpoint serves is left alone.
 *
 * Those are the endpoints that are ready or serving. If none is, it is all that are listed: rules refuse new flows then, but
 * a flow to an endpoint that is merely not ready may still be served, while one to an endpoint that is gone never is.
 *
 * Source: kube-proxy 1.36 conntrack reconciler; differs: it takes serving ones only, and leaves every flow of a port alone
 * that has none, also those to addresses that another pod may have by now.
 */
export function udpTargets(state: ProxyState): UdpTargets {
  const all = new Map<string, Set<string>>();
  for (const [name, ports] of state.services) {
    for (const port of ports) {
      if (port.protocol !== "UDP") continue;
      const targets = targetKeys(state.endpoints.get(name)?.get(port.key) ?? []);
      for (const key of frontendKeys(port)) addAll(all, key, targets);
    }
  }
  return all;
}

/** Every frontend of either, with the endpoints of both. */
function unionOfTargets(one: UdpTargets, other: UdpTargets): UdpTargets {
  const all = new Map<string, Set<string>>();
  for (const targets of [one, other]) for (const [key, keys] of targets) addAll(all, key, keys);
  return all;
}

function targetKeys(endpoints: readonly Endpoint[]): readonly string[] {
  const usable = endpoints.filter(({ ready, serving }) => ready || serving);
  return (usable.length === 0 ? endpoints : usable).map(({ key }) => key);
}

function frontendKeys({ clusterIP, externalIPs, loadBalancerVIPs, port, nodePort }: ServicePort): string[] {
  const keys = [clusterIP, ...externalIPs, ...loadBalancerVIPs].map((ip) => joinHostPort(ip, port));
  return nodePort === 0 ? keys : [...keys, nodePortKey(nodePort)];
}

function addAll(sets: Map<string, Set<string>>, key: string, members: Iterable<string>): void {
  const set = sets.get(key) ?? new Set();
  for (const member of members) set.add(member);
  sets.set(key, set);
}

/** One search of the conntrack table for stale flows. */
export interface FlowReconciliation {
  readonly family: IpFamily;
  readonly deleted: number;
  /** From before the dump to after the last deletion. */
  readonly durationMs: number;
}

/** Dependencies of a {@linkcode StaleFlowReconciler}. */
export interface StaleFlowOptions {
  readonly family: IpFamily;
  readonly conntrack: Pick<Conntrack, "dump" | "delete">;
  /** The addresses that node ports are served on now. */
  readonly nodePortIps: () => Iterable<string>;
  readonly log: Logger;
  /** Called after every search of the table that succeeded. */
  readonly observe: (reconciliation: FlowReconciliation) => void;
  /** Requests a sync, even without changes: after it `afterSync` is called again. */
  readonly requestSync: () => void;
  /** Milliseconds, monotonic. */
  readonly nowMs: () => number;
  /** A number from 0 (inclusive) to 1 (exclusive). */
  readonly random: () => number;
}

/** How long deletions may hold up the next sync. */
const DELETE_BUDGET_MS = 1_000;
/** How long a whole search may hold up the next sync. One that takes longer, or hangs, goes on beside it. */
const HOLD_MS = 2_000;
/** The wait before the deletions that did not fit into the budget. */
const CONTINUE_MS = 200;
const FIRST_RETRY_MS = 1_000;
const MAX_RETRY_MS = 60_000;

/**
 * Level-triggered: looks at the whole table after a sync that wrote everything (so also after a start and after another program
 * removed the rules), or changed a UDP Service or its endpoints; and again until it worked. It decides between syncs what is
 * stale, never beside one: else a flow to an endpoint that the next sync adds would count as stale. A sync does not wait for programs
 * that take long: rules in force matter more than flows that are left over.
 */
export class StaleFlowReconciler {
  readonly #options: StaleFlowOptions;
  /** UDP targets since the table was last known to agree with the rules. */
  #former: UdpTargets = NO_UDP_TARGETS;
  /** UDP targets of the newest rules. */
  #targets: UdpTargets = NO_UDP_TARGETS;
  #needed = true;
  /** Counts changes of {@linkcode StaleFlowReconciler.#targets}. */
  #generation = 0;
  /** The search under way; it never rejects. */
  #running: Promise<void> | undefined;
  /** Resolves the wait of a search for the end of a sync. */
  #onBetweenSyncs: (() => void) | undefined;
  /** The last search took longer than syncs wait for it. */
  #isSlow = false;
  #failures = 0;
  #loggedProblem = "";
  #retryTimer: ReturnType<typeof setTimeout> | undefined;
  #stopped = false;

  constructor(options: StaleFlowOptions) {
    this.#options = options;
  }

  /** Begins a search if one is needed. Never rejects, and never takes long, whatever the search does. */
  async afterSync(outcome: SyncOutcome): Promise<void> {
    const { full, udpServicesChanged, udpEndpointsChanged, state } = outcome;
    if (full || udpServicesChanged || udpEndpointsChanged) {
      this.#former = this.#needed ? unionOfTargets(this.#former, this.#targets) : this.#targets;
      this.#targets = udpTargets(state);
      this.#needed = true;
      this.#generation++;
    }
    if (!this.#needed) return;
    if (this.#running === undefined) {
      clearTimeout(this.#retryTimer);
      if (this.#targets.size + this.#former.size === 0) {
        this.#needed = false;
        return;
      }
      this.#running = this.#look().finally(() => this.#running = undefined);
      // After a slow search none is waited for until one was fast again.
      if (this.#isSlow) return;
    } else if (this.#onBetweenSyncs === undefined) {
      // The search still reads the table.
      return;
    }
    this.#onBetweenSyncs?.();
    await this.#hold(this.#running);
  }

  /** Ends retries. */
  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#retryTimer);
    this.#onBetweenSyncs?.();
  }

  /** Waits for a search, but not for long. */
  async #hold(look: Promise<void>): Promise<void> {
    this.#isSlow = await within(look.then(() => true), HOLD_MS) === null;
  }

  async #look(): Promise<void> {
    try {
      await this.#reconcile();
      this.#failures = 0;
      this.#loggedProblem = "";
    } catch (error) {
      if (!this.#stopped) this.#failed(error);
    }
  }

  /** Resolves when no sync is under way: at once while the sync that began the search waits for it. */
  async #betweenSyncs(): Promise<void> {
    if (!this.#isSlow || this.#stopped) return;
    const between = new Promise<void>((resolve) => {
      this.#onBetweenSyncs = resolve;
    });
    this.#options.requestSync();
    await between;
    this.#onBetweenSyncs = undefined;
  }

  async #reconcile(): Promise<void> {
    const { family, conntrack, log, observe, nowMs } = this.#options;
    const generation = this.#generation;
    const startMs = nowMs();
    const { text, complete } = await conntrack.dump(family);
    const dumpMs = nowMs() - startMs;
    await this.#betweenSyncs();
    if (this.#stopped) return;
    // The present targets: endpoints that syncs have added since the table was read are not stale, either.
    const deletions = planDeletions(family, groupFlows(text), {
      targets: this.#targets,
      former: this.#former,
      nodePortIps: new Set(this.#options.nodePortIps()),
    });
    const now = withinBudget(deletions, dumpMs);
    const deleted = await conntrack.delete(now.map(({ options }) => options));
    const durationMs = nowMs() - startMs;
    observe({ family, deleted, durationMs });
    if (deletions.length > 0) {
      log.info("Deleted stale UDP flows", {
        family,
        flows: deleted,
        found: deletions.reduce((total, { flows }) => total + flows, 0),
        took: `${Math.round(durationMs)}ms`,
      }, 1);
    }
    // A sync meanwhile may have left flows that were not there when the table was read.
    if (complete && now.length === deletions.length && generation === this.#generation) {
      this.#needed = false;
      this.#former = NO_UDP_TARGETS;
    } else {
      this.#again(CONTINUE_MS);
    }
  }

  #failed(error: unknown): void {
    const { family, log, random } = this.#options;
    this.#failures++;
    const isMissing = error instanceof ExecError && error.isMissing();
    const problem = error instanceof ExecError ? `${error.ending} ${error.stderr}` : String(error);
    // Logged once: it is tried again for as long as the proxy runs.
    if (problem === this.#loggedProblem) {
      log.info("Still cannot look for stale UDP flows", { family, err: error }, 2);
    } else if (isMissing) {
      log.error("Stale UDP flows stay: the program conntrack is missing", error, { family });
    } else {
      log.error("Cannot look for stale UDP flows, will try again", error, { family });
    }
    this.#loggedProblem = problem;
    // A missing conntrack is not retried; the next sync that needs it looks again.
    if (isMissing) return;
    this.#again(backoffMs(this.#failures, { initialMs: FIRST_RETRY_MS, maxMs: MAX_RETRY_MS, random }));
  }

  #again(afterMs: number): void {
    if (this.#stopped) return;
    this.#retryTimer = setTimeout(this.#options.requestSync, afterMs);
  }
}

/** As many deletions as fit into the budget, at least one; each reads the table once, as the dump did. */
function withinBudget(deletions: readonly FlowDeletion[], dumpMs: number): readonly FlowDeletion[] {
  return deletions.slice(0, Math.max(1, Math.floor(DELETE_BUDGET_MS / Math.max(dumpMs, 1))));
}
