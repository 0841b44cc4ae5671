import { assert, assertEquals, assertMatch } from "@std/assert";
import { startWork } from "../../tests/support/spent.ts";
import fc from "../../tests/support/fast_check.ts";
import { ARBITRARY_CLUSTER, offerChanges } from "../../tests/support/arbitrary_objects.ts";
import { ChangeTracker } from "./change_tracker.ts";
import { compareClaimants, type UnservedDestination } from "./destination_claims.ts";
import type { ApiObject, IpFamily, Service } from "./objects.ts";
import { servicePorts } from "./service_port.ts";
import type { ServicePort } from "./state.ts";
import { NODE_A, testPort, testService, testServicePort } from "../../tests/support/model_objects.ts";

const pure = { permissions: "none" } as const;

/** A tracker whose Services come and go, and its reports. */
class Rig {
  readonly told: string[] = [];
  readonly #services = new Map<string, Service>();
  readonly #tracker: ChangeTracker;

  constructor(family: IpFamily = "IPv4") {
    this.#tracker = new ChangeTracker({
      family,
      node: NODE_A,
      onUnserved: ({ service, destination, reason }: UnservedDestination) =>
        this.told.push(`${service}: ${destination}: ${reason}`),
      onResolved: ({ service, destination }) => this.told.push(`${service}: ${destination} resolved`),
    });
  }

  /** Applies the changes; yields the Services that the sync must plan again. */
  change(...changes: readonly (Service | string)[]): string[] {
    for (const change of changes) {
      const name = typeof change === "string" ? change : change.name;
      const current = typeof change === "string" ? undefined : change;
      this.#tracker.updateService(this.#services.get(name), current);
      if (current === undefined) this.#services.delete(name);
      else this.#services.set(name, current);
    }
    return [...this.#tracker.checkout().updatedServices].sort();
  }

  /** Reports since the last call. */
  news(): string[] {
    return this.told.splice(0);
  }

  /** `name: clusterIP:port externals… node port`. */
  served(): string[] {
    return [...this.#tracker.checkout().state.services].map(([name, ports]) =>
      `${name.slice(5)}: ${
        ports.map((port) =>
          [port.port, ...port.externalIPs, ...port.loadBalancerVIPs, port.nodePort].join(" ")
        )
          .join(", ")
      }`
    ).sort();
  }
}

const web = (name: string, fields: Partial<Service> = {}): Service =>
  testService({ name, clusterIP: `10.96.0.${name.length + name.charCodeAt(0)}`, ...fields });
const ip = (...externalIPs: string[]): Partial<Service> => ({ externalIPs });
const at = (createdAtSeconds: number): Partial<Service> => ({ createdAtSeconds });

Deno.test(
  "the older Service comes first, then the first by name; without a time it is the newest",
  pure,
  () => {
    const port = (namespacedName: string, createdAtSeconds: number | null): ServicePort =>
      testServicePort({ namespacedName, key: `${namespacedName}/TCP`, createdAtSeconds });
    const order = [port("z/z", 1), port("b/b", 2), port("b/b-2", 2), port("a/a", null), port("b/a", null)];
    assertEquals(order.toReversed().sort(compareClaimants), order);
    const ofOne = testServicePort({ key: "shop/web:b/TCP" });
    assert(compareClaimants(testServicePort({ key: "shop/web:a/TCP" }), ofOne) < 0);
  },
);

