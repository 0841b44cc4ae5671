/** How little a change writes; that it is right is shown by the laws. */
import { assert, assertEquals } from "@std/assert";
import { exampleState } from "../../../../tests/support/golden.ts";
import {
  exampleCommittedTable,
  exampleNftablesOptions,
  exampleNftablesPlan,
} from "../../../../tests/support/golden_nftables.ts";
import { NftTable } from "../../../../tests/support/nft_table.ts";
import type { ApiObject } from "../../../model/objects.ts";
import {
  testPort,
  testService,
  testSlice,
  testSliceEndpoint,
} from "../../../../tests/support/model_objects.ts";
import { diffNftables, isEmpty } from "./diff.ts";
import { diffObserved, NO_TABLE } from "./diff_observed.ts";
import { planChange } from "./plan_change.ts";
import { planNftables } from "../plan/plan.ts";
import type { NftablesOptions, Operations } from "../plan/ruleset.ts";

const NONE = { permissions: "none" } as const;
const OPTIONS = exampleNftablesOptions("IPv4");

function service(
  name: string,
  ips: readonly string[],
  fields: Parameters<typeof testService>[0] = {},
): ApiObject[] {
  return [
    testService({ name, clusterIP: "10.96.0.1", ...fields }),
    testSlice({
      name: `${name}-1`,
      serviceName: name,
      endpoints: ips.map((ip) =>
        testSliceEndpoint(ip, { nodeName: ip.startsWith("10.244.0.") ? "node-a" : "node-b" })
      ),
    }),
  ];
}

/** The operations of a change of the named Services, with whom it affects. */
function change(
  before: readonly ApiObject[],
  after: readonly ApiObject[],
  names: readonly string[],
  changes: Partial<NftablesOptions> = {},
): Operations {
  const committed = exampleCommittedTable(before);
  const state = exampleState("IPv4", after);
  const changed = new Set(names.map((name) => `shop/${name}`));
  return diffNftables(planChange(state, changed, { ...OPTIONS, ...changes }, committed), committed);
}

/** What is deleted and added, as `- container key` and `+ container key : value`. */
function edits({ base, services }: Operations): string[] {
  return [base, ...services].flatMap(({ deletedElements, addedElements }) => [
    ...deletedElements.map(({ container, key }) => `- ${container} ${key}`),
    ...addedElements.map(({ container, key, value }) =>
      `+ ${container} ${key}${value === "" ? "" : ` : ${value}`}`
    ),
  ]);
}

const [A, B, C, D] = ["10.244.1.1", "10.244.1.2", "10.244.1.3", "10.244.1.4"] as const;

Deno.test("an endpoint replaced is one element deleted and one added for each destination", NONE, () => {
  const operations = change(service("web", [A, B, C]), service("web", [A, C, D]), ["web"]);
  assertEquals(edits(operations), [
    "- endpoints-tcp 10.96.0.1 . 80 . 1",
    "+ endpoints-tcp 10.96.0.1 . 80 . 1 : 10.244.1.4 . 8080",
  ]);
  assertEquals([operations.base.sharedChains, operations.services[0]?.writtenChains], [[], []]);
  const open = { type: "NodePort", ports: [testPort({ nodePort: 30080 })] } as const;
  assertEquals(edits(change(service("web", [A, B], open), service("web", [A, C], open), ["web"])), [
    "- endpoints-tcp 10.96.0.1 . 80 . 1",
    "- nodeport-endpoints-tcp 30080 . 1",
    "+ endpoints-tcp 10.96.0.1 . 80 . 1 : 10.244.1.3 . 8080",
    "+ nodeport-endpoints-tcp 30080 . 1 : 10.244.1.3 . 8080",
  ]);
});

Deno.test("another number of endpoints points the destination to another chain", NONE, () => {
  const more = change(service("web", [A, B]), service("web", [A, B, C]), ["web"]);
  assertEquals(edits(more), [
    "- service-ips 10.96.0.1 . tcp . 80",
    "+ service-ips 10.96.0.1 . tcp . 80 : goto tcp-3",
    "+ endpoints-tcp 10.96.0.1 . 80 . 2 : 10.244.1.3 . 8080",
  ]);
  assertEquals(more.base.sharedChains.map(({ name }) => name), ["tcp-3"]);
  const fewer = change(service("web", [A, B, C]), service("web", [B, C]), ["web"]);
  assertEquals(edits(fewer), [
    "- service-ips 10.96.0.1 . tcp . 80",
    "- endpoints-tcp 10.96.0.1 . 80 . 0",
    "- endpoints-tcp 10.96.0.1 . 80 . 2",
    "+ service-ips 10.96.0.1 . tcp . 80 : goto tcp-2",
    "+ endpoints-tcp 10.96.0.1 . 80 . 0 : 10.244.1.3 . 8080",
  ]);
});

