/**
 * The context that a mode is prepared with.
 *
 * @module
 */
import type { ModeContext } from "../../lib/backend/node/mode.ts";
import { nodeSysctls } from "../../lib/kernel/sysctl.ts";

/** A context like the program's, without sysctls that are read ahead. */
export async function modeContext(parts: Omit<ModeContext, "sysctls">): Promise<ModeContext> {
  return { ...parts, sysctls: await nodeSysctls(parts.exec, parts.log) };
}
