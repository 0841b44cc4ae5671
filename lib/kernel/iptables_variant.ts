/**
 * Finds out which iptables variant this node uses, and for which IP families. Rules written through the other variant would not see the
 * kubelet's and the network plugin's marks, and packets would walk both.
 *
 * @module
 */
import { ExecError, UnsupportedError } from "../errors.ts";
import { FAMILIES, type IpFamily } from "../model/objects.ts";
import type { Exec, ExecResult } from "./exec.ts";
import {
  Iptables,
  type IptablesOptions,
  type IptablesPrograms,
  type IptablesVariant,
  type IptablesVersion,
  parseIptablesVersion,
  waitArgs,
} from "./iptables.ts";
import { type FamilyProbe, NEEDS_RIGHTS, type ServedFamilies, servedFamilies } from "./ip_families.ts";
import { isLockBusy, isPermissionProblem } from "./tool_errors.ts";
import { Runner } from "./runner.ts";

/** The variant to use, and why. */
export interface VariantChoice {
  readonly variant: IptablesVariant;
  /** For the log, e.g. `nft holds KUBE-KUBELET-CANARY (IPv4)`. */
  readonly reason: string;
}

/** Result of {@linkcode probeIptables}: everything an `Iptables` needs but its clock. */
export type IptablesFound = Pick<IptablesOptions, "family" | "variant" | "version" | "programs">;

const VARIANTS: readonly IptablesVariant[] = ["nft", "legacy"];
/** Kubelet makes one of these in table mangle to say which variant it uses; the newest first. */
const KUBELET_HINTS = ["KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"];
/** A service proxy, running or killed, leaves one of these. */
const PROXY_CHAINS = ["KUBE-PROXY-CANARY", "KUBE-POSTROUTING", "KUBE-SERVICES"];

/** Program names of one family: the system's default ones, or those of one variant. */
export function iptablesPrograms(family: IpFamily, variant?: IptablesVariant): IptablesPrograms {
  const base = family === "IPv4" ? "iptables" : "ip6tables";
  const command = variant === undefined ? base : `${base}-${variant}`;
  return { command, save: `${command}-save`, restore: `${command}-restore` };
}

/**
 * The variant whose tables hold kubelet's hint chain, those of the primary family first; else the one that holds a service proxy's
 * chains; else the system's default, unless only the other one works.
 *
 * @param primaryFamily the family that must work in the variant, if it works in either
 * @throws {UnsupportedError} if no variant works
 */
export async function chooseIptablesVariant(
  exec: Exec,
  primaryFamily: IpFamily = "IPv4",
): Promise<VariantChoice> {
  const families = FAMILIES.toSorted((a) => a === primaryFamily ? -1 : 1);
  for (const wanted of [KUBELET_HINTS, PROXY_CHAINS]) {
    // A proxy leaves chains in both families, so that the second one is rarely looked at.
    for (const family of families) {
      for (const variant of VARIANTS) {
        const hint = await findHint(exec, family, variant, wanted);
        if (hint !== undefined) return { variant, reason: `${variant} holds ${hint} (${family})` };
      }
    }
  }
  return await defaultVariant(exec, families);
}

/**
 * The programs of one family that speak `variant`.
 *
 * @throws {UnsupportedError} if there are none
 * @throws {ExecError} if there are some that do not say what they speak
 */
export async function probeIptables(
  exec: Exec,
  family: IpFamily,
  variant: IptablesVariant,
): Promise<IptablesFound> {
  const candidates = [iptablesPrograms(family), iptablesPrograms(family, variant)];
  const seen: string[] = [];
  let unclear: ExecError | null = null;
  for (const programs of candidates) {
    const found = await askVersion(exec, programs.command);
    if (found instanceof ExecError) {
      unclear ??= found;
      continue;
    }
    if (found?.variant === variant) return { family, variant, version: found.version, programs };
    seen.push(`${programs.command}: ${found === null ? "missing" : `${found.version} (${found.variant})`}`);
  }
  if (unclear !== null) throw unclear;
  throw new UnsupportedError(`${family} through iptables`, `the ${variant} variant`, seen.join(", "));
}

/** Version and variant of a program; null if it is missing or prints something else. */
async function readVersion(exec: Exec, program: string): Promise<IptablesVersion | null> {
  const found = await askVersion(exec, program);
  return found instanceof ExecError ? null : found;
}

/** Version of a program; null: it is missing; an error: it is there, but does not say. */
async function askVersion(exec: Exec, program: string): Promise<IptablesVersion | ExecError | null> {
  const argv = [program, "--version"];
  const result = await runIfThere(exec, argv);
  if (result === null) return null;
  const version = result.code === 0 ? parseIptablesVersion(result.stdout) : null;
  return version ??
    new ExecError(argv, result.code, result.stderr || `it printed no version: ${result.stdout}`);
}

/** True if there are chains of a service proxy; false, too, where that is unknown. */
export async function holdsProxyRules(
  exec: Exec,
  family: IpFamily,
  variant: IptablesVariant,
): Promise<boolean> {
  try {
    return await findHint(exec, family, variant, PROXY_CHAINS) !== undefined;
  } catch (error) {
    if (error instanceof ExecError) return false;
    throw error;
  }
}

/** True if there may be rules of the variant in the family that this process may not see. */
export async function mayHideRules(exec: Exec, family: IpFamily, variant: IptablesVariant): Promise<boolean> {
  try {
    const saved = await save(exec, family, variant, true);
    return saved !== null && saved.code !== 0 && isPermissionProblem(saved.stderr);
  } catch (error) {
    // A tool that hangs is reported elsewhere.
    if (error instanceof ExecError) return false;
    throw error;
  }
}

