/**
 * Runs kproxy as users do, with exactly the permissions it is shipped with: the bundle that the test task has built, which starts in a
 * third of the time, else `start.ts`.
 *
 * @module
 */
import { askingIn } from "../support/netns.ts";
import { runtimeFlags } from "../../tools/permissions.ts";
import { ROOT } from "../../tools/project_files.ts";
import { testBundle } from "../support/bundle_folder.ts";
import { withFolder } from "../support/temp_files.ts";

/** What one run left behind. */
export interface Run {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** How kproxy is started. */
export interface RunOptions {
  /** Working folder. */
  readonly cwd?: string;
  readonly stdin?: string;
  /** Network namespace to run in. */
  readonly netns?: string;
  /** Added to the environment. */
  readonly env?: Readonly<Record<string, string>>;
}

/**
 * The arguments of `deno` that start kproxy, without kproxy's own.
 *
 * @param root where its source is, if it is that
 */
export function kproxyArgv(root: string = ROOT): string[] {
  const bundle = testBundle();
  return bundle === undefined
    ? ["run", "-q", "--config", `${root}/deno.json`, ...runtimeFlags(), `${root}/start.ts`]
    : bundleArgv(bundle);
}

/** Those that start it from a bundle. */
export function bundleArgv(main: string): string[] {
  return ["run", "-q", "--no-config", "--cached-only", ...runtimeFlags(), main];
}

/** Runs kproxy to its end. */
export async function kproxy(args: readonly string[], options: RunOptions = {}): Promise<Run> {
  const { netns } = options;
  const argv = [Deno.execPath(), ...kproxyArgv(), ...(netns === undefined ? args : askingIn(netns, args))];
  const [program, ...rest] = netns === undefined ? argv : ["ip", "netns", "exec", netns, ...argv];
  const child = new Deno.Command(program ?? "", {
    args: rest,
    stdin: options.stdin === undefined ? "null" : "piped",
    stdout: "piped",
    stderr: "piped",
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    env: options.env ?? {},
  }).spawn();
  const output = child.output();
  if (options.stdin !== undefined) {
    const writer = child.stdin.getWriter();
    await writer.write(new TextEncoder().encode(options.stdin));
    await writer.close();
  }
  const { code, stdout, stderr } = await output;
  const decoder = new TextDecoder();
  return { code, out: decoder.decode(stdout), err: decoder.decode(stderr) };
}

/** The line that says who has changed the node. */
export const AUDITED = /^I\d{4} \S+ +\d+ audit\.ts:\d+\] "Audit" action="(?:repair|cleanup)" uid=0 .*\n/m;

/** What a command has said beside that it has changed the node. @throws {Error} if it has not said that */
export function besideAudit({ err }: Run): string {
  if (!AUDITED.test(err)) throw new Error(`no audit line says which user changed the node: ${err}`);
  return err.replace(AUDITED, "");
}

/** What `kproxy doctor` says of what it had no time for. */
const OUT_OF_TIME = /it took longer than 6 s|was still running after 6 s/;

/** Runs `kproxy doctor`, again if its own limit was too short for a machine that stood still meanwhile. */
export async function inTime(doctor: () => Promise<Run>): Promise<Run> {
  let run = await doctor();
  for (let tries = 0; tries < 4 && OUT_OF_TIME.test(run.out); tries++) run = await doctor();
  return run;
}

/** Runs `work` in a fresh folder and removes it whatever happens. */
export async function inFolder<T>(
  files: Readonly<Record<string, string>>,
  work: (folder: string) => Promise<T>,
): Promise<T> {
  return await withFolder(async (folder) => {
    for (const [name, text] of Object.entries(files)) await Deno.writeTextFile(`${folder}/${name}`, text);
    return await work(folder);
  });
}
