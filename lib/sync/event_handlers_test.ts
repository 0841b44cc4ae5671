import { assertEquals } from "@std/assert";
import { ChangeTracker } from "../model/change_tracker.ts";
import type { IpFamily, ServiceCidr } from "../model/objects.ts";
import { testService } from "../../tests/support/model_objects.ts";
import type { SourceEvent } from "../source/source.ts";
import { EventHandlers, type HandledFamily } from "./event_handlers.ts";

const NONE = { permissions: "none" } as const;
const SYNCED: readonly SourceEvent[] = [{ type: "synced", kind: "services" }, {
  type: "synced",
  kind: "endpointslices",
}];

/** Event handlers for both families, its requests for syncs and what it says of ServiceCIDRs. */
function makeHandlers(changedBy?: (networks: readonly string[]) => readonly IpFamily[]): {
  handlers: EventHandlers;
  requests: IpFamily[];
  told: (readonly string[])[];
} {
  const requests: IpFamily[] = [];
  const told: (readonly string[])[] = [];
  const runners = (["IPv4", "IPv6"] as const).map((family): HandledFamily => ({
    family,
    tracker: new ChangeTracker({ family, node: { name: "n1", zone: "" }, report: () => {} }),
    requestSync: () => requests.push(family),
  }));
  const handlers = new EventHandlers({
    runners,
    nodeName: "n1",
    onNode: () => {},
    onRejected: () => {},
    onServiceCidrs: changedBy && ((networks) => {
      told.push(networks);
      return changedBy(networks);
    }),
  });
  return { handlers, requests, told };
}

function cidrs(name: string, ...networks: string[]): ServiceCidr {
  return { kind: "ServiceCIDR", name, cidrs: networks };
}

Deno.test("ServiceCIDRs are reported as one list, once for each batch that changes them", NONE, () => {
  const { handlers, requests, told } = makeHandlers((networks) => networks.length > 1 ? ["IPv4"] : []);
  handlers.openGate();
  handlers.events(SYNCED);
  requests.length = 0;
  const first = cidrs("kubernetes", "10.96.0.0/16", "fd00::/112");
  const same = cidrs("same", "10.96.0.0/16");
  handlers.events([{ type: "add", object: first }, { type: "add", object: same }]);
  assertEquals([told, requests], [[["10.96.0.0/16", "fd00::/112"]], ["IPv4"]]);
  const other = cidrs("kubernetes", "10.98.0.0/24");
  handlers.events([{ type: "update", old: first, object: other }, {
    type: "add",
    object: testService({ name: "web" }),
  }]);
  assertEquals(told[1], ["10.96.0.0/16", "10.98.0.0/24"]);
  assertEquals(requests, ["IPv4", "IPv4"]);
  handlers.events([{ type: "delete", old: other }]);
  // One ServiceCIDR less has the network, and one still has it.
  assertEquals([told[2], requests.length], [["10.96.0.0/16"], 2]);
});

Deno.test("ServiceCIDRs before the first lists ask for nothing, and none are waited for", NONE, () => {
  const { handlers, requests, told } = makeHandlers(() => ["IPv4", "IPv6"]);
  assertEquals(handlers.wantsServiceCidrs, true);
  handlers.openGate();
  handlers.events([{ type: "add", object: cidrs("kubernetes", "10.96.0.0/16") }]);
  assertEquals([told, requests], [[["10.96.0.0/16"]], []]);
  handlers.events(SYNCED);
  assertEquals(requests, ["IPv4", "IPv6"]);
});

Deno.test(
  "a mode that has no use for ServiceCIDRs does not want them, and is not disturbed by any",
  NONE,
  () => {
    const { handlers, requests } = makeHandlers();
    assertEquals(handlers.wantsServiceCidrs, false);
    handlers.openGate();
    handlers.events(SYNCED);
    requests.length = 0;
    handlers.events([{ type: "add", object: cidrs("kubernetes", "10.96.0.0/16") }]);
    assertEquals(requests, []);
  },
);
