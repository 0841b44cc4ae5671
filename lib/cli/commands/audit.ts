/**
 * Reports a change of the node, with its time and its user: on standard error, and in the log of the kproxy that runs here.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../config/types.ts";
import { NotRunningError, RunningKproxy } from "../../inspect/running/running.ts";
import { wallClockMs } from "../../kernel/clock.ts";
import { AUDIT, createLogger, type LogValues, valuesText } from "../../observe/log.ts";
import type { Io } from "../io.ts";

/** Reports the change in one line: where no kproxy answers, the line on standard error is all there is. */
export async function audit(
  action: "repair" | "cleanup",
  what: LogValues,
  { logging, kproxy }: Pick<KubeProxyConfiguration, "logging" | "kproxy">,
  io: Pick<Io, "err">,
): Promise<void> {
  const uid = Deno.uid();
  createLogger({
    format: logging.format === "json" ? "json" : "text",
    verbosity: 0,
    write: (line) => io.err(line),
    nowMs: wallClockMs,
    pid: Deno.pid,
  }).info(AUDIT, { action, uid, ...what });
  try {
    await new RunningKproxy(kproxy.socket).audit({ action, uid: String(uid), what: valuesText(what) });
  } catch (error) {
    if (!(error instanceof NotRunningError)) throw error;
  }
}
