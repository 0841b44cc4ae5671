/**
 * Runs commands of kproxy as on another system: the runtime names that system, and whatever only a node has is out of reach. Its
 * arguments are the name and the commands as JSON; prints their outcomes as JSON.
 *
 * @module
 */
import type { Io } from "../../lib/cli/io.ts";
import type { Run } from "./kproxy.ts";

const [os = "", commands = "[]"] = Deno.args;
const refuse = (what: string): () => never => () => {
  throw new Error(`${what} was asked for`);
};
Object.defineProperties(Deno, {
  build: { value: { ...Deno.build, os } },
  Command: { value: refuse("A program") },
  networkInterfaces: { value: refuse("The list of interfaces") },
  osRelease: { value: refuse("The kernel's release") },
  uid: { value: () => null },
});
// What is looked at while modules load counts, too.
const { runCli } = await import("../../lib/cli/cli.ts");

const runs: Run[] = [];
for (const argv of JSON.parse(commands) as readonly (readonly string[])[]) {
  let [out, err] = ["", ""];
  const log = { write: (text: string) => void (err += text) };
  const code = await runCli(argv, {
    out: (text) => Promise.resolve(void (out += text)),
    err: (text) => void (err += text),
    log: { out: log, err: log, flush: () => Promise.resolve() } as unknown as Io["log"],
  });
  runs.push({ code, out, err });
}
await Deno.stdout.write(new TextEncoder().encode(JSON.stringify(runs)));
