/**
 * Which flags count although the configuration comes from a file.
 *
 * @module
 */
import { countsBesideFile } from "../../config/flags_overlay.ts";
import type { Flag } from "./flag.ts";
import { FLAGS } from "./flags.ts";

/** Flags about the run itself, which no file could hold, and those that are there for old command lines. */
const OTHER_GROUPS: readonly Flag["group"][] = ["Program", "Deprecated"];

/**
 * The settings that a flag gives also beside `--config`, in the order of the list: those that kube-proxy honours there, logging,
 * and kproxy's own.
 */
export function flagsBesideFile(): readonly Flag[] {
  return FLAGS.filter(({ group, field }: Flag) =>
    !OTHER_GROUPS.includes(group) && (field === undefined || countsBesideFile(field))
  );
}

/** Those among them that kube-proxy does not have. */
export function ownFlagsBesideFile(): readonly Flag[] {
  return flagsBesideFile().filter(({ field }) => field?.startsWith("kproxy.") === true);
}
