/**
 * Checks the import direction of every file of `lib/` and of the doors; exits with 1 and one line per violation.
 *
 * @module
 */
import { type LayerViolation, layerViolations } from "./layers.ts";
import { projectFiles, ROOT } from "./project_files.ts";

/** The violations of the whole project. */
export async function checkLayers(root: string = ROOT): Promise<LayerViolation[]> {
  const violations: LayerViolation[] = [];
  for (const path of await projectFiles(root)) {
    if (!path.endsWith(".ts") || !/^(lib\/|main\.ts$|mod\.ts$)/.test(path)) continue;
    violations.push(...layerViolations(path, await Deno.readTextFile(`${root}/${path}`)));
  }
  return violations;
}

if (import.meta.main) {
  const violations = await checkLayers();
  const { writeLine } = await import("./output.ts");
  for (const { path, line, message } of violations) writeLine(`${path}:${line}: ${message}`);
  writeLine(
    violations.length === 0
      ? "Import direction: in order"
      : `Import direction: ${violations.length} violations`,
  );
  if (violations.length > 0) Deno.exitCode = 1;
}
