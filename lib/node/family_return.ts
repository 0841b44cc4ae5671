/**
 * IPv6 that was off when the proxy was started, and is on now: a proxy server with both families takes the place of the one without it.
 *
 * @module
 */
import { ExecError } from "../errors.ts";
import { type Clock, systemClock } from "../kernel/clock.ts";
import type { Exec } from "../kernel/exec.ts";
import { DISABLE_IPV6, readSysctl } from "../kernel/sysctl.ts";
import type { IpFamily } from "../model/objects.ts";
import { whenAborted } from "./shutdown.ts";

/** What {@linkcode untilIpv6IsOn} needs. */
export interface FamilyReturnOptions {
  /** Families that are not served. */
  readonly refused: readonly { readonly family: IpFamily }[];
  readonly exec: Exec;
  /** How often it looks, in milliseconds. */
  readonly periodMs: number;
  /** @default {systemClock} */
  readonly clock?: Clock;
}

/**
 * Resolves to true once IPv6, which is not served because the kernel's setting was against it, is no longer off; to false once `signal`
 * aborts. What else may keep a family from being served, such as programs that are missing, a new start finds out.
 */
export async function untilIpv6IsOn(
  { refused, exec, periodMs, clock = systemClock }: FamilyReturnOptions,
  signal: AbortSignal,
): Promise<boolean> {
  const isRefused = refused.some(({ family }) => family === "IPv6");
  if (!isRefused || !await isIpv6Off(exec, signal)) {
    await whenAborted(signal);
    return false;
  }
  while (!signal.aborted) {
    await clock.sleep(periodMs, signal);
    if (!signal.aborted && !await isIpv6Off(exec, signal)) return !signal.aborted;
  }
  return false;
}

/** What cannot be read now is as it was: off, as far as anybody here asks. */
async function isIpv6Off(exec: Exec, signal: AbortSignal): Promise<boolean> {
  try {
    return await readSysctl(exec, DISABLE_IPV6) !== "0";
  } catch (error) {
    if (!(error instanceof ExecError) && !signal.aborted) throw error;
    return true;
  }
}
