/**
 * `deno run -A tests/upgrade/record.ts FOLDER`: runs the kproxy of another commit, checked out in FOLDER, and writes down what it leaves:
 * the rules of each mode and its snapshot. {@linkcode RELEASE} must name the commit.
 *
 * @module
 */
import { runtimeFlags } from "../../tools/permissions.ts";
import { writeLine } from "../../tools/output.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { LabGateway } from "../support/lab_gateway.ts";
import { ListWatchServer } from "../support/list_watch_server.ts";
import { NodeLab } from "../support/node_lab.ts";
import { raw } from "../support/raw_objects.ts";
import {
  RELEASE_ARGS,
  RELEASE_MODES,
  releaseCluster,
  releaseFile,
  type ReleaseMode,
  savedRules,
} from "./release.ts";

async function record(folder: string, mode: ReleaseMode): Promise<void> {
  await using lab = await NodeLab.create();
  const { netns } = lab.node;
  await using api = new ListWatchServer();
  using _gateway = await LabGateway.open(netns, Number(new URL(api.url).port));
  const [traffic, objects] = await releaseCluster(lab);
  for (const object of objects) api.put(raw(object));
  await using kproxy = await KproxyProcess.start({
    netns,
    args: [],
    command: [
      Deno.execPath(),
      ...["run", "-q", "--config", `${folder}/deno.json`, ...runtimeFlags(), `${folder}/start.ts`],
      ...["run", "--logging-format=json", "--v=2", ...RELEASE_ARGS],
      ...[`--proxy-mode=${mode}`, `--master=${api.url}`, `--snapshot=${releaseFile("snapshot")}`],
    ],
  });
  await traffic.start();
  await traffic.end();
  await kproxy.stop();
  await Deno.writeTextFile(releaseFile(mode), await savedRules(netns, mode));
  writeLine(releaseFile(mode));
}

if (import.meta.main) { for (const mode of RELEASE_MODES) await record(Deno.args[0]!, mode); }
