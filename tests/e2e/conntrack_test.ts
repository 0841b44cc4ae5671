/**
 * Thousands of stale UDP flows at once, in the kernel's own table. What clients notice is in `conntrack_run_test.ts`.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { Conntrack } from "../../lib/kernel/conntrack.ts";
import { ChangeTracker } from "../../lib/model/change_tracker.ts";
import { silentLogger } from "../../lib/observe/log.ts";
import { decodeObject } from "../../lib/source/decode/decode.ts";
import { type FlowReconciliation, StaleFlowReconciler } from "../../lib/sync/stale_flows.ts";
import { service, slice } from "../flows/objects.ts";
import { assertWithin } from "../support/busyness.ts";
import { withNetns } from "../support/netns.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";
import { until } from "../support/until.ts";

const NEEDS = [ROOT_NAMESPACES, ...["ip", "conntrack"].map(program)];

e2eTest(
  "of 20,000 flows the 10,000 that are stale go at once, in two runs of the program",
  NEEDS,
  async () => {
    await withNetns(async ({ exec, run }) => {
      const services = 100;
      const frontends = Array.from({ length: services }, (_, i) => `10.96.0.${i}`);
      const line = (i: number, reply: string): string => {
        const client = `10.1.${i >> 8}.${i & 255}`;
        return `-A -t 3000 -u SEEN_REPLY -p udp -s ${client} -d ${
          frontends[i % services]
        } -r ${reply} -q ${client} ` +
          `--sport 20000 --dport 53 --reply-port-src 5353 --reply-port-dst 20000\n`;
      };
      const stdin = Array.from(
        { length: 20_000 },
        (_, i) => line(i, i < 10_000 ? "10.244.1.3" : "10.244.1.4"),
      ).join("");
      await run(["conntrack", "--load-file", "-"], { stdin });

      const tracker = new ChangeTracker({ family: "IPv4", node: { name: "node-a", zone: "" } });
      frontends.forEach((clusterIP, i) => {
        const dns = service(`shop/dns${i}`, { clusterIP, clusterIPs: [clusterIP], ports: ["dns:53/UDP"] });
        for (const raw of [dns, slice(`shop/dns${i}.1`, ["dns:5353/UDP"], ["10.244.1.4"])]) {
          for (const object of decodeObject(raw, "test").objects) {
            if (object.kind === "Service") tracker.updateService(undefined, object);
            else if (object.kind === "EndpointSlice") tracker.updateEndpointSlice(object, false);
          }
        }
      });
      const programs: string[] = [];
      const reconciliations: FlowReconciliation[] = [];
      const reconciler = new StaleFlowReconciler({
        family: "IPv4",
        conntrack: new Conntrack({
          run: (argv, options) => {
            programs.push(argv.join(" "));
            return exec.run(argv, options);
          },
        }),
        nodePortIps: () => [],
        log: silentLogger,
        observe: (reconciliation) => reconciliations.push(reconciliation),
        requestSync: () => {},
        nowMs: () => performance.now(),
        random: Math.random,
      });
      const { state, updatedServices, triggerTimesMs, ...udp } = tracker.checkout();
      const report = { commands: 1, bytes: 0, written: {}, total: {} };
      const outcome = { family: "IPv4", full: true, report, durationMs: 1, services: [], ...udp } as const;
      assertEquals(updatedServices.size, services);
      await reconciler.afterSync({ ...outcome, state, triggerTimesMs });
      // A look that takes longer than a sync may wait goes on beside it.
      await until(() => reconciliations.length > 0, "the look's end");
      const [{ deleted, durationMs } = { deleted: 0, durationMs: 0 }] = reconciliations;
      assertEquals(deleted, 10_000);
      // A run is repeated if the kernel resizes the table meanwhile, as another network namespace may ask for.
      assertEquals([...new Set(programs)], ["conntrack -L -p udp -f ipv4", "conntrack --load-file -"]);
      assertEquals((await run(["conntrack", "-C"])).trim(), "10000");
      // It takes 0.2 s on two cores, 0.7 s beside user-mode kernels; one run for each flow would take minutes.
      await assertWithin(durationMs, 2_000, "the deletion");
    });
  },
);