Deno.test("a Service that asks for very much that it does not get is reported in a few words", pure, () => {
  const rig = new Rig();
  const ips = Array.from({ length: 50 }, (_, k) => `192.0.2.${k}`);
  const ports = Array.from({ length: 50 }, (_, k) => testPort({ name: `p${k}`, port: 1000 + k }));
  rig.change(web("a", { externalIPs: ips, ports }));
  assertEquals(rig.news(), []);
  rig.change(web("taker", { externalIPs: ips, ports }));
  const told = rig.news();
  assertEquals(told.length, 11);
  assertEquals(told[0], "shop/taker: external IP 192.0.2.0 port 1000/TCP: it belongs to shop/a");
  assertMatch(told[10] ?? "", /^shop\/taker: 2490 more destinations: /);
  rig.change("a");
  assertEquals(rig.news().slice(-1), ["shop/taker: 2490 more destinations resolved"]);
  const loopback = Array.from({ length: 200 }, (_, k) => `127.0.0.${k}`);
  rig.change(web("taker", { externalIPs: loopback, ports }));
  assertEquals(rig.news().length, 11);
});

Deno.test("as many as are named at most are all named, without a count of others", pure, () => {
  const rig = new Rig();
  const ips = Array.from({ length: 10 }, (_, k) => `192.0.2.${k}`);
  rig.change(web("a", ip(...ips)));
  rig.change(web("taker", ip(...ips)));
  assertEquals(rig.news().map((line) => line.split(" ")[3]), ips);
  rig.change("a");
  assertEquals(rig.news(), ips.map((one) => `shop/taker: external IP ${one} port 80/TCP resolved`));
});

Deno.test(
  "cluster IPs go before everything else, with or without the Service that has them now",
  pure,
  () => {
    const rig = new Rig();
    const greedy = web("a", { ...ip("10.96.0.1"), ...at(1) });
    const kubernetes = web("k", { clusterIP: "10.96.0.1", ...at(2) });
    rig.change(greedy, kubernetes);
    assertEquals(rig.served(), ["a: 80 0", "k: 80 0"]);
    assertEquals(rig.news(), ["shop/a: external IP 10.96.0.1 port 80/TCP: it belongs to shop/k"]);
    assertEquals(rig.change("k"), ["shop/a", "shop/k"]);
    assertEquals(rig.served(), ["a: 80 10.96.0.1 0"]);
    assertEquals(rig.change(kubernetes), ["shop/a", "shop/k"]);
    assertEquals(rig.served(), ["a: 80 0", "k: 80 0"]);
  },
);

Deno.test("a port without its cluster IP is not served, and keeps nothing from others", pure, () => {
  const rig = new Rig();
  const both = { clusterIP: "10.96.0.1", ports: [testPort({ nodePort: 30080 })], type: "NodePort" as const };
  rig.change(web("a", { ...both, ...at(1), ports: [testPort()] }));
  rig.change(web("b", { ...both, ...ip("192.0.2.1"), ...at(2) }));
  rig.change(web("c", { ...both, clusterIP: "10.96.0.3", ...ip("192.0.2.1"), ...at(3) }));
  assertEquals(rig.served(), ["a: 80 0", "c: 80 192.0.2.1 30080"]);
  assertEquals(rig.news(), ["shop/b: cluster IP 10.96.0.1 port 80/TCP: it belongs to shop/a"]);
  assertEquals(rig.change("a"), ["shop/a", "shop/b", "shop/c"]);
  assertEquals(rig.served(), ["b: 80 192.0.2.1 30080", "c: 80 0"]);
  assertEquals(rig.news(), [
    "shop/b: cluster IP 10.96.0.1 port 80/TCP resolved",
    "shop/c: external IP 192.0.2.1 port 80/TCP: it belongs to shop/b",
    "shop/c: node port 30080/TCP: it belongs to shop/b",
  ]);
});

Deno.test("a load-balancer IP and an external IP are one destination; its own a Service keeps", pure, () => {
  const rig = new Rig();
  const lb = { type: "LoadBalancer", loadBalancerIngress: [{ ip: "192.0.2.1", ipMode: "VIP" }] } as const;
  rig.change(web("a", { ...lb, ...ip("192.0.2.1", web("a").clusterIP), ...at(1) }));
  rig.change(web("b", { ...ip("192.0.2.1") }), web("c", lb));
  assertEquals(rig.served(), [`a: 80 192.0.2.1 ${web("a").clusterIP} 192.0.2.1 0`, "b: 80 0", "c: 80 0"]);
  assertEquals(rig.news(), [
    "shop/b: external IP 192.0.2.1 port 80/TCP: it belongs to shop/a",
    "shop/c: load-balancer IP 192.0.2.1 port 80/TCP: it belongs to shop/a",
  ]);
});

