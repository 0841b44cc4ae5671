/**
 * From the last release to the present program, under connect loops over TCP and UDP and both IP families: it takes over the rules and the
 * snapshot that the release left (tests/upgrade), while no API server answers, and nothing of the old is there afterwards.
 *
 * @module
 */
import { assertEquals, assertMatch } from "@std/assert";
import { chaosMode } from "../chaos/mode.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { WEB_NEEDS } from "../support/lab_web.ts";
import { NodeLab } from "../support/node_lab.ts";
import { e2eTest, program } from "../support/skip.ts";
import {
  RELEASE,
  RELEASE_ARGS,
  RELEASE_MODES,
  releaseCluster,
  releaseFile,
  restoreRules,
} from "../upgrade/release.ts";
import { tempFolder } from "../support/temp_files.ts";

for (const mode of RELEASE_MODES) {
  const needs = [...WEB_NEEDS, program("iptables-restore"), program("nft")];
  e2eTest(
    `no connection fails on the way from release ${RELEASE}, nothing of it stays, ${mode}`,
    needs,
    async () => {
      await using lab = await NodeLab.create();
      const { netns } = lab.node;
      const [traffic] = await releaseCluster(lab);
      await using temporary = await tempFolder();
      const folder = temporary.path;
      const snapshot = `${folder}/snapshot`;
      const text = await Deno.readTextFile(releaseFile("snapshot"));
      await Deno.writeTextFile(snapshot, text, { mode: 0o600 });
      // The listener is gone.
      const [server] = /http:[^"]+/.exec(text)!;
      const args = [
        ...RELEASE_ARGS,
        `--proxy-mode=${mode}`,
        `--master=${server}`,
        `--snapshot=${snapshot}`,
      ];
      const rules = async (): Promise<string> => (await chaosMode(mode).rules(netns)).join("\n");
      await restoreRules(netns, mode, await Deno.readTextFile(releaseFile(mode)));
      await traffic.start();
      let upgraded = "";
      {
        await using kproxy = await KproxyProcess.start({ netns, args });
        assertMatch(kproxy.log, /not answered yet, serving from the snapshot/);
        await traffic.answered(60);
        await traffic.askKept("after the upgrade", () => kproxy.log);
        upgraded = await rules();
        assertEquals((await kproxy.stop()).code, 0);
      }
      await traffic.end();
      await netns.run(["nft", "flush", "ruleset"]);
      await using _fresh = await KproxyProcess.start({ netns, args });
      assertEquals(upgraded, await rules());
    },
  );
}
