import { assertEquals, assertThrows } from "@std/assert";
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
import { Quarantine, RETRY_MS } from "../../quarantine.ts";
import {
  blame,
  forgetDueParts,
  forgetUnwanted,
  type RefusedLine,
  RefusedLinesError,
  withoutRefused,
} from "./refusals.ts";

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

/** What keeps what is refused, for a time that the test sets. */
class Rig {
  nowMs = 0;
  readonly quarantine = new Quarantine(() => this.nowMs);

  /** Blames the lines on Services of the plan. */
  refuse(...lines: readonly RefusedLine[]): this {
    for (const one of blame(lines, PLAN)) this.quarantine.refused(one);
    return this;
  }

  /** `shop/web` → the problem that is told of it. */
  get problems(): Record<string, string> {
    return Object.fromEntries(this.quarantine.services.map(({ service, problem }) => [service, problem]));
  }

  /** Addresses of the servers and entries that are left of a Service, with its endpoints. */
  left(name: string): string {
    const { servers, entries } = withoutRefused(PLAN, this.quarantine).services.get(name)!;
    const texts = servers.map(({ server, realServers }) => `${server.address}:${realServers.length}`);
    return `${texts.join(" ")} ${entries.length}`;
  }
}

Deno.test(
  "each refused line is blamed on the Service that wants it, and an unwanted one on none",
  pure,
  () => {
    const cases: readonly (readonly [RefusedLine, Record<string, string>])[] = [
      [refusedServer("shop/web", "10.96.0.1"), { "shop/web": "address 10.96.0.1:80/TCP: ipvsadm: no" }],
      [refusedReal("shop/cart", "10.96.0.2", "10.244.1.3"), {
        "shop/cart": "endpoint 10.244.1.3:8080: ipvsadm: no",
      }],
      // No Service has this endpoint there.
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
      const rig = new Rig();
      if (Object.keys(wanted).length === 0) {
        const error = assertThrows(
          () => rig.refuse(refusedServer("shop/web", "10.96.0.1"), work),
          RefusedLinesError,
        );
        assertEquals(error.lines, [work]);
      } else {
        assertEquals(rig.refuse(work).problems, wanted, JSON.stringify(work));
      }
    }
  },
);

Deno.test(
  "what is refused is left out until it is tried again: endpoints at once, the rest after a while",
  pure,
  () => {
    const rig = new Rig();
    rig.nowMs = 5_000_000;
    assertEquals(withoutRefused(PLAN, rig.quarantine), PLAN);
    forgetDueParts(rig.quarantine, "shop/nobody");
    const whole = rig.left("shop/web");
    rig.refuse(
      refusedReal("shop/web", "10.96.0.1", "10.244.1.2"),
      refusedServer("shop/cart", "10.96.0.2"),
    );
    assertEquals([whole.slice(0, 12), rig.left("shop/web").slice(0, 12)], ["10.96.0.1:2 ", "10.96.0.1:1 "]);
    assertEquals(rig.left("shop/cart").includes("10.96.0.2"), false);
    rig.nowMs += RETRY_MS - 1;
    for (const name of ["shop/web", "shop/cart"]) forgetDueParts(rig.quarantine, name);
    assertEquals([Object.keys(rig.problems), rig.left("shop/web")], [["shop/cart"], whole]);
    rig.nowMs += 1;
    forgetDueParts(rig.quarantine, "shop/cart");
    assertEquals(rig.problems, {});
  },
);

Deno.test(
  "a Service of which parts of several kinds are refused keeps those that are not tried again",
  pure,
  () => {
    const rig = new Rig().refuse(refusedServer("shop/web", "10.96.0.1"));
    rig.nowMs = RETRY_MS;
    rig.refuse(refusedReal("shop/web", "10.96.0.1", "10.244.1.2"), line("add KUBE-NODE-PORT-TCP 30001"));
    assertEquals(rig.problems, { "shop/web": "address 10.96.0.1:80/TCP: ipvsadm: no (and 2 more)" });
    forgetDueParts(rig.quarantine, "shop/web");
    assertEquals(rig.problems, { "shop/web": "entry KUBE-NODE-PORT-TCP 30001: ipset: no" });
    rig.refuse(refusedReal("shop/web", "10.96.0.1", "10.244.1.2"));
    const web = { ...PLAN.services.get("shop/web")!, entries: [] };
    forgetUnwanted(rig.quarantine, { ...PLAN, services: new Map([["shop/web", web]]) });
    assertEquals(rig.problems, { "shop/web": "endpoint 10.244.1.2:8080: ipvsadm: no" });
  },
);

Deno.test("what is refused is kept, whatever its kinds are", pure, () => {
  for (
    const other of [line("add KUBE-NODE-PORT-TCP 30001"), refusedReal("shop/web", "192.0.2.10", "10.244.1.2")]
  ) {
    const rig = new Rig().refuse(refusedServer("shop/web", "10.96.0.1"), other);
    forgetUnwanted(rig.quarantine, PLAN);
    assertEquals(rig.problems, { "shop/web": "address 10.96.0.1:80/TCP: ipvsadm: no (and 1 more)" });
  }
});

Deno.test("what a Service does not want any more is forgotten, of others nothing", pure, () => {
  const after = (plan: IpvsPlan): Record<string, string> => {
    const rig = new Rig().refuse(
      refusedServer("shop/cart", "10.96.0.2"),
      refusedReal("shop/web", "10.96.0.1", "10.244.1.1"),
      refusedReal("shop/web", "10.96.0.1", "10.244.1.2"),
    );
    forgetUnwanted(rig.quarantine, plan);
    return rig.problems;
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
