/**
 * Judges the files that objects come from.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../config/types.ts";
import { readManifests } from "../../source/files/files.ts";
import { counted } from "../../text/words.ts";
import { failure, type Finding, ok, warning } from "./finding.ts";
import { rejectedText } from "./report.ts";

const CHECK = "manifests";
/** What is piped in can be read once, and not by this check. */
const STDIN_PATH = "-";

/** None if no files are named. */
export async function examineManifests(
  { manifests, endpointsSource }: KubeProxyConfiguration["kproxy"],
): Promise<readonly Finding[]> {
  if (manifests.length === 0 || manifests.includes(STDIN_PATH)) return [];
  const from = manifests.join(", ");
  try {
    const { objects, problems } = await readManifests(manifests, { endpointsSource });
    if (problems.length === 0) return [ok(CHECK, `${counted(objects.length, "object")} in ${from}`)];
    const places = problems.map(({ where, object, message }) => `${where}: ${object}: ${message}`);
    return [warning(CHECK, rejectedText(places), "mend these objects, nobody serves them")];
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    return [failure(CHECK, error.message, "name files or folders that are there: --manifests")];
  }
}
