/**
 * The demo: the main job of kproxy on real packets. `deno task demo` installs what is missing, builds a small network in
 * namespaces of its own, shows a Service at work and under edits, and leaves nothing behind.
 *
 * Exit status: 0 if all was as it should be, 1 if not, 2 where it cannot make namespaces, 128 + its number after a signal.
 *
 * @module
 */
import { ChildDeath } from "./demo/child.ts";
import { kproxyArgv } from "./demo/kproxy_process.ts";
import { play } from "./demo/play.ts";
import { type Screen, standardScreen } from "./demo/screen.ts";
import { runInUserNamespace } from "./demo/user_namespace.ts";
import { DemoError, runProgram, World } from "./demo/world.ts";
import { writeErrorLine, writeLine } from "./output.ts";
import { ROOT } from "./project_files.ts";
import { installPackages, NODE_PACKAGES } from "./setup.ts";

const SIGNALS = { SIGHUP: 1, SIGINT: 2, SIGTERM: 15 } as const;
type SignalName = keyof typeof SIGNALS;

/** A signal asked the demo to end. */
class Interrupted extends Error {
  override readonly name = "Interrupted";

  constructor(readonly signal: SignalName) {
    super(`Stopped by ${signal}`);
  }
}

/** Installs, plays, tidies up, and returns the exit status. */
async function main(): Promise<number> {
  if (Deno.build.os !== "linux") {
    writeErrorLine(`The demo needs Linux's network namespaces; this is ${Deno.build.os}`);
    return 2;
  }
  const missing = await installPackages(NODE_PACKAGES);
  if (missing.length > 0) return 1;
  // The PATH of users has no folders for root's programs.
  Deno.env.set("PATH", `${Deno.env.get("PATH") ?? ""}:/usr/sbin:/sbin`);
  await fetchLibraries();
  if (Deno.uid() !== 0) return await runInUserNamespace(`${ROOT}/tools/demo.ts`);
  return await perform(new World(), standardScreen());
}

/** Brings kproxy's libraries into the runtime's cache: from inside its namespace it could reach no registry. */
async function fetchLibraries(): Promise<void> {
  const [deno = "", run = "", ...rest] = kproxyArgv("version");
  try {
    await runProgram([deno, run, "--cached-only", ...rest]);
  } catch (error) {
    if (!(error instanceof DemoError)) throw error;
    writeLine("Downloading kproxy's libraries from the npm registry");
    await runProgram([deno, "cache", "-q", "--config", `${ROOT}/deno.json`, `${ROOT}/main.ts`]);
  }
}

async function perform(world: World, screen: Screen): Promise<number> {
  const handlers = (Object.keys(SIGNALS) as SignalName[]).map((name) =>
    [name, () => world.fail(new Interrupted(name))] as const
  );
  for (const [name, handler] of handlers) Deno.addSignalListener(name, handler);
  // What nobody waited for ends the demo too, but in order.
  globalThis.addEventListener("unhandledrejection", (event) => {
    event.preventDefault();
    world.fail(event.reason);
  });
  const problems: string[] = [];
  let status = 1;
  try {
    await play(world, screen, problems);
    showProblems(screen, problems);
    status = problems.length === 0 ? 0 : 1;
  } catch (error) {
    screen.close();
    if (!(error instanceof Interrupted)) showProblems(screen, problems);
    // What fails because of a signal or a dead program is not the reason.
    status = showFailure(world.failure ?? error);
  } finally {
    screen.close();
    const left = await world.close();
    for (const problem of left) writeErrorLine(`Left behind: ${problem}`);
    if (left.length > 0 && status === 0) status = 1;
    for (const [name, handler] of handlers) Deno.removeSignalListener(name, handler);
  }
  if (status === 0) {
    writeLine(
      `\nAll as it should be, in ${screen.seconds.toFixed(1)} s; namespaces, programs and files are gone`,
    );
  }
  return status;
}

function showProblems(screen: Screen, problems: readonly string[]): void {
  if (problems.length === 0) return;
  screen.heading("Not as it should be");
  for (const problem of problems) screen.line(`  ${screen.tone("bad", problem)}`);
}

function showFailure(error: unknown): number {
  if (error instanceof Interrupted) {
    writeErrorLine(error.message);
    return 128 + SIGNALS[error.signal];
  }
  writeErrorLine(`The demo failed: ${error instanceof Error ? error.message : String(error)}`);
  if (error instanceof ChildDeath && error.lastLines.length > 0) {
    writeErrorLine("Its last lines:");
    for (const line of error.lastLines) writeErrorLine(`  ${line}`);
  }
  return 1;
}

if (import.meta.main) {
  try {
    Deno.exitCode = await main();
  } catch (error) {
    Deno.exitCode = showFailure(error);
  }
}
