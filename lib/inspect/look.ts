/**
 * What commands that look at the node have in common: the objects, the machine and the live rules, as far as they are asked for.
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
  /** False: neither flags nor files name the mode; it is the one in force on the node. */
  readonly isModeNamed: boolean;
  /** False: nothing is wanted of the objects. */
  readonly wantsDesired: boolean;
  /** Files that the tools have printed; none: the kernel is asked. */
  readonly liveFrom: readonly string[];
  /** False: what is there is not looked at. */
  readonly wantsLive: boolean;
}

export interface Look {
  /** Null: not asked for. */
  readonly objects: FoundObjects | null;
  /** What rules are made from; null: not asked for. */
  readonly desired: DesiredInput | null;
  /** Null: not asked for. */
  readonly live: LiveNode | null;
  /** Nothing is known of it where rules are read from files, or not at all. */
  readonly around: HostNetwork;
  /** The one in force on the node or, without live rules, by the configuration. */
  readonly mode: RulesMode;
  readonly config: KubeProxyConfiguration;
  /** All that are known, of both families; the Node's own come first. */
  readonly nodeAddresses: readonly string[];
  /** What packets of pods come in through, where no route says. */
  readonly podInterface: string;
  /** The ports that kproxy listens on in mode userspace, or why they are unknown; null: of another mode. */
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

/** With what is known of the ports of mode userspace: from the kproxy that runs here, else from the rules that are there. */
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

/** Twice what all rules of 44,000 Services are. */
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
 * The rules that one family should hold; null: the objects were not asked for.
 *
 * @throws {UnsupportedError} if they lead to ports that are not known
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
