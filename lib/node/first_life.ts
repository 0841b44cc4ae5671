/**
 * The first life of a process: the source asks for its first lists while the node is looked at, because neither needs the other. Rules
 * need both.
 *
 * @module
 */
import { candidateModes } from "../backend/node/choose_mode.ts";
import { MODES, usesServiceCidrs } from "../backend/node/registry.ts";
import type { AheadSource } from "../source/ahead.ts";
import { endTogether } from "./ending.ts";
import { beginLife, type Life, openChannels, type PlannedLife, prepareNode } from "./life.ts";

/** How a start is called off. */
export interface StartEnd {
  readonly signal: AbortSignal;
  /** Resolves to null once `signal` is aborted. */
  readonly received: Promise<null>;
}

/**
 * Prepares the node and opens the source, which begins as soon as it is open; what it delivers, and why it gives up, is told when the
 * life is served. A failure to prepare the node ends the source.
 *
 * @returns null if the start was called off
 * @throws {ConfigError} if the source's configuration is wrong
 * @throws {UnsupportedError} if the node cannot run the mode
 * @throws {ExecError} if nobody can tell what it can run
 */
export async function firstLife(planned: PlannedLife, { signal, received }: StartEnd): Promise<Life | null> {
  const failure = new AbortController();
  const opening = openChannels(planned);
  let begun: AheadSource | null = null;
  // A failure is told by whoever prepares the node, after what is said of the node.
  const beginning = opening.then(({ source }) => {
    source.begin({
      wantsServiceCidrs: asksForServiceCidrs(planned),
      signal: AbortSignal.any([signal, failure.signal]),
    });
    begun = source;
  });
  beginning.catch(() => undefined);
  let life: Life | null = null;
  try {
    // The tools may wait long for a lock that others hold. What is abandoned has only read, or set what it found wanting.
    const prepared = await Promise.race([prepareNode(planned, opening), received]);
    if (prepared !== null) life = beginLife(planned, prepared, await opening);
  } finally {
    if (life === null) {
      failure.abort();
      planned.programs.end();
      const source = begun as AheadSource | null;
      if (source !== null) await endTogether({ "objects and snapshot": source.end() }, planned.log);
    }
  }
  return life;
}

/** Goes by the mode that is tried first: if another one takes its place, the source is told. */
function asksForServiceCidrs({ config }: PlannedLife): boolean {
  return candidateModes(config, MODES).modes.slice(0, 1).some(usesServiceCidrs);
}