Deno.test("of two ports of one Service with one node port one has it", pure, () => {
  const rig = new Rig();
  rig.change(web("a", {
    type: "NodePort",
    ports: [testPort({ name: "b", port: 81, nodePort: 30080 }), testPort({ name: "a", nodePort: 30080 })],
  }));
  assertEquals(rig.served(), ["a: 81 0, 80 30080"]);
  assertEquals(rig.news(), ["shop/a: node port 30080/TCP: another port of the Service has it"]);
});

Deno.test("addresses of special use are reported once and left out, in either field and family", pure, () => {
  const table: readonly (readonly [string, string | null])[] = [
    ["0.0.0.0", "the unspecified address"],
    ["127.0.0.53", "a loopback address"],
    ["169.254.169.254", "a link-local address"],
    ["224.0.0.1", "a multicast address"],
    ["239.255.255.255", "a multicast address"],
    ["255.255.255.255", "the broadcast address"],
    ["223.255.255.255", null],
    ["240.0.0.1", null],
    ["169.253.255.255", null],
    ["169.255.0.0", null],
    ["::", "the unspecified address"],
    ["::1", "a loopback address"],
    ["fe80::1", "a link-local address"],
    ["febf::1", "a link-local address"],
    ["ff02::1", "a multicast address"],
    ["::2", null],
    ["fec0::1", null],
    ["fd00::1", null],
    ["fd80::1", null],
  ];
  const families = { clusterIPs: ["10.96.0.1", "fd00:96::1"], ipFamilies: ["IPv4", "IPv6"] } as const;
  for (const [address, reason] of table) {
    const rig = new Rig(address.includes(":") ? "IPv6" : "IPv4");
    const odd = web("a", { ...families, clusterIP: "10.96.0.1", ...ip(address) });
    rig.change(odd);
    assertEquals(rig.served(), [reason === null ? `a: 80 ${address} 0` : "a: 80 0"], address);
    const text = `shop/a: external IP ${address}: it is ${reason}`;
    assertEquals(rig.news(), reason === null ? [] : [text], address);
    rig.change({ ...odd, sessionAffinity: "ClientIP" });
    assertEquals(rig.news(), [], address);
    rig.change({
      ...odd,
      externalIPs: [],
      type: "LoadBalancer",
      loadBalancerIngress: [{ ip: address, ipMode: "VIP" }],
    });
    assertEquals(
      rig.news(),
      reason === null
        ? []
        : [text.replace("external", "load-balancer"), `shop/a: external IP ${address} resolved`],
    );
    assertEquals(rig.served(), [reason === null ? `a: 80 ${address} 0` : "a: 80 0"], address);
  }
});

/** Served addresses and node ports by ServicePort, computed from all objects at once. */
function servedFromScratch(objects: readonly ApiObject[]): Record<string, unknown> {
  const declared = objects.filter((object) => object.kind === "Service")
    .flatMap((service) => servicePorts(service, "IPv4")).sort(compareClaimants);
  const first = (wants: (port: ServicePort) => boolean) => declared.find(wants)?.key;
  const clusterIp = (ip: string, like: ServicePort) =>
    first((port) => port.clusterIP === ip && port.port === like.port && port.protocol === like.protocol);
  const served = declared.filter((port) => clusterIp(port.clusterIP, port) === port.key);
  const address = (ip: string, like: ServicePort) =>
    clusterIp(ip, like) ??
      served.find((port) =>
        [...port.externalIPs, ...port.loadBalancerVIPs].includes(ip) && port.port === like.port &&
        port.protocol === like.protocol
      )?.key;
  const nodePort = (like: ServicePort) =>
    served.find((port) => port.nodePort === like.nodePort && port.protocol === like.protocol)?.key;
  return Object.fromEntries(served.map((port) => [port.key, {
    externalIPs: port.externalIPs.filter((ip) => address(ip, port) === port.key),
    loadBalancerVIPs: port.loadBalancerVIPs.filter((ip) => address(ip, port) === port.key),
    nodePort: nodePort(port) === port.key ? port.nodePort : 0,
  }]));
}

