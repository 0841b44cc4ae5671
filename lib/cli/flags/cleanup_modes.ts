/**
 * Which modes' leftovers go.
 *
 * @module
 */
import { CLEANUP_MODES, type CleanupMode } from "../../config/types.ts";
import type { ParsedFlags } from "./parse_args.ts";

/** The modes that the flags ask for: those of `--only`, else all, without ipvs for `--cleanup-ipvs=false`. */
export function cleanupModes(flags: ParsedFlags): readonly CleanupMode[] {
  const only = flags.get("only");
  const sparesIpvs = flags.get("cleanup-ipvs") === false;
  return CLEANUP_MODES.filter((mode) =>
    (only === undefined || only.length === 0 || only.includes(mode)) && !(mode === "ipvs" && sparesIpvs)
  );
}
