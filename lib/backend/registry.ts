/**
 * Which code stands behind a proxy mode. A new mode is a folder beside this file and a line in it.
 *
 * @module
 */
import type { ProxyMode } from "../config/types.ts";
import { UnsupportedError } from "../errors.ts";
import { prepareIptables } from "./iptables/proxier.ts";
import type { PrepareMode } from "./mode.ts";

/** The modes that have an implementation; `auto` takes the first. */
const MODES: ReadonlyMap<ProxyMode, PrepareMode> = new Map([
  ["iptables", prepareIptables],
]);

/** Names of the implemented modes, best first. */
export const IMPLEMENTED_MODES: readonly ProxyMode[] = [...MODES.keys()];

/** The mode that `mode` stands for. */
export interface ResolvedMode {
  readonly mode: ProxyMode;
  readonly prepare: PrepareMode;
}

/**
 * Finds the implementation of a configured mode.
 *
 * @throws {UnsupportedError} if this release has none
 */
export function resolveMode(mode: ProxyMode): ResolvedMode {
  const resolved = mode === "auto" ? IMPLEMENTED_MODES[0] : mode;
  const prepare = resolved === undefined ? undefined : MODES.get(resolved);
  if (resolved === undefined || prepare === undefined) {
    const implemented = IMPLEMENTED_MODES.join(", ");
    throw new UnsupportedError(`Proxy mode ${mode}`, `one of ${implemented}`, mode, {
      message: `Proxy mode ${mode} is not in this release; it has: ${implemented}`,
    });
  }
  return { mode: resolved, prepare };
}
