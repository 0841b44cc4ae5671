/**
 * Starts kproxy as the user nobody.
 *
 * @module
 */
import { ROOT } from "../../tools/project_files.ts";
import type { RunAs } from "./kproxy_process.ts";

/** User id of nobody. */
export const NOBODY = 65534;

/** The option of `setpriv` that leaves these capabilities and no other. */
export function boundingSet(capabilities: readonly string[]): string {
  return `--bounding-set=${["-all", ...capabilities.map((name) => `+${name}`)].join(",")}`;
}

/** Runs `work` with a prefix that becomes the user nobody with these capabilities: what only root may see is mounted where nobody may look. */
export async function asNobody(
  capabilities: readonly string[],
  work: (as: RunAs) => Promise<void>,
): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-nobody-" });
  try {
    await Deno.chmod(folder, 0o755);
    for (const name of ["cache", "project"]) await Deno.mkdir(`${folder}/${name}`);
    await Deno.writeTextFile(`${folder}/deno`, "");
    const mounts = [
      [Deno.execPath(), "deno"],
      [await denoDir(), "cache"],
      [ROOT, "project"],
    ].map(([from, to]) => `mount --bind '${from}' '${folder}/${to}'`);
    const kept = capabilities.map((name) => `+${name}`).join(",");
    const drop = `setpriv --reuid ${NOBODY} --regid ${NOBODY} --clear-groups ${boundingSet(capabilities)} ` +
      (kept === "" ? "--inh-caps=-all" : `--inh-caps=${kept} --ambient-caps=${kept}`);
    // `ip netns exec` gives every process a mount namespace.
    const script = [...mounts, "cd /", `DENO_DIR='${folder}/cache' HOME=/ exec ${drop} "$0" "$@"`].join(
      " && ",
    );
    await work({ prefix: ["sh", "-c", script], deno: `${folder}/deno`, root: `${folder}/project` });
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

async function denoDir(): Promise<string> {
  const { stdout } = await new Deno.Command(Deno.execPath(), { args: ["info", "--json"] }).output();
  const facts: { readonly denoDir: string } = JSON.parse(new TextDecoder().decode(stdout));
  return facts.denoDir;
}
