/**
 * Mode userspace with real packets: connect loops through changes of endpoints, restarts, reloads and changes of mode.
 *
 * @module
 */
import { assertEquals, assertNotEquals } from "@std/assert";
import { service } from "../flows/objects.ts";
import type { ConnectLoop } from "../support/connect_loop.ts";
import type { LogLine } from "../support/kproxy_process.ts";
import { USERSPACE } from "../support/lab_mode.ts";
import { WEB_NEEDS, WEB_PODS, WebLab, webSlice } from "../support/lab_web.ts";
import { e2eTest, program } from "../support/skip.ts";
import { walk } from "../support/switch_lab.ts";
import { CLUSTER, endpointsComeAndGo, NODE_PORT, servers } from "../support/web_changes.ts";
import { spreadsEvenly } from "../support/web_spread.ts";

/** How often rules are looked at. */
const OFTEN = "--iptables-sync-period=1s";

function says({ msg, services }: LogLine, service: string): boolean {
  return msg === "Synced rules" && Array.isArray(services) && services.includes(service);
}

type Story = readonly [name: string, run: (t: Deno.TestContext, web: WebLab) => Promise<void>];

const STORIES: readonly Story[] = [
  ["endpoints come and go while clients connect, and no connection fails", endpointsComeAndGo],
  ["the next kproxy starts before the former one ends, and no connection fails", nextBeforeFormerEnds],
  ["connections go round the endpoints", spreadsEvenly],
];

/** The next kproxy is started before the former one ends, as a rolling update with a surge does; both follow changes meanwhile. */
async function nextBeforeFormerEnds(_: Deno.TestContext, web: WebLab): Promise<void> {
  const [a, b, c] = WEB_PODS;
  const loops: ConnectLoop[] = [];
  await using next = await (async () => {
    await using former = await web.start([OFTEN]);
    loops.push(await web.loop(web.pod, CLUSTER), await web.loop(web.client, NODE_PORT));
    await loops[0]!.answeredFor(400);
    const own = await web.rules();
    const next = await web.start();
    assertNotEquals(await web.rules(), own, "the next one leads to its own ports");
    const led = await web.rules();
    // Whether it looks or has something to write, the former one leaves the rules to the next.
    await former.untilMessage("Another kproxy leads Services to its own ports, its rules are left alone");
    const more = service("shop/more", { clusterIP: "10.96.0.9", ports: ["http:80"] });
    await next.change(() => web.manifests.replace("more.json", [more]), "shop/more");
    await former.until("the same change", (lines) => lines.some((line) => says(line, "shop/more")));
    await next.change(() => web.manifests.remove("more.json"), "shop/more");
    await former.until("its end", (lines) => lines.filter((line) => says(line, "shop/more")).length > 1);
    assertEquals(await web.rules(), led);
    await loops[0]!.answeredFor(400);
    assertEquals((await former.stop("SIGTERM")).code, 0);
    return next;
  })();
  await loops[0]!.answeredFor(400);
  await next.change(() => web.manifests.replace("endpoints.json", [webSlice([c])]), "shop/web");
  await loops[0]!.answeredFor(400);
  for (const loop of loops) {
    const { byServer } = await loop.stopUnbroken();
    assertEquals(Object.keys(byServer).sort(), servers([a, b, c]));
  }
}

for (const [name, run] of STORIES) {
  e2eTest(`${name}, userspace`, WEB_NEEDS, async (t) => {
    await using web = await WebLab.create(USERSPACE);
    await run(t, web);
  });
}

e2eTest(
  "no connection fails while kproxy in mode userspace takes another configuration",
  [...WEB_NEEDS, program("curl")],
  (t) =>
    walk(
      t,
      "userspace",
      [{ to: "userspace", by: "live reload" }, { to: "userspace", by: "reload" }],
      USERSPACE.pace,
    ),
);

e2eTest(
  "no connection fails while kproxy goes from mode userspace to mode iptables and back by a reload",
  [...WEB_NEEDS, program("curl")],
  (t) =>
    walk(
      t,
      "userspace",
      (["iptables", "userspace", "iptables"] as const).map((to) => ({ to, by: "reload" })),
      USERSPACE.pace,
    ),
);
