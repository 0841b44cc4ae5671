/**
 * Judges the files that objects come from.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../config/types.ts";
import { readManifests } from "../../source/files/files.ts";
import { counted } from "../../text/words.ts";
import { stateOfObjects } from "../desired/desired.ts";
import { failure, type Finding, ok, warning } from "./finding.ts";
import { judgeUnserved } from "./judge/unserved.ts";
import { rejectedText } from "./report.ts";

const CHECK = "manifests";
/** What is piped in can be read once, and not by this check. */
const STDIN_PATH = "-";

/**
 * None if no files are named.
 *
 * @param nodeName by its addresses those of Services are judged; null: a running kproxy has told of them
 */
export async function examineManifests(
  config: KubeProxyConfiguration,
  nodeName: string | null,
): Promise<readonly Finding[]> {
  const { manifests } = config.kproxy;
  if (manifests.length === 0 || manifests.includes(STDIN_PATH)) return [];
  const from = manifests.join(", ");
  try {
    const { objects, problems } = await readManifests(manifests);
    const unserved = nodeName === null ? null : stateOfObjects(objects, nodeName, () => {}, config).unserved;
    const places = problems.map(({ where, object, message }) => `${where}: ${object}: ${message}`);
    return [
      problems.length === 0
        ? ok(CHECK, `${counted(objects.length, "object")} in ${from}`)
        : warning(CHECK, rejectedText(places), "mend these objects, nobody serves them"),
      ...(unserved === null ? [] : judgeUnserved({ count: unserved.length, destinations: unserved })),
    ];
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    return [failure(CHECK, error.message, "name files or folders that are there: --manifests")];
  }
}
