/**
 * What a mode is prepared with.
 *
 * @module
 */
import type { ModeContext } from "../../lib/backend/node/mode.ts";
import { nodeSysctls } from "../../lib/kernel/sysctl.ts";

/** As the program makes it, but for the settings that it reads ahead. */
export async function modeContext(parts: Omit<ModeContext, "sysctls">): Promise<ModeContext> {
  return { ...parts, sysctls: await nodeSysctls(parts.exec, parts.log) };
}
