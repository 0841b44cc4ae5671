/**
 * Judges which programs there are, and whether they are new enough.
 *
 * @module
 */
import type { ProxyMode } from "../../../config/types.ts";
import { isAtLeast } from "../../../kernel/iptables_version.ts";
import { type Fact, judged } from "../fact.ts";
import { failure, type Finding, ok, warning } from "../finding.ts";
import { type Program, type ProgramFact, PROGRAMS } from "../programs.ts";

const CHECK = "programs";

/** @param modes those that must work here */
export function judgePrograms(
  facts: ReadonlyMap<string, Fact<ProgramFact>>,
  modes: readonly ProxyMode[],
): readonly Finding[] {
  return PROGRAMS.flatMap((program) => {
    const fact = facts.get(program.name);
    if (fact === undefined) return [];
    return judged(`${CHECK} ${program.name}`, fact, (found) => [judgeProgram(program, found, modes)])
      .map((finding) => ({ ...finding, check: CHECK }));
  });
}

function judgeProgram(program: Program, found: ProgramFact, modes: readonly ProxyMode[]): Finding {
  const { name, minVersion } = program;
  const needing = program.modes.filter((mode) => modes.includes(mode));
  if (found.kind === "forbidden") {
    return lack(program, needing, `${name} may not be started`, `give kproxy --allow-run=${name}`);
  }
  if (found.kind === "missing") {
    return lack(program, needing, `${name} is not on the PATH`, installCommand(program));
  }
  const { version } = found;
  if (version !== null && minVersion !== null && !isAtLeast(version, minVersion)) {
    const what = `${name} ${version} is too old, kproxy needs ${minVersion}`;
    return lack(program, needing, what, installCommand(program));
  }
  return ok(CHECK, version === null ? `${name} is there and tells no version` : `${name} ${version}`);
}

function lack(
  { modes, otherwise }: Program,
  needing: readonly ProxyMode[],
  what: string,
  mend: string,
): Finding {
  if (needing.length > 0) return failure(CHECK, `${what}: mode ${needing.join(" and ")} does not work`, mend);
  if (otherwise !== "") return warning(CHECK, `${what}: ${otherwise}`, mend);
  return ok(CHECK, `${what}; only mode ${modes.join(" and ")} needs it`);
}

function installCommand({ packageName }: Program): string {
  return `apt-get install ${packageName} (or your system's package with that program)`;
}