Deno.test("a Service that comes or goes is its own elements", NONE, () => {
  const web = service("web", ["10.244.0.1", A]);
  const other = service("other", [C, D], { clusterIP: "10.96.0.2" });
  const added = [
    "cluster-ips 10.96.0.1",
    "hairpin-connections 10.244.0.1 . 10.244.0.1 . tcp . 8080",
    "service-ips 10.96.0.1 . tcp . 80 : goto tcp-2",
    "endpoints-tcp 10.96.0.1 . 80 . 0 : 10.244.0.1 . 8080",
    "endpoints-tcp 10.96.0.1 . 80 . 1 : 10.244.1.1 . 8080",
  ];
  const operations = change(other, [...web, ...other], ["web"]);
  assertEquals(edits(operations), added.map((element) => `+ ${element}`));
  assertEquals([operations.services.length, operations.base.sharedChains], [1, []]);
  const gone = edits(change([...web, ...other], other, ["web"]));
  assertEquals(gone.sort(), added.map((element) => `- ${element.split(" : ")[0]}`).sort());
});

Deno.test("a name that a port had before this process began is the comment of its element, too", NONE, () => {
  const plan = exampleNftablesPlan("IPv4", service("web", [A, B]));
  const table = new NftTable();
  table.apply(diffObserved(plan, NO_TABLE).operations);
  const edited = (comment: string): string[] => {
    const elementComments = new Map([["service-ips", new Map([["10.96.0.1 . tcp . 80", comment]])]]);
    return edits(diffObserved(plan, { ...table.observed(), elementComments }).operations);
  };
  assertEquals(edited("shop/web:former"), [
    "- service-ips 10.96.0.1 . tcp . 80",
    "+ service-ips 10.96.0.1 . tcp . 80 : goto tcp-2",
  ]);
  assertEquals(edited("shop/web"), []);
});

Deno.test(
  "a port of another name is the comment of its element, and nothing else",
  NONE,
  () => {
    const before = service("web", [A, B]);
    const renamed = service("web", [A, B]).map((object): ApiObject =>
      object.kind === "Service"
        ? { ...object, ports: [testPort({ name: "http" })] }
        : object.kind === "EndpointSlice"
        ? { ...object, ports: object.ports.map((port) => ({ ...port, name: "http" })) }
        : object
    );
    const operations = change(before, renamed, ["web"]);
    assertEquals(edits(operations), [
      "- service-ips 10.96.0.1 . tcp . 80",
      "+ service-ips 10.96.0.1 . tcp . 80 : goto tcp-2",
    ]);
    assertEquals(operations.services[0]?.addedElements.map(({ comment }) => comment), ["shop/web:http"]);
    assert(isEmpty(change(renamed, renamed, ["web"])));
    assert(isEmpty(change(before, before, ["web", "nobody"])));
  },
);

Deno.test(
  "ports of other names keep the slots of their destinations, also beside a new node port",
  NONE,
  () => {
    const ports = (names: readonly string[], nodePort: number) => [
      testPort({ name: names[0]!, port: 80, nodePort }),
      testPort({ name: names[1]!, port: 443, nodePort: 30443 }),
    ];
    const objects = (names: readonly string[], nodePort: number, ips: readonly string[]): ApiObject[] =>
      service("web", ips, { type: "NodePort", ports: ports(names, nodePort) }).map((object) =>
        object.kind === "EndpointSlice"
          ? {
            ...object,
            ports: [80, 443].map((port, at) => ({
              ...object.ports[0]!,
              name: names[at]!,
              port: 8000 + port,
            })),
          }
          : object
      );
    const committed = exampleCommittedTable(objects(["http", "https"], 30080, [A, B, C]));
    const names = new Set(["shop/web"]);
    const step = (objects: readonly ApiObject[]): Operations => {
      const plan = planChange(exampleState("IPv4", objects), names, OPTIONS, committed);
      const operations = diffNftables(plan, committed);
      committed.apply(plan);
      return operations;
    };
    const slotEdits = (operations: Operations): string[] =>
      edits(operations).filter((edit) => /^. (nodeport-)?endpoints-/.test(edit));
    // The last one takes the place of the first, so that the slots are not in the order of the endpoints.
    step(objects(["http", "https"], 30080, [B, C]));
    assertEquals(slotEdits(step(objects(["web", "tls"], 30080, [B, C]))), []);
    assertEquals(slotEdits(step(objects(["http", "https"], 30081, [B, C]))).sort(), [
      "+ nodeport-endpoints-tcp 30081 . 0 : 10.244.1.3 . 8080",
      "+ nodeport-endpoints-tcp 30081 . 1 : 10.244.1.2 . 8080",
      "- nodeport-endpoints-tcp 30080 . 0",
      "- nodeport-endpoints-tcp 30080 . 1",
    ]);
  },
);

