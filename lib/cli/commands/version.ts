/**
 * `kproxy version`, and `--version` of every command.
 *
 * @module
 */
import { builtFrom, rawVersion, type VersionFacts, versionLine, versionLines } from "../../node/version.ts";
import type { ParsedFlags } from "../flags/parse_args.ts";
import type { Io } from "../io.ts";

/** Prints the version with the commit, as text or JSON. */
export async function versionCommand(flags: ParsedFlags, io: Io): Promise<number> {
  const form = flags.outputForm("text");
  const facts = await versionFacts();
  await io.out(`${form === "json" ? rawVersion(facts) : versionLines(facts).join("\n")}\n`);
  return 0;
}

/** Prints the line of `--version`, or of `--version=raw`. */
export async function printVersion(form: "true" | "raw", io: Io): Promise<number> {
  await io.out(`${form === "raw" ? rawVersion(await versionFacts()) : versionLine()}\n`);
  return 0;
}

/** Facts about this build of kproxy. */
export async function versionFacts(): Promise<VersionFacts> {
  return {
    commit: await builtFrom(),
    deno: Deno.version.deno,
    platform: `${Deno.build.os}/${Deno.build.arch}`,
  };
}
