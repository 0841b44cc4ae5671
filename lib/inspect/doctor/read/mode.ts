/**
 * Which mode would run here: the probes of a start, kept from writing anything.
 *
 * @module
 */
import { chooseMode, type Modes } from "../../../backend/node/choose_mode.ts";
import type { ModeContext, PreparedMode, PrepareMode } from "../../../backend/node/mode.ts";
import { MODES } from "../../../backend/node/registry.ts";
import type { KubeProxyConfiguration, ProxyMode } from "../../../config/types.ts";
import { ExecError, UnsupportedError } from "../../../errors.ts";
import type { Exec } from "../../../kernel/exec.ts";
import { probeIpset } from "../../../kernel/ipset.ts";
import { type RefusedFamily, usableFamilies } from "../../../kernel/iptables_families.ts";
import { chooseIptablesVariant, NEEDS_RIGHTS } from "../../../kernel/iptables_variant.ts";
import { ipvsAbsence, Ipvsadm } from "../../../kernel/ipvsadm.ts";
import { type NodeSysctls, nodeSysctls } from "../../../kernel/node_sysctls.ts";
import { nodeIps } from "../../../model/node.ts";
import { errorText, type Logger, type LogValues, silentLogger } from "../../../observe/log.ts";

/** What trying a mode showed. */
export type ModeFact =
  | {
    readonly kind: "works";
    readonly mode: ProxyMode;
    readonly config: KubeProxyConfiguration;
    /** Those that would have been taken first, and why they are not. */
    readonly passedOver: readonly { readonly mode: string; readonly reason: string }[];
    readonly refused: readonly Pick<RefusedFamily, "family" | "reason">[];
    /** What a start would warn of. */
    readonly warnings: readonly string[];
  }
  | {
    readonly kind: "unusable";
    readonly reason: string;
    /** True if nothing but the rights of this process is in the way. */
    readonly lacksRights: boolean;
  };

/** Tries the configured mode, or those that `auto` stands for, as a start does. */
export async function readMode(exec: Exec, config: KubeProxyConfiguration): Promise<ModeFact> {
  const warnings: string[] = [];
  const log = warningsOnly(warnings);
  const sysctls = unwritten(await nodeSysctls(exec, silentLogger));
  try {
    const { mode, config: chosen, passedOver, prepared: { refused } } = await chooseMode(LOOKING_MODES, {
      exec,
      config,
      log,
      sysctls,
    });
    return { kind: "works", mode, config: chosen, passedOver, refused, warnings };
  } catch (error) {
    if (!(error instanceof UnsupportedError)) throw error;
    return { kind: "unusable", reason: error.message, lacksRights: error.message.includes(NEEDS_RIGHTS) };
  }
}

/** The probes of nftables and iptables only look, but for kernel settings; that of IPVS writes sets and rules to try them. */
const LOOKING_MODES: Modes = new Map<ProxyMode, PrepareMode>(
  [...MODES].map(([mode, prepare]) => [mode, mode === "ipvs" ? lookAtIpvs : prepare]),
);

/** As far as looking shows: programs, kernel, rights and families. Sets, matches and schedulers are tried by a start. */
async function lookAtIpvs({ exec, config, sysctls }: ModeContext): Promise<PreparedMode> {
  try {
    await new Ipvsadm(exec).loads();
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    throw ipvsAbsence(error) ?? error;
  }
  await probeIpset(exec);
  const { primaryFamily } = nodeIps(null, config.bindAddress);
  const { variant } = await chooseIptablesVariant(exec, { primaryFamily });
  const refused: RefusedFamily[] = [];
  const onRefused = (family: RefusedFamily): void => void refused.push(family);
  await usableFamilies(exec, { variant, primaryFamily, sysctls, onRefused });
  return { proxiers: [], refused, reconfigure: () => [] };
}

/** Reads settings, and takes every change for done. */
function unwritten(sysctls: NodeSysctls): NodeSysctls {
  return {
    known: sysctls.known,
    ipv6Disabled: sysctls.ipv6Disabled,
    read: (names) => sysctls.read(names),
    forget: (names) => sysctls.forget(names),
    change: (changes) => Promise.resolve(changes.map(({ value }) => ({ kind: "unchanged", found: value }))),
  };
}

/** Keeps what a start would warn of, as one line each. */
function warningsOnly(warnings: string[]): Logger {
  return {
    ...silentLogger,
    warn: (message: string, values: LogValues = {}) => {
      const details = Object.entries(values).filter(([, value]) => value !== undefined)
        .map(([key, value]) => `${key} ${value instanceof Error ? errorText(value) : String(value)}`);
      warnings.push([message, ...details].join("; "));
    },
  };
}
