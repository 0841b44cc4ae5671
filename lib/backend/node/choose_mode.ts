/**
 * Which proxy mode a node runs: the configured one, the best one for `auto`, or with `kproxy.proxyModeFallback` the first
 * of a list that works. Whether one works is found out by getting the node ready for it.
 *
 * @module
 */
import { configForMode } from "../../config/defaults.ts";
import { type KubeProxyConfiguration, PROXY_MODES, type ProxyMode } from "../../config/types.ts";
import { UnsupportedError } from "../../errors.ts";
import type { Logger } from "../../observe/log.ts";
import type { ModeContext, PreparedMode, PrepareMode } from "./mode.ts";

/** Implementations by mode. */
export type Modes = ReadonlyMap<ProxyMode, PrepareMode>;

/** Modes that `auto` tries, best first. Not IPVS: it needs more of a node and is deprecated in kube-proxy. */
const AUTO_ORDER: readonly ProxyMode[] = ["nftables", "iptables"];

/** Modes that replace one that cannot run, in order, as in kube-proxy before 1.23 (which had no nftables). */
const FALLBACKS: readonly ProxyMode[] = ["iptables", "userspace"];

/** The modes to try, and why the configured one is not among them. */
export interface ModeCandidates {
  /** Best first, at least one. */
  readonly modes: readonly ProxyMode[];
  /** True if kproxy does not know the configured mode. */
  readonly isUnknown: boolean;
}

/** A mode that was not taken. */
export interface PassedOverMode {
  readonly mode: string;
  readonly reason: string;
}

/** The mode a node runs, ready to serve. */
export interface ChosenMode {
  readonly mode: ProxyMode;
  /** The configuration with this mode in it and what follows from that. */
  readonly config: KubeProxyConfiguration;
  readonly prepared: PreparedMode;
  /** Better modes that were not taken, best first. */
  readonly passedOver: readonly PassedOverMode[];
}

/**
 * The modes that a configuration allows on a node.
 *
 * @throws {UnsupportedError} if this release has none of them
 */
export function candidateModes(config: KubeProxyConfiguration, implemented: Modes): ModeCandidates {
  const { mode: wanted, kproxy: { proxyModeFallback } } = config;
  const isUnknown = !PROXY_MODES.includes(wanted);
  const first = wanted === "auto"
    ? AUTO_ORDER.filter((mode) => implemented.has(mode))
    : isUnknown
    ? []
    : [wanted];
  const modes = [...first, ...(proxyModeFallback ? followers(first) : [])];
  if (!modes.some((mode) => implemented.has(mode))) throw notInThisRelease(wanted, implemented);
  return { modes, isUnknown };
}

/**
 * Gets the node ready for the first mode that works on it, and logs which one that is and why those before it are not.
 *
 * @throws {UnsupportedError} if none works, with the reason of each
 */
export async function chooseMode(implemented: Modes, context: ModeContext): Promise<ChosenMode> {
  const { config, log } = context;
  const { modes, isUnknown } = candidateModes(config, implemented);
  const passedOver: PassedOverMode[] = isUnknown
    ? [{ mode: config.mode, reason: "there is no such mode" }]
    : [];
  let lastError: UnsupportedError | null = null;
  for (const mode of modes) {
    const modeConfig = configForMode(config, mode);
    try {
      const prepare = implemented.get(mode);
      if (prepare === undefined) throw notInThisRelease(mode, implemented);
      const prepared = await prepare({ ...context, config: modeConfig });
      logChoice(log, config.mode, { mode, passedOver });
      return { mode, config: modeConfig, prepared, passedOver };
    } catch (error) {
      if (!(error instanceof UnsupportedError)) throw error;
      lastError = error;
      passedOver.push({ mode, reason: error.message });
    }
  }
  throw noneWorks(config.mode, passedOver, lastError);
}

/** Each mode with why it was passed over, in one line. */
export function passedOverText(passedOver: readonly PassedOverMode[]): string {
  return passedOver.map(({ mode, reason }) => `${mode}: ${reason}`).join("; ");
}

/** The fallbacks that come after the last of these modes. */
function followers(modes: readonly ProxyMode[]): readonly ProxyMode[] {
  const last = modes.at(-1);
  return last === undefined ? FALLBACKS : FALLBACKS.slice(FALLBACKS.indexOf(last) + 1);
}

function notInThisRelease(mode: string, implemented: Modes): UnsupportedError {
  const names = [...implemented.keys()].join(", ");
  return new UnsupportedError(`Proxy mode ${mode}`, `one of ${names}`, mode, {
    message: `Proxy mode ${mode} is not in this release; it has: ${names}`,
  });
}

function noneWorks(
  wanted: string,
  passedOver: readonly PassedOverMode[],
  cause: UnsupportedError | null,
): UnsupportedError {
  // A reason that all share, such as missing rights, explains everything.
  const isOneReason = new Set(passedOver.map(({ reason }) => reason)).size === 1;
  if (cause !== null && isOneReason) return cause;
  const tried = passedOver.map(({ mode }) => mode).join(", ");
  const reasons = passedOverText(passedOver);
  return new UnsupportedError(`Proxy mode ${wanted}`, `one of ${tried} to work`, reasons, {
    message: `no proxy mode works here: ${reasons}`,
    cause,
  });
}

function logChoice(
  log: Logger,
  wanted: ProxyMode,
  { mode, passedOver }: Pick<ChosenMode, "mode" | "passedOver">,
): void {
  if (wanted === "auto") {
    for (const better of passedOver) log.info("Proxy mode passed over", { ...better });
    const reason = passedOver.length === 0 ? "the best there is works here" : "the best that works here";
    log.info("Chose proxy mode", { mode, reason });
  } else if (passedOver.length > 0) {
    log.warn("Running another proxy mode than the configured one", {
      configured: wanted,
      mode,
      reason: passedOverText(passedOver),
    });
  }
}
