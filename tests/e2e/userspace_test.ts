/**
 * Mode userspace with real packets: connect loops through changes of endpoints, reloads and changes of mode.
 *
 * @module
 */
import { USERSPACE } from "../support/lab_mode.ts";
import { WEB_NEEDS, WebLab } from "../support/lab_web.ts";
import { e2eTest, program } from "../support/skip.ts";
import { walk } from "../support/switch_lab.ts";
import { endpointsComeAndGo, zoneDecides } from "../support/web_changes.ts";
import { spreadsEvenly } from "../support/web_spread.ts";

type Story = readonly [name: string, tell: (t: Deno.TestContext, web: WebLab) => Promise<void>];

const STORIES: readonly Story[] = [
  ["endpoints come and go while clients connect, and no connection fails", endpointsComeAndGo],
  ["the node's zone decides which hints count, also when it changes", (_, web) => zoneDecides(web)],
  ["connections go round the endpoints", spreadsEvenly],
];

for (const [name, tell] of STORIES) {
  e2eTest(`${name}, userspace`, WEB_NEEDS, async (t) => {
    await using web = await WebLab.create(USERSPACE);
    await tell(t, web);
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
