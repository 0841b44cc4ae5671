import { assertEquals } from "@std/assert";
import { ROOT } from "../../../tools/project_files.ts";
import { ownProgram } from "./agent.ts";

/** Whether a program that may only use the network starts at all, and what it says. */
async function version(main: string): Promise<readonly [code: number, told: string]> {
  const [program = "", ...args] = (await ownProgram(main))("network");
  const { code, stdout, stderr } = await new Deno.Command(program, { args: [...args, "--version"] }).output();
  return [code, new TextDecoder().decode(code === 0 ? stdout : stderr).slice(0, 7)];
}

Deno.test("a child with the network alone starts, by whichever of the doors its parent did", async () => {
  for (const door of ["main.ts", "start.ts"]) {
    assertEquals(await version(`file://${ROOT}/${door}`), [0, "kproxy "], door);
  }
});
