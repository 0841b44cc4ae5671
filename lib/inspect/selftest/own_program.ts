/**
 * How this program is started again: as itself where it is compiled, by the runtime where it runs from source.
 *
 * @module
 */
import { OWN_PROGRAMS } from "../../kernel/own_programs.ts";

/** What a child may do: nothing but use the network, or what `kproxy run` may, without files. */
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
  const config = await configBeside(main);
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
    ...(config === null ? [] : ["--config", config]),
    "--allow-net",
    ...(rights === "network"
      ? []
      : [`--allow-run=${OWN_PROGRAMS.join(",")}`, `--allow-sys=${SYSTEM_FACTS.join(",")}`]),
    program,
  ];
}

/** The runtime looks for it from the working folder on. */
async function configBeside(main: string): Promise<string | null> {
  if (!main.startsWith("file:")) return null;
  const config = decodeURIComponent(new URL("./deno.json", main).pathname);
  try {
    await Deno.stat(config);
    return config;
  } catch (error) {
    // A bundle needs none.
    if (error instanceof Deno.errors.NotFound) return null;
    throw error;
  }
}
