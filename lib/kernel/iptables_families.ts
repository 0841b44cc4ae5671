/**
 * Which IP families of a node iptables can serve.
 *
 * @module
 */
import { UnsupportedError } from "../errors.ts";
import { FAMILIES, type IpFamily } from "../model/objects.ts";
import type { Exec } from "./exec.ts";
import { Iptables } from "./iptables.ts";
import { isPermissionProblem } from "./iptables_refusal.ts";
import { chooseIptablesVariant, holdsProxyRules, NEEDS_RIGHTS, probeIptables } from "./iptables_variant.ts";
import type { Logger } from "../observe/log.ts";
import { type NodeSysctls, requireIpv6 } from "./node_sysctls.ts";
import { Runner } from "./runner.ts";

/** An IP family that cannot be served. */
export interface RefusedFamily {
  readonly family: IpFamily;
  readonly reason: string;
  /** True if rules of a service proxy are there all the same, which no proxy updates. */
  readonly hasRules: boolean;
}

/** What finding out the families needs. */
export interface UsableFamiliesOptions {
  readonly variant: Iptables["variant"];
  /** The one that must be among them. */
  readonly primaryFamily: IpFamily;
  readonly sysctls: NodeSysctls;
  /** Hears of those that do not work. */
  readonly onRefused: (refused: RefusedFamily) => void;
  /** Starts the programs that only look, if others have looked at the same before. */
  readonly probing?: Exec;
}

/**
 * The families that work here, each with its programs.
 *
 * @throws {UnsupportedError} if the primary one is not among them
 * @throws {ExecError} if it is unknown whether a variant works
 */
export async function usableFamilies(
  exec: Exec,
  { variant, primaryFamily, sysctls, onRefused, probing = exec }: UsableFamiliesOptions,
): Promise<ReadonlyMap<IpFamily, Iptables>> {
  const families = new Map<IpFamily, Iptables>();
  const refused = new Map<IpFamily, string>();
  for (const family of FAMILIES) {
    try {
      if (family === "IPv6") requireIpv6(sysctls);
      const found = await probeIptables(probing, family, variant);
      const problem = await new Iptables(probing, found).absence();
      if (problem !== null) throw new UnsupportedError(family, "a nat table that iptables can list", problem);
      families.set(family, new Iptables(exec, found));
    } catch (error) {
      if (!(error instanceof UnsupportedError)) throw error;
      refused.set(family, error.message);
      onRefused({ family, reason: error.message, hasRules: await holdsProxyRules(probing, family, variant) });
    }
  }
  const reason = refused.get(primaryFamily);
  if (reason !== undefined) throw primaryFamilyError(primaryFamily, reason);
  return families;
}

/** The iptables of a node: what works, and what does not. */
export interface IptablesOfNode {
  readonly families: ReadonlyMap<IpFamily, Iptables>;
  readonly refused: readonly RefusedFamily[];
}

/**
 * Chooses the variant and finds its families, and tells the log of both.
 *
 * @throws {UnsupportedError} if the primary family is not among them
 * @throws {ExecError} if it is unknown whether a variant works
 */
export async function iptablesOfNode(
  exec: Exec,
  { primaryFamily, sysctls, log }: Pick<UsableFamiliesOptions, "primaryFamily" | "sysctls"> & {
    readonly log: Logger;
  },
): Promise<IptablesOfNode> {
  const probing = new Runner(exec, { caches: true });
  const { variant, reason } = await chooseIptablesVariant(probing, { primaryFamily });
  log.info("Using iptables", { variant, reason });
  const refused: RefusedFamily[] = [];
  const onRefused = (family: RefusedFamily): void => {
    refused.push(family);
    log.info("IP family cannot be served", { family: family.family, reason: family.reason });
  };
  const families = await usableFamilies(exec, { variant, primaryFamily, sysctls, onRefused, probing });
  return { families, refused };
}

function primaryFamilyError(family: IpFamily, reason: string): UnsupportedError {
  const tool = family === "IPv4" ? "iptables" : "ip6tables";
  return new UnsupportedError(`Primary IP family ${family}`, `a working ${tool}`, reason, {
    message: isPermissionProblem(reason)
      ? NEEDS_RIGHTS
      : `the primary IP family ${family} cannot be served: ${reason}`,
  });
}
