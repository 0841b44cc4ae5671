/**
 * Which variant of iptables the node uses, what the system's default is, and whether a service proxy left rules in the other one.
 *
 * @module
 */
import { UnsupportedError } from "../../../errors.ts";
import type { Exec } from "../../../kernel/exec.ts";
import {
  chooseIptablesVariant,
  holdsProxyRules,
  probeIptables,
  type VariantChoice,
} from "../../../kernel/iptables_variant.ts";
import {
  type IptablesVariant,
  type IptablesVersion,
  parseIptablesVersion,
} from "../../../kernel/iptables_version.ts";
import { Iptables } from "../../../kernel/iptables.ts";
import { FAMILIES, type IpFamily } from "../../../model/objects.ts";

/** What there is to know of the variants. */
export interface VariantFact {
  readonly chosen: VariantChoice;
  /** Of the program `iptables`; null if it does not say. */
  readonly systemDefault: IptablesVersion | null;
  /** Families for which the variant that is not chosen holds a service proxy's chains. */
  readonly otherHolds: readonly IpFamily[];
}

/** Null if iptables does not work here at all. */
export async function readVariant(exec: Exec, primaryFamily: IpFamily): Promise<VariantFact | null> {
  let chosen: VariantChoice;
  try {
    chosen = await chooseIptablesVariant(exec, { primaryFamily });
  } catch (error) {
    if (error instanceof UnsupportedError) return null;
    throw error;
  }
  const other: IptablesVariant = chosen.variant === "nft" ? "legacy" : "nft";
  const [text, holds] = await Promise.all([
    exec.run(["iptables", "--version"]).then(({ stdout }) => stdout, () => ""),
    Promise.all(FAMILIES.map((family) => holdsProxyRules(exec, family, other))),
  ]);
  return {
    chosen,
    systemDefault: parseIptablesVersion(text),
    otherHolds: FAMILIES.filter((_family, index) => holds[index] === true),
  };
}

/** A chain of the kernel in one family, as `iptables -S` prints it. */
export interface KernelChain {
  readonly family: IpFamily;
  /** One rule a line, `-P CHAIN POLICY` first. */
  readonly lines: readonly string[];
}

/** Chain FORWARD of table filter, and PREROUTING of nat, in each family that can be listed. */
export interface KernelChains {
  readonly forward: readonly KernelChain[];
  readonly prerouting: readonly KernelChain[];
}

/** The chains through which the node's own rules, and those of other proxies, see a packet first. */
export async function readKernelChains(exec: Exec, variant: IptablesVariant): Promise<KernelChains> {
  const forward: KernelChain[] = [];
  const prerouting: KernelChain[] = [];
  for (const family of FAMILIES) {
    let iptables: Iptables;
    try {
      iptables = new Iptables(exec, await probeIptables(exec, family, variant));
    } catch (error) {
      // A family without programs has no rules that could be in the way.
      if (error instanceof UnsupportedError) continue;
      throw error;
    }
    // IPv6 may be missing in the kernel, which the mode's own probe tells.
    if (family === "IPv6" && await iptables.absence() !== null) continue;
    forward.push({ family, lines: linesOf(await iptables.list("filter", "FORWARD")) });
    prerouting.push({ family, lines: linesOf(await iptables.list("nat", "PREROUTING")) });
  }
  return { forward, prerouting };
}

function linesOf(text: string): readonly string[] {
  return text.split("\n").filter((line) => line !== "");
}
