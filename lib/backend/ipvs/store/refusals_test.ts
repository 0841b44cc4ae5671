import { assertEquals } from "@std/assert";
import { exampleIpvsPlan } from "../../../../tests/support/golden_ipvs.ts";
import {
  testPort,
  testService,
  testSlice,
  testSliceEndpoint,
} from "../../../../tests/support/model_objects.ts";
import type { ApiObject } from "../../../model/objects.ts";
import {
  addRealServerLine,
  addVirtualServerLine,
  deleteVirtualServerLine,
  type VirtualServer,
} from "../../../netfilter/ipvs.ts";
import type { IpvsPlan } from "../plan/ruleset.ts";
import { RETRY_MS } from "../../quarantine.ts";
import { Refusals, type RefusedLine } from "./refusals.ts";

const pure = { permissions: "none" } as const;

function service(name: string, at: number, ips: readonly string[]): ApiObject[] {
  const ports = [testPort({ nodePort: 30000 + at })];
  return [
    testService({ name, clusterIP: `10.96.0.${at}`, type: "NodePort", ports }),
    testSlice({ name: `${name}-1`, serviceName: name, endpoints: ips.map((ip) => testSliceEndpoint(ip)) }),
  ];
}

const WEB = service("web", 1, ["10.244.1.1", "10.244.1.2"]);
const CART = service("cart", 2, ["10.244.1.3"]);
const PLAN = exampleIpvsPlan("IPv4", [...WEB, ...CART]);

function wanted(plan: IpvsPlan, name: string, address: string) {
  return plan.services.get(name)!.servers.find(({ server }) => server.address === address)!.server;
}

function ipvsadm(line: string): RefusedLine {
  return { program: "ipvsadm", line, problem: "no" };
}

function refusedReal(name: string, address: string, pod: string): RefusedLine {
  const real = { address: pod, port: 8080, weight: 1 };
  return ipvsadm(addRealServerLine(wanted(PLAN, name, address), real));
}

function refusedServer(
  name: string,
  address: string,
  lineOf: (server: VirtualServer) => string = addVirtualServerLine,
): RefusedLine {
  return ipvsadm(lineOf(wanted(PLAN, name, address)));
}

const line = (line: string): RefusedLine => ({ program: "ipset", line, problem: "no" });

/** `shop/web` → the problem that is told of it. */
function problems(refusals: Refusals): Record<string, string | null> {
  return Object.fromEntries([...refusals.services].map((name) => [name, refusals.problemOf(name)]));
}

Deno.test(
  "each refused line is blamed on the Service that wants it, and what nobody wants on nobody",
  pure,
  () => {
    const cases: readonly (readonly [RefusedLine, Record<string, string>])[] = [
      [refusedServer("shop/web", "10.96.0.1"), { "shop/web": "address 10.96.0.1:80/TCP: ipvsadm: no" }],
      [refusedReal("shop/cart", "10.96.0.2", "10.244.1.3"), {
        "shop/cart": "endpoint 10.244.1.3:8080: ipvsadm: no",
      }],
      // Nobody has this endpoint there.
      [refusedReal("shop/web", "10.96.0.1", "10.244.1.3"), {}],
      [refusedServer("shop/web", "10.96.0.1", deleteVirtualServerLine), {}],
      [
        refusedServer("shop/web", "10.96.0.1", (server) => addVirtualServerLine({ ...server, port: 9 })),
        {},
      ],
      [line("add KUBE-CLUSTER-IP 10.96.0.2,tcp:80"), { "shop/cart": "address 10.96.0.2:80/TCP: ipset: no" }],
      [line("add KUBE-NODE-PORT-TCP 30001"), { "shop/web": "entry KUBE-NODE-PORT-TCP 30001: ipset: no" }],
      [line("add KUBE-IPVS-IPS 10.96.0.1"), { "shop/web": "address 10.96.0.1:80/TCP: ipset: no" }],
      // The node's own address is not bound for a node port.
      [line("add KUBE-IPVS-IPS 192.0.2.10"), {}],
      [line("something else"), {}],
    ];
    for (const [work, wanted] of cases) {
      const refusals = new Refusals(() => 0);
      const nobodys = refusals.blame([work], PLAN);
      assertEquals(problems(refusals), wanted, JSON.stringify(work));
      assertEquals(nobodys, Object.keys(wanted).length === 0 ? [work] : []);
    }
  },
);

/** Addresses of the servers and entries that are left of a Service, with its endpoints. */
function left(refusals: Refusals, plan: IpvsPlan, name: string): string {
  const claims = refusals.without(plan).services.get(name)!;
  return claims.servers.map(({ server, realServers }) => `${server.address}:${realServers.length}`).join(
    " ",
  ) +
    ` ${claims.entries.length}`;
}

