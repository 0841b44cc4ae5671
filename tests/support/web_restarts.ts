/**
 * Ends and starts of kproxy while clients connect: the rules stay, the next one takes them over, and no connection fails. The stories
 * go through any mode, each on a lab as it was made.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { WEB_PODS, type WebLab, webSlice } from "./lab_web.ts";
import { CLUSTER, NODE_PORT, servers } from "./web_changes.ts";

const [A, B, C] = WEB_PODS;

/** No connection fails while kproxy is ended by this signal and started again. */
export async function endAndStart(web: WebLab, signal: Deno.Signal): Promise<void> {
  const loops = [];
  let before = "";
  {
    await using kproxy = await web.start();
    loops.push(await web.loop(web.pod, CLUSTER), await web.loop(web.client, NODE_PORT));
    await loops[0]!.answeredFor(400);
    before = await web.rules();
    assertEquals((await kproxy.stop(signal)).code, 0);
    assert(kproxy.log.includes("Stopping"), kproxy.log);
  }
  assertEquals(await web.rules(), before, "rules after the end");
  await loops[0]!.answeredFor(400);
  {
    await using kproxy = await web.start();
    assertEquals(await web.rules(), before, "rules after the new start");
    await loops[0]!.answeredFor(400);
    // It is not only there, it works.
    await kproxy.change(() => web.manifests.replace("endpoints.json", [webSlice([C])]), "shop/web");
    await loops[0]!.answeredFor(400);
  }
  for (const loop of loops) {
    const { byServer } = await loop.stopUnbroken();
    assertEquals(Object.keys(byServer).sort(), servers([A, B, C]));
  }
}

/** What changed while kproxy was away is in force after its start, without a gap. */
export async function catchUp(web: WebLab): Promise<void> {
  {
    await using kproxy = await web.start();
    await kproxy.stop("SIGKILL");
  }
  const running = await web.loop(web.pod, CLUSTER);
  await running.answeredFor(250);
  await web.manifests.replace("endpoints.json", [webSlice([B, C])]);
  await using _kproxy = await web.start();
  // What began before may still be on its way.
  await running.resting(() => Promise.resolve());
  const { byServer } = await running.report();
  await running.answeredFor(800);
  const later = (await running.stopUnbroken()).byServer;
  const [ofA, ofC] = servers([A, C]) as [string, string];
  assertEquals(later[ofA], byServer[ofA]);
  assert((later[ofC] ?? 0) > 0);
}
