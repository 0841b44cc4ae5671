import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import {
  NODE_A,
  testPort,
  testService,
  testSlice,
  testSliceEndpoint,
} from "../../../../tests/support/model_objects.ts";
import { recordingLog } from "../../../../tests/support/recording_log.ts";
import { ChangeTracker } from "../../../model/change_tracker.ts";
import type { Service } from "../../../model/objects.ts";
import type { ApplyReport } from "../../backend.ts";
import type { Place } from "../forward/open_portal.ts";
import { NoPortError, type OpenPortal } from "../forward/relay.ts";
import type { PortalEndpoint } from "../plan/plan.ts";
import { ListeningProxier, parseListenRange } from "./listener.ts";
import { SharedPortals } from "../forward/shared_portals.ts";

/** A user's machine in memory. */
class Rig {
  /** `ip:port` → endpoints of the portal. */
  readonly open = new Map<string, readonly PortalEndpoint[]>();
  readonly shared = new SharedPortals((place) => this.#listen(place));
  readonly tracker = new ChangeTracker({ family: "IPv4", node: NODE_A });
  /** Addresses and ports that other programs hold. */
  readonly taken = new Set<string>();
  isRoot = false;
  nowMs = 0;
  opened = 0;
  report: ApplyReport | undefined;
  readonly #services = new Map<string, Service>();
  proxier: ListeningProxier;
  lines: () => readonly string[] = () => [];

  constructor(private readonly range: string) {
    this.proxier = this.nextProxier();
  }

  nextProxier(): ListeningProxier {
    const { log, lines } = recordingLog();
    this.lines = () => lines;
    return this.proxier = new ListeningProxier({
      family: "IPv4",
      range: parseListenRange(this.range)!,
      shared: this.shared,
      log,
      nowMs: () => this.nowMs,
    });
  }

  put(name: string, fields: Partial<Service> = {}): void {
    const service = testService({ name, ...fields });
    this.tracker.updateService(this.#services.get(name), service);
    this.#services.set(name, service);
    const slice = { name: `${name}-1`, serviceName: name, endpoints: [testSliceEndpoint("10.244.0.1")] };
    this.tracker.updateEndpointSlice(testSlice(slice), false);
  }

  remove(name: string): void {
    this.tracker.updateService(this.#services.get(name), undefined);
    this.#services.delete(name);
  }

  async sync(all: "all" | "changed" = "changed"): Promise<string[]> {
    const { state, updatedServices } = this.tracker.checkout();
    this.report = await this.proxier.sync({ state, changed: all === "all" ? "all" : updatedServices });
    return [...this.open.keys()].sort();
  }

  quarantined(): string[] {
    return this.report?.quarantined?.map(({ service, problem }) => `${service}: ${problem}`) ?? [];
  }

  #listen({ ip, protocol, range }: Place): Promise<OpenPortal> {
    const port = range!.first;
    const place = `${protocol === "TCP" ? "" : "udp "}${ip}:${port}`;
    const problem = port < 1024 && !this.isRoot ? "denied" : this.taken.has(place) ? "in use" : null;
    if (problem !== null) {
      return Promise.reject(new NoPortError(`no port ${port}: ${problem}`, problem === "denied"));
    }
    assert(!this.open.has(place), `${place} is open already`);
    this.open.set(place, []);
    this.opened++;
    return Promise.resolve({
      port,
      // Another thread takes them over in its own time.
      update: async (endpoints) => {
        await new Promise((resolve) => setTimeout(resolve, 5));
        this.open.set(place, endpoints);
      },
      close: () => Promise.resolve(void this.open.delete(place)),
    });
  }
}

const ports = (...numbers: number[]): Partial<Service> => ({
  ports: numbers.map((port) => testPort({ name: `p${port}`, port })),
});

Deno.test("Services are open where they say, and follow their changes", async () => {
  const rig = new Rig("127.0.0.0/8");
  rig.put("web", ports(8080));
  rig.put("db", { clusterIP: "10.96.0.11", ...ports(8080, 5432) });
  assertEquals(await rig.sync("all"), ["127.96.0.10:8080", "127.96.0.11:5432", "127.96.0.11:8080"]);
  assertEquals(rig.report?.total, { portals: 3 });
  const told = rig.lines().find((line) => line.includes("shop/web:p8080")) ?? "";
  assertStringIncludes(told, "127.96.0.10:8080");
  rig.put("db", { clusterIP: "10.96.0.12", ...ports(5432) });
  assertEquals(await rig.sync(), ["127.96.0.10:8080", "127.96.0.12:5432"]);
  rig.put("web", { ports: [testPort({ port: 8080 })] });
  await rig.sync();
  const leadsTo = rig.open.get("127.96.0.10:8080")?.map(({ ip }) => ip);
  assertEquals(leadsTo, ["10.244.0.1"], "synced, but not in use");
  rig.remove("web");
  assertEquals(await rig.sync(), ["127.96.0.12:5432"]);
  assertEquals(rig.quarantined(), []);
});

Deno.test("the second for a place learns whose it is, and has it once that is gone", async () => {
  const rig = new Rig("127.0.0.1");
  rig.put("api", ports(8080, 9090));
  rig.put("web", { clusterIP: "10.96.0.11", ...ports(8080, 7070) });
  assertEquals(await rig.sync("all"), ["127.0.0.1:7070", "127.0.0.1:8080", "127.0.0.1:9090"]);
  assertEquals(rig.quarantined(), [
    "shop/web: shop/web:p8080: TCP 127.0.0.1:8080 is open for shop/api:p8080 already",
  ]);
  // A protocol has ports of its own.
  rig.put("dns", {
    clusterIP: "10.96.0.12",
    ports: [testPort({ name: "u", port: 8080, protocol: "UDP" })],
  });
  assert((await rig.sync()).includes("udp 127.0.0.1:8080"));
  rig.remove("api");
  assertEquals(await rig.sync(), ["127.0.0.1:7070", "127.0.0.1:8080", "udp 127.0.0.1:8080"]);
  assertEquals(rig.quarantined(), []);
});

Deno.test("without the right to a port another one stands in for it, and gives way only to the Service that has that port", async () => {
  const rig = new Rig("127.0.0.1");
  rig.put("a", ports(80));
  rig.put("b", { clusterIP: "10.96.0.11", ...ports(443) });
  rig.put("c", { clusterIP: "10.96.0.12", ...ports(8443) });
  assertEquals(await rig.sync("all"), ["127.0.0.1:8080", "127.0.0.1:8443"]);
  assertEquals(rig.quarantined(), [
    "shop/b: shop/b:p443: no right to port 443, and TCP 127.0.0.1:8443 is open for shop/c:p8443 already",
  ]);
  assert(rig.lines().some((line) => line.includes("127.0.0.1:8080") && line.includes("standsInFor=80")));
  rig.put("d", { clusterIP: "10.96.0.13", ...ports(8080) });
  await rig.sync();
  assertStringIncludes(rig.quarantined().join(), "TCP 127.0.0.1:8080 is open for shop/a:p80 already");
  rig.remove("c");
  assertEquals(await rig.sync(), ["127.0.0.1:8080", "127.0.0.1:8443"]);
  const root = new Rig("127.0.0.1");
  root.isRoot = true;
  root.put("a", ports(80));
  assertEquals(await root.sync("all"), ["127.0.0.1:80"]);
});

Deno.test("a port that another program has costs that port only, and is tried again after a minute", async () => {
  const rig = new Rig("127.0.0.1");
  rig.taken.add("127.0.0.1:8080");
  rig.put("web", ports(8080, 9090));
  assertEquals(await rig.sync("all"), ["127.0.0.1:9090"]);
  assertEquals(rig.quarantined(), ["shop/web: shop/web:p8080: no port 8080: in use"]);
  rig.taken.clear();
  rig.nowMs = 60_000;
  assertEquals(await rig.sync(), ["127.0.0.1:8080", "127.0.0.1:9090"]);
  assertEquals(rig.quarantined(), []);
});

Deno.test("the next proxy server takes what is open over", async () => {
  const rig = new Rig("127.0.0.1");
  rig.put("web", ports(8080, 80));
  await rig.sync("all");
  rig.proxier.leave();
  rig.nextProxier();
  assertEquals(await rig.sync("all"), ["127.0.0.1:8080"], "both wanted the same place");
  rig.put("web", ports(8081, 80));
  assertEquals(await rig.sync(), ["127.0.0.1:8080", "127.0.0.1:8081"]);
  rig.proxier.leave();
  rig.nextProxier();
  assertEquals([await rig.sync("all"), rig.opened], [["127.0.0.1:8080", "127.0.0.1:8081"], 3]);
  await rig.shared.closeLeft();
  assertEquals([...rig.open.keys()].length, 2);
});
