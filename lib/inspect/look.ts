/**
 * What commands that look at the node have in common: the objects, the machine and the live rules, as far as they are asked for.
 *
 * @module
 */
import { configForMode } from "../config/defaults.ts";
import type { KubeProxyConfiguration } from "../config/types.ts";
import { UsageError } from "../errors.ts";
import type { Exec } from "../kernel/exec.ts";
import type { IpFamily } from "../model/objects.ts";
import type { HeldRules } from "../sim/node/held_rules.ts";
import { type DataPlane, dataPlaneOf, type DesiredInput, desiredRules } from "./desired/desired.ts";
import { liveOfKernel } from "./live/kernel_rules.ts";
import { foundPlane, type LiveNode } from "./live/live.ts";
import { type NodeAround, readAround, tcpBeLiberal, UNKNOWN_AROUND } from "./live/node_around.ts";
import { liveOfTexts, type LiveText } from "./live/saved_texts.ts";
import { knownNodeAddresses, podInterface } from "./node_addresses.ts";
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
}

/** What was found. */
export interface Look {
  /** Null: not asked for. */
  readonly objects: FoundObjects | null;
  readonly live: LiveNode | null;
  /** Nothing is known of it where rules are read from files, or not at all. */
  readonly around: NodeAround;
  /** The one in force on the node or, without live rules, by the configuration. */
  readonly plane: DataPlane;
  readonly config: KubeProxyConfiguration;
  /** All that are known, of both families; the Node's own come first. */
  readonly nodeAddresses: readonly string[];
  /** What packets of pods come in through, where nothing tells. */
  readonly podInterface: string;
}

/** Looks, at everything at once. */
export async function look(options: LookOptions): Promise<Look> {
  const { wantsDesired, wantsLive, liveFrom, exec } = options;
  const isHere = wantsLive && liveFrom.length === 0;
  const [objects, live, around] = await Promise.all([
    wantsDesired ? findObjects(options) : null,
    wantsLive ? readLive(exec, liveFrom) : null,
    isHere ? readAround(exec) : UNKNOWN_AROUND,
  ]);
  const configured = objects?.config ?? options.config;
  const found = live === null ? null : foundPlane(live);
  const named = options.isModeNamed ? configured : { ...configured, mode: "auto" as const };
  const plane = objects?.mode ?? dataPlaneOf(named, { found, doing: "Looking at" });
  const config = configForMode(configured, plane);
  return {
    objects,
    live,
    around,
    plane,
    config,
    nodeAddresses: knownNodeAddresses(objects?.state.node ?? null, around.addresses ?? [], config),
    podInterface: podInterface(config),
  };
}

async function readLive(exec: Exec, files: readonly string[]): Promise<LiveNode> {
  if (files.length === 0) return await liveOfKernel(exec);
  const texts = await Promise.all(files.map(async (name): Promise<LiveText> => {
    try {
      return { name, text: await Deno.readTextFile(name) };
    } catch (error) {
      if (!(error instanceof Error)) throw error;
      throw new UsageError(`Cannot read ${name}: ${error.message}`, { cause: error });
    }
  }));
  return liveOfTexts(texts, { from: `files ${files.join(", ")}`, bound: null, problems: [] });
}

/** What rules are made from; `warn` hears, in a sentence, of what is doubtful. */
export function desiredInput(
  { config, around }: Look,
  { state }: FoundObjects,
  warn: (sentence: string) => void,
): DesiredInput {
  return {
    ...state,
    config,
    machine: { addresses: around.addresses, tcpBeLiberal: tcpBeLiberal(around) },
    warn,
  };
}

/** The rules that one family should hold. */
export async function desiredOf(
  found: Look,
  family: IpFamily,
  warn: (sentence: string) => void,
): Promise<HeldRules | null> {
  if (found.objects === null) return null;
  return await desiredRules(found.plane, desiredInput(found, found.objects, warn), family);
}