Deno.test("a full sync writes what is missing of a list and leaves the order of the rest", NONE, () => {
  const plan = exampleNftablesPlan("IPv4", service("web", [A, B, C]));
  const table = new NftTable();
  table.apply(diffObserved(plan, NO_TABLE).operations);
  const endpoints = new Map(
    [C, B, A].map((ip, slot) => [`10.96.0.1 . 80 . ${slot}`, `${ip} . 8080`]),
  );
  endpoints.delete("10.96.0.1 . 80 . 1");
  const observed = table.observed();
  const elements = new Map([...observed.elements, ["endpoints-tcp", endpoints]]);
  assertEquals(edits(diffObserved(plan, { ...observed, elements }).operations), [
    "+ endpoints-tcp 10.96.0.1 . 80 . 1 : 10.244.1.2 . 8080",
  ]);
});

Deno.test("a full sync without a Service that is refused does not write it", NONE, () => {
  const state = exampleState("IPv4", [
    ...service("web", [A]),
    ...service("other", [B], { clusterIP: "10.96.0.2" }),
  ]);
  const plan = planNftables(state, "all", OPTIONS, new Set(["shop/other"]));
  const { operations, committed } = diffObserved(plan, NO_TABLE);
  assertEquals(operations.services.map(({ name }) => name), ["shop/web"]);
  assertEquals([...committed.serviceNames], ["shop/web"]);
});

Deno.test(
  "of two Services with one address the older has it; the other takes over at once",
  NONE,
  () => {
    const lb = (name: string, ip: string, clusterIP: string, createdAtSeconds: number): ApiObject[] =>
      service(name, [ip], {
        type: "LoadBalancer",
        clusterIP,
        createdAtSeconds,
        loadBalancerIngress: [{ ip: "203.0.113.9", ipMode: "VIP" }],
      });
    const first = lb("b", A, "10.96.0.1", 1);
    const second = lb("a", B, "10.96.0.2", 2);
    const shared = (operations: Operations): string[] =>
      edits(operations).filter((edit) => edit.includes("203.0.113.9"));
    // Whoever comes first: the later one has no element there.
    assertEquals(shared(change(first, [...first, ...second], ["a"])), []);
    // The older one takes it over from the other, in one transaction.
    const taken = change(second, [...first, ...second], ["a", "b"]);
    assertEquals(shared(taken).sort(), [
      "+ endpoints-tcp 203.0.113.9 . 80 . 0 : 10.244.1.1 . 8080",
      "+ service-ips 203.0.113.9 . tcp . 80 : goto masq-tcp-1",
      "- endpoints-tcp 203.0.113.9 . 80 . 0",
      "- service-ips 203.0.113.9 . tcp . 80",
    ]);
    assertEquals(taken.services.map(({ name, others }) => [name, ...others]), [["shop/a", "shop/b"]]);
    const back = change([...first, ...second], second, ["a", "b"]);
    assertEquals(shared(back), [
      "- service-ips 203.0.113.9 . tcp . 80",
      "- endpoints-tcp 203.0.113.9 . 80 . 0",
      "+ service-ips 203.0.113.9 . tcp . 80 : goto masq-tcp-1",
      "+ endpoints-tcp 203.0.113.9 . 80 . 0 : 10.244.1.2 . 8080",
    ]);
    assertEquals(back.services.map(({ name, others }) => [name, ...others]), [["shop/a", "shop/b"]]);
  },
);

