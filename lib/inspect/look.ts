/**
 * What commands that look at the node have in common: the objects, the machine and the live rules, as far as they are asked for.
 *
 * @module
 */
import { configForMode } from "../config/defaults.ts";
import type { KubeProxyConfiguration } from "../config/types.ts";
import { UnsupportedError, UsageError } from "../errors.ts";
import type { Exec } from "../kernel/exec.ts";
import { FAMILIES, type IpFamily } from "../model/objects.ts";
import type { RulesetSnapshot } from "../sim/ruleset_snapshot.ts";
import {
  DATA_PLANES,
  type DataPlane,
  dataPlaneOf,
  type DesiredInput,
  desiredRules,
  type PortsByFamily,
} from "./desired/desired.ts";
import { liveOfKernel } from "./live/kernel_rules.ts";
import { foundPlane, type LiveNode, type LiveRules } from "./live/live.ts";
import { type PartialQuestion, PartialRuleset } from "./live/partial_ruleset.ts";
import { type HostNetwork, readHostNetwork, tcpBeLiberal, UNKNOWN_HOST } from "./live/host_network.ts";
import { heldPortals, type KnownPortals, portalPorts } from "./live/portals.ts";
import { liveOfTexts, type LiveText } from "./live/saved_texts.ts";
import { knownNodeAddresses, podInterface } from "./node_addresses.ts";
import { readBounded } from "../source/files/files_scan.ts";
import { findObjects, type FindObjectsOptions, type FoundObjects } from "./objects.ts";

/** What is looked at. */
export interface LookOptions extends FindObjectsOptions {
  /** False: nobody has said which mode this node runs, and what is in force there tells. */
  readonly isModeNamed: boolean;
  /** False: nothing is wanted of the objects. */
  readonly wantsDesired: boolean;
  /** Files that the tools have printed; none: the kernel is asked. */
  readonly liveFrom: readonly string[];
  /** False: what is there is not looked at. */
  readonly wantsLive: boolean;
  /** True: of the kernel's rules only some are wanted, which are asked for with {@linkcode livePart}. @default {false} */
  readonly isPartial?: boolean;
  /** False: nobody asks how many packets a rule has met. @default {true} */
  readonly isCounted?: boolean;
}

/** What was found. */
export interface Look {
  /** Null: not asked for. */
  readonly objects: FoundObjects | null;
  readonly live: LiveNode | null;
  /** Instead of `live`, where only some rules are wanted. */
  readonly partial: PartialRuleset | null;
  /** Nothing is known of it where rules are read from files, or not at all. */
  readonly around: HostNetwork;
  /** The one in force on the node or, without live rules, by the configuration. */
  readonly plane: DataPlane;
  readonly config: KubeProxyConfiguration;
  /** All that are known, of both families; the Node's own come first. */
  readonly nodeAddresses: readonly string[];
  /** What packets of pods come in through, where nothing tells. */
  readonly podInterface: string;
  /** The ports that kproxy listens on in mode userspace, or why nobody tells them; null: of another mode. */
  readonly portals: KnownPortals | string | null;
  /** The ports that rules of mode userspace should lead to; null: of another mode, or not known at all. */
  readonly ports: PortsByFamily | null;
}

/** Looks, at everything at once. */
export async function look(options: LookOptions): Promise<Look> {
  const { wantsDesired, wantsLive, liveFrom, exec, isCounted = true } = options;
  const isHere = wantsLive && liveFrom.length === 0;
  const partial = isHere && options.isPartial === true ? new PartialRuleset(exec) : null;
  const [objects, around, live] = await Promise.all([
    wantsDesired ? findObjects(options) : null,
    isHere ? readHostNetwork(exec) : UNKNOWN_HOST,
    wantsLive && partial === null ? readLive(exec, liveFrom, isCounted) : null,
  ]);
  const configured = objects?.config ?? options.config;
  const wanted = options.config.mode;
  if (options.isModeNamed && wanted !== "auto" && (objects?.mode ?? wanted) !== wanted) {
    options.report(`${objects?.from} runs mode ${objects?.mode}, which is looked at instead of ${wanted}`);
  }
  const named = options.isModeNamed ? configured : { ...configured, mode: "auto" as const };
  const isKnown = objects?.mode != null || DATA_PLANES.some((one) => one === named.mode);
  const found = live !== null
    ? foundPlane(live)
    : partial === null || isKnown
    ? null
    : await planeOf(partial);
  const plane = objects?.mode ?? dataPlaneOf(named, "Looking at", found);
  const seen = lookOf({ objects, live, partial, around, plane }, configured);
  return plane === "userspace" ? await withPortals(seen, options) : seen;
}

