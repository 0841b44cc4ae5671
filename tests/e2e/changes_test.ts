/**
 * Edits of manifests while clients connect (`tests/support/web_changes.ts`). IPVS mode goes through the same in
 * `tests/lab/ipvs_suites_in_uml.ts`.
 *
 * @module
 */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { LAB_MODES } from "../support/lab_mode.ts";
import { WEB_NEEDS, WEB_PODS, WebLab, webSlice } from "../support/lab_web.ts";
import { e2eTest } from "../support/skip.ts";
import {
  answering,
  CLUSTER,
  endpointsComeAndGo,
  servers,
  servicesComeAndGo,
  zoneDecides,
} from "../support/web_changes.ts";

const [A, B, C] = WEB_PODS;

for (const mode of LAB_MODES) {
  const needs = [...WEB_NEEDS, ...mode.needs];

  e2eTest(
    `endpoints come and go while clients connect, and no connection fails, ${mode.name}`,
    needs,
    async (t) => {
      await using web = await WebLab.create(mode);
      await endpointsComeAndGo(t, web);
    },
  );

  e2eTest(
    `Services come, change and go, and the others notice nothing, ${mode.name}`,
    needs,
    async (t) => {
      await using web = await WebLab.create(mode);
      await servicesComeAndGo(t, web);
    },
  );

  e2eTest(
    `the node's zone decides which hints count, also when it changes, ${mode.name}`,
    needs,
    async () => {
      await using web = await WebLab.create(mode);
      await zoneDecides(web);
    },
  );
}

e2eTest("a manifest that is broken leaves the last good one in force", WEB_NEEDS, async () => {
  await using web = await WebLab.create();
  await using kproxy = await web.start();
  const { manifests } = web;
  const loop = await web.loop(web.pod, CLUSTER);
  const broken: readonly [text: string, says: string][] = [
    ["kind: [", "cannot be parsed"],
    [JSON.stringify({ ...webSlice([C]), addressType: "IPv7" }), "addressType: must be"],
    [JSON.stringify(webSlice(["10.244.0.999"])), "10.244.0.999"],
  ];
  for (const [text, says] of broken) {
    const from = kproxy.lines.length;
    await manifests.replaceText("endpoints.json", text);
    await kproxy.until(
      `an error about ${text}`,
      (lines) => lines.some(({ msg, err }) => msg === "Object refused" && String(err).includes(says)),
      from,
    );
    assertStringIncludes(JSON.stringify(kproxy.lines.slice(from)), "/endpoints.json:1 (document 1)");
    assertEquals(await answering(loop), servers([A, B]));
  }
  await kproxy.change(() => manifests.overwrite("endpoints.json", [webSlice([C])]), "shop/web");
  assertEquals(await answering(loop), servers([C]));
  await loop.stopUnbroken();
});