/** Clusters whose addresses and node ports conflict much more often than in other tests. */
const CONTESTED = ARBITRARY_CLUSTER.map((objects) =>
  objects.map((object): ApiObject => {
    if (object.kind !== "Service") return object;
    const last = object.clusterIP.slice(-1);
    return {
      ...object,
      clusterIP: `10.96.0.${last}`,
      clusterIPs: [`10.96.0.${last}`],
      externalIPs: [...object.externalIPs, "10.96.0.1"],
      ports: object.ports.map((port) => ({
        ...port,
        nodePort: port.nodePort === 0 ? 0 : 30000 + port.nodePort % 2,
      })),
    };
  })
);

Deno.test(
  "any changes end in what a look at everything finds, and name exactly who is affected",
  pure,
  () => {
    fc.assert(
      fc.property(fc.array(CONTESTED, { minLength: 1, maxLength: 6 }), (clusters) => {
        const unserved = new Set<string>();
        const tracker = new ChangeTracker({
          family: "IPv4",
          node: NODE_A,
          maxReported: Infinity,
          onUnserved: ({ service, destination }) => {
            assert(!unserved.has(`${service} ${destination}`), "told twice");
            unserved.add(`${service} ${destination}`);
          },
          onResolved: ({ service, destination }) => {
            assert(unserved.delete(`${service} ${destination}`), "was never told");
          },
        });
        let before: readonly ApiObject[] = [];
        let servedBefore: Record<string, readonly ServicePort[]> = {};
        for (const cluster of clusters) {
          offerChanges(tracker, before, cluster.filter(({ kind }) => kind === "Service"));
          before = cluster.filter(({ kind }) => kind === "Service");
          const { state, updatedServices } = tracker.checkout();
          const served = Object.fromEntries(state.services);
          assertEquals(
            Object.fromEntries(
              Object.values(served).flat().map((
                { key, externalIPs, loadBalancerVIPs, nodePort },
              ) => [key, { externalIPs, loadBalancerVIPs, nodePort }]),
            ),
            servedFromScratch(cluster),
          );
          const names = new Set([...Object.keys(served), ...Object.keys(servedBefore)]);
          assertEquals(
            [...updatedServices].sort(),
            [...names].filter((name) => JSON.stringify(served[name]) !== JSON.stringify(servedBefore[name]))
              .sort(),
          );
          servedBefore = served;
        }
        if (before.length === 0) assertEquals(unserved.size, 0);
      }),
      { numRuns: 500 },
    );
  },
);

Deno.test("a thousand Services that want one address cost no more than they are", pure, () => {
  const rig = new Rig();
  const services = Array.from({ length: 5000 }, (_, index) =>
    testService({
      name: `s${index}`,
      clusterIP: `10.${100 + (index >> 16)}.${(index >> 8) & 255}.${index & 255}`,
      ...ip("192.0.2.1"),
      ...at(index),
    }));
  const spentMs = startWork();
  rig.change(...services.toReversed());
  // The owner goes and the next claimant takes over, again and again: each time two Services change.
  for (const [index, { name }] of services.slice(0, 1000).entries()) {
    assertEquals(rig.change(name), [`shop/s${index}`, `shop/s${index + 1}`].sort());
  }
  assert(spentMs() < 5000);
});
