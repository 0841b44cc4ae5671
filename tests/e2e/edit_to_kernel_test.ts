/**
 * From the edit of a manifest to the change in the kernel, as the kernel tells of it: a bound that a machine with other work keeps, too.
 * `docs/benchmarks.md` has the figures of a quiet one.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { KernelWatch } from "../bench/kernel_watch.ts";
import { assertWithin, busyness } from "../support/busyness.ts";
import { LAB_MODES } from "../support/lab_mode.ts";
import { WEB_NEEDS, WEB_PODS, WebLab, webSlice } from "../support/lab_web.ts";
import { e2eTest, program } from "../support/skip.ts";

const EDITS = 20;
/** Of the median: three times that of a quiet machine. */
const LIMIT_MS = 120;
/** Of each, after which it never comes. */
const PATIENCE_MS = 300_000;

for (const mode of LAB_MODES) {
  e2eTest(
    `an edit of a manifest is in the kernel at once, ${mode.name}`,
    [...WEB_NEEDS, ...mode.needs, ...["nft", "iptables-nft"].map(program)],
    async () => {
      await using web = await WebLab.create(mode);
      const { netns } = web.lab.node;
      await netns.run(["iptables-nft", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT"]);
      await using kproxy = await web.start();
      await using watch = await KernelWatch.open(netns);
      const before = await busyness();
      const tookMs: number[] = [];
      for (let edit = 0; edit < EDITS; edit++) {
        const pods = edit % 2 === 0 ? WEB_PODS : WEB_PODS.slice(0, 2);
        const from = watch.position;
        const beganMs = Date.now();
        await kproxy.change(() => web.manifests.replace("endpoints.json", [webSlice(pods)]), "shop/web");
        tookMs.push((await watch.commit(null, from, PATIENCE_MS)).atMs - beganMs);
      }
      assertEquals(tookMs.length, EDITS);
      const median = tookMs.toSorted((a, b) => a - b)[EDITS / 2]!;
      await assertWithin(
        median,
        LIMIT_MS,
        `the median of ${tookMs.map((ms) => ms.toFixed(0)).join(", ")} ms`,
        before,
      );
    },
  );
}
