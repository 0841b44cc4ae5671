/**
 * Input of the commands that inspect a node: objects, host network and live rules, as far as a command needs them.
 *
 * @module
 */
import { configForMode } from "../config/defaults.ts";
import type { KubeProxyConfiguration } from "../config/types.ts";
import { UnsupportedError, UsageError } from "../errors.ts";
import { FAMILIES, type IpFamily } from "../model/objects.ts";
import type { RulesetSnapshot } from "../sim/ruleset_snapshot.ts";
import { readBounded } from "../source/files/manifest_files.ts";
import {
  type DesiredInput,
  desiredRules,
  knownNodeAddresses,
  podInterface,
  type RulesMode,
  rulesModeOf,
} from "./desired/desired.ts";
import { type HostNetwork, readHostNetwork, tcpBeLiberal, UNKNOWN_HOST } from "./live/host_network.ts";
import { type KernelQuestion, liveOfKernel } from "./live/kernel_rules.ts";
import { type LiveNode, liveOfTexts, type LiveText, modeInForce } from "./live/live.ts";
import { heldPortals, type KnownPortals } from "./live/portals.ts";
import { findObjects, type FindObjectsOptions, type FoundObjects } from "./objects.ts";

export interface LookOptions extends FindObjectsOptions, Omit<KernelQuestion, "signal"> {
  /** False: neither flags nor files name the mode; it is detected from the live rules. */
  readonly isModeNamed: boolean;
  /** False: desired rules, and so the objects, are not needed. */
  readonly wantsDesired: boolean;
  /** Files with output of the tools; none: the kernel's rules are read. */
  readonly liveFrom: readonly string[];
  /** False: live rules are not read. */
  readonly wantsLive: boolean;
}

export interface Look {
  /** The API objects; null: not needed. */
  readonly objects: FoundObjects | null;
  /** Input of the desired rules; null: not needed. */
  readonly desired: DesiredInput | null;
  /** The live rules; null: not needed. */
  readonly live: LiveNode | null;
  /** Host network; all unknown where rules are read from files, or not at all. */
  readonly around: HostNetwork;
  /** Mode in force on the node or, without live rules, of the configuration. */
  readonly mode: RulesMode;
  readonly config: KubeProxyConfiguration;
  /** Known node addresses of both families; the Node's own come first. */
  readonly nodeAddresses: readonly string[];
  /** Incoming interface of pods' packets, if no route gives it. */
  readonly podInterface: string;
  /** In mode userspace: the ports that kproxy listens on, or why they are unknown; null in other modes. */
  readonly portals: KnownPortals | string | null;
}

export async function look(options: LookOptions): Promise<Look> {
  const { wantsDesired, wantsLive, liveFrom, exec } = options;
  const isHere = wantsLive && liveFrom.length === 0;
  const [objects, around, live] = await Promise.all([
    wantsDesired ? findObjects(options) : null,
    isHere ? readHostNetwork(exec) : UNKNOWN_HOST,
    wantsLive ? readLive(options) : null,
  ]);
  const wanted = options.config.mode;
  const running = objects?.mode ?? null;
  if (options.isModeNamed && wanted !== "auto" && (running ?? wanted) !== wanted) {
    options.report(`${objects?.from} runs mode ${running}, which is looked at instead of ${wanted}`);
  }
  const configured = objects?.config ?? options.config;
  const named = options.isModeNamed ? configured : { ...configured, mode: "auto" as const };
  const isFound = running === null && named.mode === "auto" && live !== null;
  const mode = running ?? rulesModeOf(named, "Looking at", isFound ? modeInForce(live) : null);
  const config = configForMode(configured, mode);
  const machine = {
    addresses: around.addresses,
    tcpBeLiberal: tcpBeLiberal(around),
    nfacct: around.nfacct,
  };
  const seen: Look = {
    objects,
    desired: objects === null ? null : { ...objects.state, config, machine, warn: options.report },
    live,
    around,
    mode,
    config,
    nodeAddresses: knownNodeAddresses(objects?.state.node ?? null, around.addresses ?? [], config),
    podInterface: podInterface(config),
    portals: null,
  };
  return mode === "userspace" ? await withPortals(seen, liveFrom.length > 0) : seen;
}

/** Adds the ports of mode userspace: from the kproxy that runs here, else from the live rules. */
async function withPortals(seen: Look, isSaved: boolean): Promise<Look> {
  const { askPortals } = await import("./running/running.ts");
  const portals = isSaved ? "saved rules do not tell" : await askPortals(seen.config);
  const { live, desired } = seen;
  if (typeof portals !== "string") {
    return {
      ...seen,
      portals,
      desired: desired === null ? null : { ...desired, portals },
      live: live === null ? null : new Map(
        [...live].map(([family, rules]) => [
          family,
          { ...rules, portals: heldPortals(portals, family) },
        ]),
      ),
    };
  }
  if (desired === null || live === null) return { ...seen, portals };
  const { portalsOfRules } = await import("./modes/userspace.ts");
  const found = FAMILIES.flatMap((family) => {
    const tables = live.get(family)?.iptables.map((one) => one.tables) ?? [];
    return portalsOfRules({ ...desired, warn: () => {} }, family, tables);
  });
  return { ...seen, portals, desired: { ...desired, portals: { portals: found, iptables: {} } } };
}

/** Twice the size of all rules of 44,000 Services. */
const MAX_SAVED_BYTES = 256 * 2 ** 20;

async function readLive(options: LookOptions): Promise<LiveNode> {
  const { exec, liveFrom } = options;
  if (liveFrom.length === 0) return await liveOfKernel(exec, options);
  const texts = await Promise.all(liveFrom.map(async (name): Promise<LiveText> => {
    try {
      return { name, text: new TextDecoder().decode(await readBounded(name, MAX_SAVED_BYTES)) };
    } catch (error) {
      if (!(error instanceof Error)) throw error;
      throw new UsageError(`Cannot read ${name}: ${error.message}`, { cause: error });
    }
  }));
  return liveOfTexts(texts, { from: `files ${liveFrom.join(", ")}`, bound: null, problems: [] });
}

/**
 * Desired rules of one family; null: the objects are not needed.
 *
 * @throws {UnsupportedError} if the rules lead to ports that are not known
 */
export async function desiredOf(
  { desired, mode, portals }: Look,
  family: IpFamily,
): Promise<RulesetSnapshot | null> {
  if (desired === null) return null;
  if (mode === "userspace" && desired.portals === undefined) {
    const why = typeof portals === "string" ? portals : "no kproxy was asked";
    throw new UnsupportedError("kproxy", "a running kproxy, or the rules that are there", why, {
      message:
        `Rules of mode userspace lead to ports that kproxy opens when it runs, and these are not known: ${why}`,
    });
  }
  return await desiredRules(mode, desired, family);
}
