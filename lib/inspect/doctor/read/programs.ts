/**
 * Asks the programs for their versions.
 *
 * @module
 */
import { ExecError } from "../../../errors.ts";
import type { Exec } from "../../../kernel/exec.ts";
import { type Fact, type FactLimit, readFact } from "../fact.ts";
import { type ProgramFact, PROGRAMS } from "../programs.ts";

/** By name; one that hangs costs only its own answer. */
export async function readPrograms(
  exec: Exec,
  limit: FactLimit,
): Promise<ReadonlyMap<string, Fact<ProgramFact>>> {
  return new Map(
    await Promise.all(PROGRAMS.map(async ({ name, versionArgs }): Promise<[string, Fact<ProgramFact>]> => [
      name,
      await readFact(() => readVersion(exec, [name, ...versionArgs]), limit),
    ])),
  );
}

async function readVersion(exec: Exec, argv: readonly string[]): Promise<ProgramFact> {
  try {
    // Some print it with a status, or among their errors: ipvsadm where the kernel has no IPVS.
    const { code, stdout, stderr } = await exec.run(argv);
    const [version = null] = code === 0 ? /\d+(?:\.\d+)+/.exec(`${stdout}\n${stderr}`) ?? [] : [];
    return { kind: "found", version };
  } catch (error) {
    if (!(error instanceof ExecError && error.isMissing())) throw error;
    return { kind: error.cause instanceof Deno.errors.NotFound ? "missing" : isForbidden(error) };
  }
}

function isForbidden({ cause }: ExecError): "forbidden" | "missing" {
  const { NotCapable, PermissionDenied } = Deno.errors;
  return cause instanceof NotCapable || cause instanceof PermissionDenied ? "forbidden" : "missing";
}
