/**
 * The program `sysctl` of procps-ng, in memory; `tests/kernel` compares it with the real one.
 *
 * @module
 */
import type { ExecResult } from "../../lib/kernel/exec.ts";

/** Errors about settings that cannot be read or written. */
export interface SysctlRefusals {
  readonly read?: Readonly<Record<string, string>>;
  readonly write?: Readonly<Record<string, string>>;
}

/** Runs `sysctl` with these arguments: `[-n] NAME...` or `-w NAME=VALUE`, which changes `values`. */
export function fakeSysctl(
  values: Record<string, string>,
  args: readonly string[],
  { read = {}, write = {} }: SysctlRefusals = {},
): ExecResult {
  const bare = args[0] === "-n";
  const isWrite = args[0] === "-w";
  const lines: string[] = [];
  const problems: string[] = [];
  let missing = 0;
  for (const word of bare || isWrite ? args.slice(1) : args) {
    const [name = "", value = ""] = word.split("=");
    const refusal = isWrite ? write[name] : read[name];
    if (!(name in values)) {
      const path = `/proc/sys/${name.replaceAll(".", "/")}`;
      missing++;
      problems.push(`sysctl: cannot stat ${path}: No such file or directory`);
    } else if (refusal !== undefined) problems.push(refusal);
    else if (isWrite) values[name] = value;
    if (name in values && refusal === undefined) {
      lines.push(bare ? values[name] ?? "" : `${name} = ${values[name] ?? ""}`);
    }
  }
  // The status counts unreadable settings; for a refused write, Debian 12's version exits with 0.
  const code = isWrite ? missing : problems.length;
  const text = (parts: readonly string[]): string => parts.map((part) => `${part}\n`).join("");
  return { code, stdout: text(lines), stderr: text(problems) };
}
