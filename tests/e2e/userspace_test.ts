/**
 * Mode userspace with real packets: connect loops through reloads and changes of mode, what an end of the process costs, and what a node
 * whose rules lead to kproxy itself must bear.
 *
 * @module
 */
import { WEB_NEEDS } from "../support/lab_web.ts";
import { e2eTest, program } from "../support/skip.ts";
import { walk } from "../support/switch_lab.ts";

e2eTest(
  "no connection fails while kproxy in mode userspace takes another configuration",
  [...WEB_NEEDS, program("curl")],
  (t) => walk(t, "userspace", [{ to: "userspace", by: "live reload" }, { to: "userspace", by: "reload" }]),
);

e2eTest(
  "no connection fails while kproxy goes from mode userspace to mode iptables and back by a reload",
  [...WEB_NEEDS, program("curl")],
  (t) =>
    walk(
      t,
      "userspace",
      (["iptables", "userspace", "iptables"] as const).map((to) => ({ to, by: "reload" })),
    ),
);
