import { assertEquals } from "@std/assert";
import { ChangeTracker } from "../model/change_tracker.ts";
import type { IpFamily, ServiceCidr } from "../model/objects.ts";
import { testService } from "../../tests/support/model_objects.ts";
import type { SourceEvent } from "../source/source.ts";
import { type FamilyLane, ProxyLoop } from "./proxy_loop.ts";

const NONE = { permissions: "none" } as const;
const SYNCED: readonly SourceEvent[] = [{ type: "synced", kind: "services" }, {
  type: "synced",
  kind: "endpointslices",
}];

/** A loop with both families, its requests for syncs and what it says of ServiceCIDRs. */
function makeLoop(changedBy?: (networks: readonly string[]) => readonly IpFamily[]): {
  loop: ProxyLoop;
  requests: IpFamily[];
  told: (readonly string[])[];
} {
  const requests: IpFamily[] = [];
  const told: (readonly string[])[] = [];
  const lanes = (["IPv4", "IPv6"] as const).map((family): FamilyLane => ({
    family,
    tracker: new ChangeTracker({ family, node: { name: "n1", zone: "" }, report: () => {} }),
    requestSync: () => requests.push(family),
  }));
  const loop = new ProxyLoop({
    lanes,
    nodeName: "n1",
    onNode: () => {},
    onRejected: () => {},
    onServiceCidrs: changedBy && ((networks) => {
      told.push(networks);
      return changedBy(networks);
    }),
  });
  return { loop, requests, told };
}

function cidrs(name: string, ...networks: string[]): ServiceCidr {
  return { kind: "ServiceCIDR", name, cidrs: networks };
}

Deno.test("ServiceCIDRs are told as one list, once for each batch that changes them", NONE, () => {
  const { loop, requests, told } = makeLoop((networks) => networks.length > 1 ? ["IPv4"] : []);
  loop.openGate();
  loop.events(SYNCED);
  requests.length = 0;
  const first = cidrs("kubernetes", "10.96.0.0/16", "fd00::/112");
  const same = cidrs("same", "10.96.0.0/16");
  loop.events([{ type: "add", object: first }, { type: "add", object: same }]);
  assertEquals([told, requests], [[["10.96.0.0/16", "fd00::/112"]], ["IPv4"]]);
  // The API server repeats itself.
  loop.events([{ type: "update", old: first, object: first }]);
  assertEquals([told.length, requests.length], [1, 1]);
  const other = cidrs("kubernetes", "10.98.0.0/24");
  loop.events([{ type: "update", old: first, object: other }, {
    type: "add",
    object: testService({ name: "web" }),
  }]);
  assertEquals(told[1], ["10.96.0.0/16", "10.98.0.0/24"]);
  assertEquals(requests, ["IPv4", "IPv4"]);
  loop.events([{ type: "delete", old: other }]);
  // One object less has it, and one has it still.
  assertEquals([told[2], requests.length], [["10.96.0.0/16"], 2]);
});

Deno.test("ServiceCIDRs before the first lists ask for nothing, and none are waited for", NONE, () => {
  const { loop, requests, told } = makeLoop(() => ["IPv4", "IPv6"]);
  assertEquals(loop.wantsServiceCidrs, true);
  loop.openGate();
  loop.events([{ type: "add", object: cidrs("kubernetes", "10.96.0.0/16") }]);
  assertEquals([told, requests], [[["10.96.0.0/16"]], []]);
  loop.events(SYNCED);
  assertEquals(requests, ["IPv4", "IPv6"]);
});

Deno.test(
  "a mode that has no use for ServiceCIDRs does not want them, and is not disturbed by any",
  NONE,
  () => {
    const { loop, requests } = makeLoop();
    assertEquals(loop.wantsServiceCidrs, false);
    loop.openGate();
    loop.events(SYNCED);
    requests.length = 0;
    loop.events([{ type: "add", object: cidrs("kubernetes", "10.96.0.0/16") }]);
    assertEquals(requests, []);
  },
);
