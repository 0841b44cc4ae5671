/**
 * Whether a build of kproxy works: it is started as users do, and must say what the sources say.
 *
 * @module
 */
import { runtimeFlags } from "../permissions.ts";
import { ROOT } from "../project_files.ts";

const OBJECTS = `${ROOT}/tests/golden/mixed-dual-stack/objects.yaml`;
const MODES = ["iptables", "ipvs", "nftables"] as const;

/** What a build must say of itself. */
export interface Identity {
  readonly version: string;
  readonly commit: string;
}

/** What is wrong with the build that `argv` starts; empty if it works. */
export async function smokeProblems(
  argv: readonly string[],
  { version, commit }: Identity,
): Promise<string[]> {
  const source = [
    Deno.execPath(),
    "run",
    "-q",
    `--config=${ROOT}/deno.json`,
    ...runtimeFlags(),
    `${ROOT}/main.ts`,
  ];
  const problems: string[] = [];
  const told = await run([...argv, "version", "--output=json"]);
  const facts = isJson(told) ? JSON.parse(told) as Partial<Identity> : {};
  if (facts.version !== version || facts.commit !== commit) {
    problems.push(`version says ${told.trim()}, wanted ${version} of ${commit}`);
  }
  const commands = [
    ["help", "run"],
    ...MODES.map((mode) => [
      "render",
      `--proxy-mode=${mode}`,
      "--hostname-override=node-a",
      `--manifests=${OBJECTS}`,
    ]),
  ];
  for (const command of commands) {
    const [built, wanted] = [await run([...argv, ...command]), await run([...source, ...command])];
    if (built !== wanted) problems.push(`"${command.join(" ")}" says other things than the sources`);
  }
  return problems;
}

function isJson(text: string): boolean {
  return text.startsWith("{");
}

/** What it printed; how it failed, if it did. */
async function run([program = "", ...args]: readonly string[]): Promise<string> {
  try {
    const { code, stdout, stderr } = await new Deno.Command(program, {
      args,
      env: { NO_COLOR: "1" },
      stdin: "null",
    }).output();
    const decoder = new TextDecoder();
    return code === 0 ? decoder.decode(stdout) : `status ${code}: ${decoder.decode(stderr)}`;
  } catch (error) {
    return `cannot be started: ${error instanceof Error ? error.message : String(error)}`;
  }
}
