/**
 * How this program is started again: as itself where it is compiled, by the runtime where it runs from source.
 *
 * @module
 */
import { OWN_PROGRAMS } from "../../kernel/own_programs.ts";

/** What a child may do: nothing but use the network, or what `kproxy run` may, without files but those of a bundle. */
export type ChildRights = "network" | "node";

/** A program to start again, with the arguments that come before its own. */
export type OwnProgram = (rights: ChildRights) => readonly string[];

const SYSTEM_FACTS = ["hostname", "cpus", "networkInterfaces", "osRelease", "uid"];

/**
 * The program that runs.
 *
 * @param main the module that was started. @default {Deno.mainModule}
 */
export async function ownProgram(main: string = Deno.mainModule): Promise<OwnProgram> {
  const path = Deno.execPath();
  // It carries its permissions, which are those of `kproxy run`.
  if (Deno.build.standalone) return () => [path];
  const place = await placeOf(main);
  // `start.ts` reads what it loads, which needs a right that a child does not get.
  const program = main.replace(/\/start\.ts$/, "/main.ts");
  return (rights) => [
    path,
    "run",
    "-q",
    "--no-prompt",
    "--ignore-env",
    // Inside a namespace there is nobody to download anything from.
    "--cached-only",
    ...place,
    "--allow-net",
    ...(rights === "network"
      ? []
      : [`--allow-run=${OWN_PROGRAMS.join(",")}`, `--allow-sys=${SYSTEM_FACTS.join(",")}`]),
    program,
  ];
}

/** Flags that tell the runtime where the program's own things are; it would look for a configuration from the working folder on. */
async function placeOf(main: string): Promise<readonly string[]> {
  if (!main.startsWith("file:")) return [];
  const pathOf = (relative: string): string => decodeURIComponent(new URL(relative, main).pathname);
  const config = pathOf("./deno.json");
  try {
    await Deno.stat(config);
    return ["--config", config];
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
  // A bundle needs none, and reads its files when it comes to need them.
  return ["--no-config", `--allow-read=${pathOf(".")}`];
}