/** With what is known of the ports of mode userspace: from the kproxy that runs here, else from the rules that are there. */
async function withPortals(seen: Look, { liveFrom }: LookOptions): Promise<Look> {
  const { askPortals } = await import("./running/running.ts");
  const portals = liveFrom.length > 0 ? "saved rules do not tell" : await askPortals(seen.config);
  const found = { ...seen, portals };
  if (typeof portals !== "string") {
    const live = seen.live === null ? null : new Map(
      [...seen.live].map(([family, rules]) => [family, { ...rules, portals: heldPortals(portals, family) }]),
    );
    return {
      ...found,
      live,
      ports: new Map(FAMILIES.map((family) => [family, portalPorts(portals, family)])),
    };
  }
  const { objects } = seen;
  if (objects === null || (seen.live === null && seen.partial === null)) return found;
  const [{ portsOfRules, userspacePlan }, { CHAINS }] = await Promise.all([
    import("./desired/userspace.ts"),
    import("../backend/userspace/plan/chains.ts"),
  ]);
  const ports = await Promise.all(FAMILIES.map(async (family) => {
    const use = ({ iptables }: RulesetSnapshot): void => {
      for (const { tables } of iptables) for (const chain of CHAINS.nat) void tables.get("nat")?.get(chain);
    };
    const rules = await livePart(seen, family, { desired: null, use });
    const plan = userspacePlan(desiredInput(seen, objects, () => {}), family);
    return [family, portsOfRules(plan, rules?.iptables.map(({ tables }) => tables) ?? [])] as const;
  }));
  return { ...found, ports: new Map(ports) };
}

function lookOf(
  seen: Pick<Look, "objects" | "live" | "partial" | "around" | "plane">,
  configured: KubeProxyConfiguration,
): Look {
  const { objects, around, plane } = seen;
  const config = configForMode(configured, plane);
  return {
    ...seen,
    config,
    nodeAddresses: knownNodeAddresses(objects?.state.node ?? null, around.addresses ?? [], config),
    podInterface: podInterface(config),
    portals: null,
    ports: null,
  };
}

/** Twice what all rules of 44,000 Services are. */
const MAX_SAVED_BYTES = 256 * 2 ** 20;

/** The mode in force in any family; null: none. */
async function planeOf(partial: PartialRuleset): Promise<DataPlane | null> {
  const live = await Promise.all(
    FAMILIES.map((family) =>
      partial.look({ family, desired: null, look: (rules) => [family, rules] as const })
    ),
  );
  return foundPlane(new Map(live));
}

/** The live rules of a family, of which `use` needs no more than it looks at. */
export async function livePart(
  { partial, live, portals }: Look,
  family: IpFamily,
  question: Pick<PartialQuestion<unknown>, "desired" | "chains"> & {
    readonly use: (rules: LiveRules) => unknown;
  },
): Promise<LiveRules | null> {
  if (partial === null) return live?.get(family) ?? null;
  const { use, ...rest } = question;
  const more = portals === null || typeof portals === "string"
    ? {}
    : { portals: heldPortals(portals, family) };
  const look = (rules: LiveRules): LiveRules => {
    const live = { ...rules, ...more };
    use(live);
    return live;
  };
  return await partial.look({ family, ...rest, look });
}

async function readLive(exec: Exec, files: readonly string[], isCounted: boolean): Promise<LiveNode> {
  if (files.length === 0) return await liveOfKernel(exec, { isCounted });
  const texts = await Promise.all(files.map(async (name): Promise<LiveText> => {
    try {
      return { name, text: new TextDecoder().decode(await readBounded(name, MAX_SAVED_BYTES)) };
    } catch (error) {
      if (!(error instanceof Error)) throw error;
      throw new UsageError(`Cannot read ${name}: ${error.message}`, { cause: error });
    }
  }));
  return liveOfTexts(texts, { from: `files ${files.join(", ")}`, bound: null, problems: [] });
}

/** What rules are made from; `warn` hears, in a sentence, of what is doubtful. */
export function desiredInput(
  { config, around, ports }: Look,
  { state }: FoundObjects,
  warn: (sentence: string) => void,
): DesiredInput {
  return {
    ...state,
    config,
    machine: { addresses: around.addresses, tcpBeLiberal: tcpBeLiberal(around), nfacct: around.nfacct },
    warn,
    ...(ports === null ? {} : { ports }),
  };
}

/**
 * The rules that one family should hold.
 *
 * @throws {UnsupportedError} if they lead to ports that nobody knows
 */
export async function desiredOf(
  found: Look,
  family: IpFamily,
  warn: (sentence: string) => void,
): Promise<RulesetSnapshot | null> {
  if (found.objects === null) return null;
  if (found.plane === "userspace" && found.ports === null) {
    const why = typeof found.portals === "string" ? found.portals : "nobody was asked";
    throw new UnsupportedError("kproxy", "a running kproxy, or the rules that are there", why, {
      message:
        `Rules of mode userspace lead to ports that kproxy opens when it runs, and nobody tells these: ${why}`,
    });
  }
  return await desiredRules(found.plane, desiredInput(found, found.objects, warn), family);
}
