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
import { blame, type RefusedLine, RefusedLinesError } from "./refusals.ts";

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

/** `shop/web` → the problem that is reported of it. */
function problems(...lines: readonly RefusedLine[]): Record<string, string> {
  return Object.fromEntries(blame(lines, PLAN).map(({ service, problem }) => [service, problem]));
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
      if (Object.keys(wanted).length === 0) {
        const error = assertThrows(
          () => problems(refusedServer("shop/web", "10.96.0.1"), work),
          RefusedLinesError,
        );
        assertEquals(error.lines, [work]);
      } else {
        assertEquals(problems(work), wanted, JSON.stringify(work));
      }
    }
  },
);