/** The first of the wanted chains that exists. */
async function findHint(
  exec: Exec,
  family: IpFamily,
  variant: IptablesVariant,
  wanted: readonly string[],
): Promise<string | undefined> {
  const saved = await save(exec, family, variant, wanted === KUBELET_HINTS);
  const text = saved?.code === 0 ? saved.stdout : "";
  const chains = new Set(Array.from(text.matchAll(/^:(\S+)/gm), ([, chain]) => chain));
  return wanted.find((chain) => chains.has(chain));
}

/**
 * Output of the variant's save program; null if it is not installed.
 *
 * @param isKubelets true: table mangle, with kubelet's chains, is enough. Naming a table makes the legacy variant
 *   create it, with its hooks, on a node that uses nft: there all existing tables are listed.
 */
async function save(
  exec: Exec,
  family: IpFamily,
  variant: IptablesVariant,
  isKubelets: boolean,
): Promise<ExecResult | null> {
  const table = isKubelets && variant === "nft" ? ["-t", "mangle"] : [];
  const saved = await runIfThere(exec, [iptablesPrograms(family, variant).save, ...table]);
  if (saved !== null) return saved;
  // Before 1.8 there are no programs with the variant in their name, and the plain ones are legacy.
  const plain = iptablesPrograms(family);
  const found = await readVersion(exec, plain.command);
  return found?.variant === variant ? await runIfThere(exec, [plain.save, ...table]) : null;
}

async function defaultVariant(exec: Exec, families: readonly IpFamily[]): Promise<VariantChoice> {
  const problems: string[] = [];
  const preferred = await readVersion(exec, iptablesPrograms("IPv4").command);
  const order = preferred === null ? VARIANTS : VARIANTS.toSorted((a) => a === preferred.variant ? -1 : 1);
  let isAnyMissing = false;
  /** Variant that works for the other family alone. */
  let second: IptablesVariant | null = null;
  const choice = (variant: IptablesVariant): VariantChoice => {
    const why = problems.length === 0 ? "" : `: ${problems[0]}`;
    const isDefault = variant === preferred?.variant;
    return {
      variant,
      reason: isDefault ? `${variant} is the system's default` : `only ${variant} works here${why}`,
    };
  };
  for (const variant of order) {
    for (const family of families) {
      const problem = await listProblem(exec, family, variant);
      if (problem === "missing") isAnyMissing = true;
      else if (problem !== null) problems.push(problem.problem);
      else if (family === families[0]) return choice(variant);
      else second ??= variant;
    }
  }
  if (second !== null) return choice(second);
  throw unusable([...new Set(problems)], isAnyMissing);
}

function unusable(problems: readonly string[], isAnyMissing: boolean): UnsupportedError {
  if (problems.length === 0 && isAnyMissing) {
    const names = FAMILIES.flatMap((family) =>
      [undefined, ...VARIANTS].map((variant) => iptablesPrograms(family, variant).command)
    );
    const found = `not on PATH: ${names.join(", ")}`;
    return new UnsupportedError("iptables", "iptables or ip6tables", found, {
      message: `install iptables (${found})`,
    });
  }
  const found = problems.join("; ");
  const message = problems.every(isPermissionProblem)
    ? NEEDS_RIGHTS
    : `iptables does not work here: ${found}`;
  return new UnsupportedError("iptables", "a working iptables or ip6tables", found, { message });
}

/** Null if the variant can list the family's nat table; else why not, `missing` if its programs are not installed. */
async function listProblem(
  exec: Exec,
  family: IpFamily,
  variant: IptablesVariant,
): Promise<{ readonly problem: string } | "missing" | null> {
  let found: IptablesFound;
  try {
    found = await probeIptables(exec, family, variant);
  } catch (error) {
    if (error instanceof UnsupportedError) return "missing";
    if (error instanceof ExecError && !error.isInconclusive()) return { problem: error.message };
    throw error;
  }
  const argv = [found.programs.command, ...waitArgs(found.version), "-S", "POSTROUTING", "-t", "nat"];
  const result = await exec.run(argv);
  // A lock that is held at the moment says that the variant works, and that others use it.
  if (result.code === 0 || isLockBusy(result)) return null;
  return { problem: new ExecError(argv, result.code, result.stderr).message };
}

async function runIfThere(exec: Exec, argv: readonly string[]): Promise<ExecResult | null> {
  try {
    return await exec.run(argv);
  } catch (error) {
    if (error instanceof ExecError && error.isMissing()) return null;
    throw error;
  }
}

/**
 * The iptables of a node, what works and what does not. Chooses the variant and finds its families, and logs both.
 *
 * @throws {UnsupportedError} if the primary family is not among them
 * @throws {ExecError} if it is unknown whether a variant works
 */
export async function iptablesOfNode(
  exec: Exec,
  { primaryFamily, sysctls, log }: Pick<FamilyProbe<Iptables>, "primaryFamily" | "sysctls" | "log">,
): Promise<ServedFamilies<Iptables>> {
  const probing = new Runner(exec, { caches: true });
  const { variant, reason } = await chooseIptablesVariant(probing, primaryFamily);
  log.info("Using iptables", { variant, reason });
  return await servedFamilies({
    primaryFamily,
    sysctls,
    log,
    probe: async (family) => {
      const found = await probeIptables(probing, family, variant);
      const problem = await new Iptables(probing, found).absence();
      if (problem !== null) throw new UnsupportedError(family, "a nat table that iptables can list", problem);
      return new Iptables(exec, found);
    },
    hasRules: (family) => holdsProxyRules(probing, family, variant),
  });
}
