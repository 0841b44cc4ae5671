/**
 * Which variant of iptables the node uses, what the system's default is, and whether a service proxy left rules in the other one.
 *
 * @module
 */
import { UnsupportedError } from "../../../errors.ts";
import type { Exec } from "../../../kernel/exec.ts";
import {
  chooseIptablesVariant,
  hintsQuestion,
  holdsProxyRules,
  type IptablesFound,
  mayHideRules,
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
  /** Variants that may have rules which this process may not see. */
  readonly unseen: readonly IptablesVariant[];
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
  const [text, holds, hidden] = await Promise.all([
    exec.run(["iptables", "--version"]).then(({ stdout }) => stdout, () => ""),
    Promise.all(FAMILIES.map((family) => holdsProxyRules(exec, family, other))),
    Promise.all(VARIANTS.map((variant) => hidesRules(exec, variant))),
  ]);
  return {
    chosen,
    systemDefault: parseIptablesVersion(text),
    otherHolds: FAMILIES.filter((_family, index) => holds[index] === true),
    unseen: VARIANTS.filter((_variant, index) => hidden[index] === true),
  };
}

const VARIANTS: readonly IptablesVariant[] = ["nft", "legacy"];

async function hidesRules(exec: Exec, variant: IptablesVariant): Promise<boolean> {
  const hidden = await Promise.all(FAMILIES.map((family) => mayHideRules(exec, family, variant)));
  return hidden.includes(true);
}

/** What a node of any kind is asked for the variant; the answers are there when they are needed. */
export function askVariantAhead(exec: Exec): void {
  const questions = FAMILIES.flatMap((family) => VARIANTS.map((variant) => hintsQuestion(family, variant)));
  for (const question of questions) exec.run(question).catch(askedAgain);
}

/** Whoever needs the answer asks again, and tells of the failure. */
function askedAgain(_: unknown): void {}

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
  const found = await Promise.all(FAMILIES.map((family) => readChainsOf(exec, family, variant)));
  const ofFamilies = found.filter((chains) => chains !== null);
  return {
    forward: ofFamilies.map(({ forward }) => forward),
    prerouting: ofFamilies.map(({ prerouting }) => prerouting),
  };
}

/** Null: the family has no programs, or no tables. */
async function readChainsOf(
  exec: Exec,
  family: IpFamily,
  variant: IptablesVariant,
): Promise<{ readonly forward: KernelChain; readonly prerouting: KernelChain } | null> {
  let programs: IptablesFound;
  try {
    programs = await probeIptables(exec, family, variant);
  } catch (error) {
    // A family without programs has no rules that could be in the way.
    if (error instanceof UnsupportedError) return null;
    throw error;
  }
  const iptables = new Iptables(exec, programs);
  // IPv6 may be missing in the kernel, which the mode's own probe tells.
  if (family === "IPv6" && await iptables.absence() !== null) return null;
  const [forward, prerouting] = await Promise.all([
    iptables.list("filter", "FORWARD"),
    iptables.list("nat", "PREROUTING"),
  ]);
  return {
    forward: { family, lines: linesOf(forward) },
    prerouting: { family, lines: linesOf(prerouting) },
  };
}

function linesOf(text: string): readonly string[] {
  return text.split("\n").filter((line) => line !== "");
}