Deno.test("an element that several Services want is there as long as one of them does", NONE, () => {
  const pod = "10.244.0.1";
  const one = service("one", [pod], { clusterIP: "10.96.0.1" });
  const two = service("two", [pod], { clusterIP: "10.96.0.2" });
  const hairpin = (operations: Operations): string[] =>
    edits(operations).filter((edit) => edit.includes("hairpin"));
  const key = "hairpin-connections 10.244.0.1 . 10.244.0.1 . tcp . 8080";
  assertEquals(hairpin(change(one, [...one, ...two], ["two"])), []);
  assertEquals(hairpin(change([...one, ...two], two, ["one"])), []);
  assertEquals(hairpin(change([...one, ...two], [], ["one", "two"])), [`- ${key}`]);
  // Either may be the only one that gets through.
  assertEquals(hairpin(change([], [...one, ...two], ["one", "two"])), [`+ ${key}`, `+ ${key}`]);
  assertEquals(hairpin(change(one, two, ["one", "two"])), []);
});

Deno.test("affinity: what stays is not touched, clients of what goes are forgotten", NONE, () => {
  const sticky = { sessionAffinity: "ClientIP", affinityTimeoutSeconds: 60 } as const;
  const [operations] =
    change(service("web", [A, B], sticky), service("web", [A, C], sticky), ["web"]).services;
  const kinds = (names: readonly { readonly name: string }[] | undefined) =>
    names?.map(({ name }) => name.split("__")[1] ?? name.split("-")[0]);
  assertEquals(kinds(operations?.writtenSets), ["10.244.1.3/8080"]);
  assertEquals(kinds(operations?.writtenChains), ["10.244.1.3/8080", "service"]);
  assertEquals([operations?.deletedElements, operations?.addedElements], [[], []]);
  assertEquals(operations?.staleChains.map((name) => name.split("__")[1]), ["10.244.1.2/8080"]);
  assertEquals(operations?.staleSets.map((name) => name.split("__")[1]), ["10.244.1.2/8080"]);
  const [longer] = change(
    service("web", [A], sticky),
    service("web", [A], { ...sticky, affinityTimeoutSeconds: 86400 }),
    ["web"],
  ).services;
  assertEquals(longer?.writtenSets.map(({ timeoutSeconds }) => timeoutSeconds), [86400]);
  assertEquals([longer?.writtenChains, longer?.staleSets], [[], []]);
});

Deno.test("changed settings write the chains they show in", NONE, () => {
  const objects = service("web", [A]);
  const changed = change(objects, objects, [], { serviceCidrs: [], nodePortIps: ["192.0.2.11"] });
  assertEquals(changed.base.chains.map(({ name }) => name), ["cluster-ips-check"]);
  assertEquals(edits(changed), ["- nodeport-ips 192.0.2.10", "+ nodeport-ips 192.0.2.11"]);
  assertEquals([changed.base.containers, changed.base.hookedChains, changed.services], [[], [], []]);
});

Deno.test("what is remembered tells what is there", NONE, () => {
  const objects = [
    ...service("web", ["10.244.0.1", A, B]),
    ...service("cart", [C], { clusterIP: "10.96.0.2", sessionAffinity: "ClientIP" }),
  ];
  const committed = exampleCommittedTable(objects);
  assertEquals([...committed.serviceNames].sort(), ["shop/cart", "shop/web"]);
  assertEquals([...committed.sharedChainNames], ["tcp-3"]);
  // Dispatch 2, endpoints 3, cluster IPs 2, hairpin 1, node-port address 1; base 7, shared 1, own 2.
  assertEquals(committed.counts, { elements: 9, chains: 10, affinitySets: 1 });
  assertEquals(committed.service("shop/web")?.lists[0]?.slots, [
    "10.244.0.1 . 8080",
    "10.244.1.1 . 8080",
    "10.244.1.2 . 8080",
  ]);
  assertEquals(committed.service("shop/nobody"), null);
  const gone = planChange(exampleState("IPv4", []), new Set(["shop/web", "shop/cart"]), OPTIONS, committed);
  committed.apply(gone);
  assertEquals([[...committed.serviceNames], committed.counts], [[], {
    elements: 1,
    chains: 8,
    affinitySets: 0,
  }]);
});