Deno.test(
  "what is refused is left out until it is tried again: endpoints at once, the rest after a while",
  pure,
  () => {
    let nowMs = 5_000_000;
    const refusals = new Refusals(() => nowMs);
    assertEquals(refusals.without(PLAN), PLAN);
    refusals.retry("shop/nobody");
    refusals.blame([
      refusedReal("shop/web", "10.96.0.1", "10.244.1.2"),
      refusedServer("shop/cart", "10.96.0.2"),
    ], PLAN);
    const whole = new Refusals(() => 0);
    assertEquals(left(whole, PLAN, "shop/web").startsWith("10.96.0.1:2 "), true);
    assertEquals(left(refusals, PLAN, "shop/web").startsWith("10.96.0.1:1 "), true);
    assertEquals(left(refusals, PLAN, "shop/cart").includes("10.96.0.2"), false);
    nowMs += RETRY_MS - 1;
    for (const name of ["shop/web", "shop/cart"]) refusals.retry(name);
    assertEquals([...refusals.services], ["shop/cart"]);
    nowMs += 1;
    refusals.retry("shop/cart");
    assertEquals([...refusals.services], []);
  },
);

Deno.test("a Service with refusals of several kinds keeps those that are not tried again", pure, () => {
  let nowMs = 0;
  const refusals = new Refusals(() => nowMs);
  refusals.blame([refusedServer("shop/web", "10.96.0.1")], PLAN);
  nowMs = RETRY_MS;
  refusals.blame(
    [refusedReal("shop/web", "10.96.0.1", "10.244.1.2"), line("add KUBE-NODE-PORT-TCP 30001")],
    PLAN,
  );
  assertEquals(refusals.problemOf("shop/web"), "address 10.96.0.1:80/TCP: ipvsadm: no (and 2 more)");
  refusals.retry("shop/web");
  assertEquals(refusals.problemOf("shop/web"), "entry KUBE-NODE-PORT-TCP 30001: ipset: no");
  refusals.blame([refusedReal("shop/web", "10.96.0.1", "10.244.1.2")], PLAN);
  refusals.prune({
    ...PLAN,
    services: new Map([["shop/web", { ...PLAN.services.get("shop/web")!, entries: [] }]]),
  });
  assertEquals(refusals.problemOf("shop/web"), "endpoint 10.244.1.2:8080: ipvsadm: no");
});

Deno.test("what is refused is kept, whatever its kinds are", pure, () => {
  for (
    const other of [line("add KUBE-NODE-PORT-TCP 30001"), refusedReal("shop/web", "192.0.2.10", "10.244.1.2")]
  ) {
    const refusals = new Refusals(() => 0);
    refusals.blame([refusedServer("shop/web", "10.96.0.1"), other], PLAN);
    refusals.prune(PLAN);
    assertEquals(refusals.problemOf("shop/web"), "address 10.96.0.1:80/TCP: ipvsadm: no (and 1 more)");
  }
});

Deno.test("what a Service does not claim any more is forgotten, of others nothing", pure, () => {
  const all = [
    refusedServer("shop/cart", "10.96.0.2"),
    refusedReal("shop/web", "10.96.0.1", "10.244.1.1"),
    refusedReal("shop/web", "10.96.0.1", "10.244.1.2"),
  ];
  const after = (plan: IpvsPlan): Record<string, string | null> => {
    const refusals = new Refusals(() => 0);
    refusals.blame(all, PLAN);
    refusals.prune(plan);
    return problems(refusals);
  };
  const part = (plan: IpvsPlan, names: readonly string[]): IpvsPlan => ({
    ...plan,
    all: false,
    services: new Map(names.map((name) => [name, plan.services.get(name) ?? null])),
  });
  const cart = "address 10.96.0.2:80/TCP: ipvsadm: no";
  const web = "endpoint 10.244.1.1:8080: ipvsadm: no (and 1 more)";
  assertEquals(after(PLAN), { "shop/cart": cart, "shop/web": web });
  const fewer = exampleIpvsPlan("IPv4", [...service("web", 1, ["10.244.1.1"]), ...CART]);
  const one = "endpoint 10.244.1.1:8080: ipvsadm: no";
  assertEquals(after(part(fewer, ["shop/web"])), { "shop/cart": cart, "shop/web": one });
  const none = exampleIpvsPlan("IPv4", [...service("web", 1, ["10.244.1.9"]), ...CART]);
  assertEquals(after(part(none, ["shop/web"])), { "shop/cart": cart });
  assertEquals(after(part(PLAN, ["shop/other"])), { "shop/cart": cart, "shop/web": web });
  // Of a plan of all, those that it does not have are gone.
  assertEquals(after(exampleIpvsPlan("IPv4", CART)), { "shop/cart": cart });
  assertEquals(after(part(exampleIpvsPlan("IPv4", CART), ["shop/web"])), { "shop/cart": cart });
});
