/** How little a change writes; that it is right is shown by the laws. */
import { assertEquals } from "@std/assert";
import { exampleState } from "../../../../tests/support/golden.ts";
import {
  exampleNftablesOptions,
  exampleNftablesPlan,
  exampleStore,
} from "../../../../tests/support/golden_nftables.ts";
import {
  testPort,
  testService,
  testSlice,
  testSliceEndpoint,
} from "../../../../tests/support/model_objects.ts";
import type { ApiObject } from "../../../model/objects.ts";
import type { NftTransaction } from "../../../netfilter/nft_objects.ts";
import { parseTable } from "../../../netfilter/nft_listing.ts";
import { planNftables } from "../plan/plan.ts";
import type { NftablesOptions, NftablesPlan } from "../plan/ruleset.ts";
import { atOnce } from "../../planning.ts";
import { findDrift, FullSync, renderPlan } from "./full_sync.ts";
import { FakeNft } from "../../../../tests/support/fake_nft.ts";

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

function planOf(
  objects: readonly ApiObject[],
  names: readonly string[],
  changes: Partial<NftablesOptions> = {},
): NftablesPlan {
  const changed = new Set(names.map((name) => `shop/${name}`));
  return planNftables(exampleState("IPv4", objects), changed, { ...OPTIONS, ...changes });
}

/** Transaction of a change of the named Services. */
function change(
  before: readonly ApiObject[],
  after: readonly ApiObject[],
  names: readonly string[],
  changes: Partial<NftablesOptions> = {},
): NftTransaction {
  return exampleStore(before).change(planOf(after, names, changes)).transaction;
}

/** Deleted and added elements, as `- container key` and `+ container key : value`. */
function edits({ deletedElements, addedElements }: NftTransaction): string[] {
  return [
    ...deletedElements.map(({ container, key }) => `- ${container} ${key}`),
    ...addedElements.map(({ container, key, value }) =>
      `+ ${container} ${key}${value === "" ? "" : ` : ${value}`}`
    ),
  ];
}

const [A, B, C, D] = ["10.244.1.1", "10.244.1.2", "10.244.1.3", "10.244.1.4"] as const;

Deno.test("an endpoint replaced is one element deleted and one added for each destination", NONE, () => {
  const operations = change(service("web", [A, B, C]), service("web", [A, C, D]), ["web"]);
  assertEquals(edits(operations), [
    "- endpoints-tcp 10.96.0.1 . 80 . 1",
    "+ endpoints-tcp 10.96.0.1 . 80 . 1 : 10.244.1.4 . 8080",
  ]);
  assertEquals(operations.chains, []);
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
  assertEquals(more.chains.map(({ name }) => name), ["tcp-3"]);
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
  assertEquals(operations.chains, []);
  const gone = edits(change([...web, ...other], other, ["web"]));
  assertEquals(gone.sort(), added.map((element) => `- ${element.split(" : ")[0]}`).sort());
});

/** The table that a plan makes, as nft lists it. */
async function listedOf(plan: NftablesPlan): Promise<string> {
  const fake = new FakeNft();
  await fake.others(renderPlan(plan));
  return fake.listed("ip kproxy");
}

/** What a full sync over a listed table writes for Services. */
function resync(plan: NftablesPlan, listed: string): string[] {
  return [...new FullSync(plan, parseTable(listed)).services()].flatMap(({ transaction }) =>
    edits(transaction)
  );
}

Deno.test(
  "a name that a port had before this process began is the comment of its element, too",
  NONE,
  async () => {
    const plan = exampleNftablesPlan("IPv4", service("web", [A, B]));
    const listed = await listedOf(plan);
    const edited = (comment: string): string[] =>
      resync(plan, listed.replace("10.96.0.1 . tcp . 80", `10.96.0.1 . tcp . 80 comment "${comment}"`));
    assertEquals(edited("shop/web:former"), [
      "- service-ips 10.96.0.1 . tcp . 80",
      "+ service-ips 10.96.0.1 . tcp . 80 : goto tcp-2",
    ]);
    assertEquals(edited("shop/web"), []);
  },
);

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
    assertEquals(operations.addedElements.map(({ comment }) => comment), ["shop/web:http"]);
    assertEquals(change(renamed, renamed, ["web"]).isEmpty, true);
    assertEquals(change(before, before, ["web", "nobody"]).isEmpty, true);
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
    const store = exampleStore(objects(["http", "https"], 30080, [A, B, C]));
    const step = (objects: readonly ApiObject[]): NftTransaction => {
      const { transaction, commit } = store.change(planOf(objects, ["web"]));
      commit();
      return transaction;
    };
    const slotEdits = (operations: NftTransaction): string[] =>
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

Deno.test("a full sync writes what is missing of a list and leaves the order of the rest", NONE, async () => {
  const plan = exampleNftablesPlan("IPv4", service("web", [A, B, C]));
  const listed = (await listedOf(plan)).replace(
    /10\.96\.0\.1 \. 80 \. 0 : [\s\S]*?\}/,
    () => `10.96.0.1 . 80 . 0 : ${C} . 8080, 10.96.0.1 . 80 . 2 : ${A} . 8080 }`,
  );
  assertEquals(resync(plan, listed), ["+ endpoints-tcp 10.96.0.1 . 80 . 1 : 10.244.1.2 . 8080"]);
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
    const shared = (operations: NftTransaction): string[] =>
      edits(operations).filter((edit) => edit.includes("203.0.113.9"));
    // The first one wins: the later one has no element there.
    assertEquals(shared(change(first, [...first, ...second], ["a"])), []);
    // The older one takes it over from the other, in one transaction.
    const taken = change(second, [...first, ...second], ["a", "b"]);
    assertEquals(shared(taken).sort(), [
      "+ endpoints-tcp 203.0.113.9 . 80 . 0 : 10.244.1.1 . 8080",
      "+ service-ips 203.0.113.9 . tcp . 80 : goto masq-tcp-1",
      "- endpoints-tcp 203.0.113.9 . 80 . 0",
      "- service-ips 203.0.113.9 . tcp . 80",
    ]);
    const back = change([...first, ...second], second, ["a", "b"]);
    assertEquals(shared(back), [
      "- service-ips 203.0.113.9 . tcp . 80",
      "- endpoints-tcp 203.0.113.9 . 80 . 0",
      "+ service-ips 203.0.113.9 . tcp . 80 : goto masq-tcp-1",
      "+ endpoints-tcp 203.0.113.9 . 80 . 0 : 10.244.1.2 . 8080",
    ]);
  },
);

Deno.test("an element that several Services want is there as long as one of them does", NONE, () => {
  const pod = "10.244.0.1";
  const one = service("one", [pod], { clusterIP: "10.96.0.1" });
  const two = service("two", [pod], { clusterIP: "10.96.0.2" });
  const hairpin = (operations: NftTransaction): string[] =>
    edits(operations).filter((edit) => edit.includes("hairpin"));
  const key = "hairpin-connections 10.244.0.1 . 10.244.0.1 . tcp . 8080";
  assertEquals(hairpin(change(one, [...one, ...two], ["two"])), []);
  assertEquals(hairpin(change([...one, ...two], two, ["one"])), []);
  assertEquals(hairpin(change([...one, ...two], [], ["one", "two"])), [`- ${key}`]);
  // Of a full sync either may be the only one that gets through.
  const both = [...one, ...two];
  const { length } = resync(exampleNftablesPlan("IPv4", both), "").filter((edit) => edit === `+ ${key}`);
  assertEquals(length, 2);
  assertEquals(hairpin(change(one, two, ["one", "two"])), []);
});

Deno.test("affinity: what stays is not touched, clients of what goes are forgotten", NONE, () => {
  const sticky = { sessionAffinity: "ClientIP", affinityTimeoutSeconds: 60 } as const;
  const operations = change(service("web", [A, B], sticky), service("web", [A, C], sticky), ["web"]);
  const kinds = (names: readonly { readonly name: string }[]) =>
    names.map(({ name }) => name.split("__")[1] ?? name.split("-")[0]);
  assertEquals(kinds(operations.containers), ["10.244.1.3/8080"]);
  assertEquals(kinds(operations.chains), ["10.244.1.3/8080", "service"]);
  assertEquals([operations.deletedElements, operations.addedElements], [[], []]);
  assertEquals(operations.flushedChains.map((name) => name.split("__")[1]), ["10.244.1.2/8080"]);
  assertEquals(operations.deletedContainers.map((name) => name.split("__")[1]), ["10.244.1.2/8080"]);
  const longer = change(
    service("web", [A], sticky),
    service("web", [A], { ...sticky, affinityTimeoutSeconds: 86400 }),
    ["web"],
  );
  assertEquals(longer.containers.map(({ timeoutSeconds }) => timeoutSeconds), [86400]);
  assertEquals([longer.chains, longer.deletedContainers], [[], []]);
});

Deno.test("changed settings write the chains they show in", NONE, () => {
  const objects = service("web", [A]);
  const changed = change(objects, objects, [], { serviceCidrs: [], nodePortIps: ["192.0.2.11"] });
  assertEquals(changed.chains.map(({ name }) => name), ["cluster-ips-check"]);
  assertEquals(edits(changed), ["- nodeport-ips 192.0.2.10", "+ nodeport-ips 192.0.2.11"]);
  assertEquals([changed.containers, changed.baseChains, changed.flushedChains], [[], [], []]);
});

Deno.test("what is remembered tells what is there", NONE, () => {
  const objects = [
    ...service("web", ["10.244.0.1", A, B]),
    ...service("cart", [C], { clusterIP: "10.96.0.2", sessionAffinity: "ClientIP" }),
  ];
  const store = exampleStore(objects);
  assertEquals([...store.serviceNames].sort(), ["shop/cart", "shop/web"]);
  // Dispatch 2, endpoints 3, cluster IPs 2, hairpin 1, node-port address 1; base 7, shared 1, own 2.
  assertEquals(store.counts, { elements: 9, chains: 10, sets: 22 });
  assertEquals(store.service("shop/web").elements.at(-1), {
    container: "endpoints-tcp",
    key: "10.96.0.1 . 80 . 2",
    value: "10.244.1.2 . 8080",
  });
  assertEquals(store.service("shop/nobody"), { containers: [], chains: [], elements: [] });
  store.change(planOf([], ["web", "cart"])).commit();
  assertEquals([[...store.serviceNames], store.counts], [[], { elements: 1, chains: 8, sets: 21 }]);
});

Deno.test("a sample has one element of each set and map that has any, whichever Services go", NONE, () => {
  const cart = service("cart", [C], { clusterIP: "10.96.0.2", sessionAffinity: "ClientIP" });
  const other = service("other", [C], { clusterIP: "10.96.0.3" });
  const store = exampleStore([...service("web", ["10.244.0.1", A]), ...cart, ...other]);
  const sampled = (): string[] =>
    store.sample().map(({ container, key }) => {
      assertEquals(key === "" || container === "", false);
      return container;
    }).sort();
  const always = ["cluster-ips", "nodeport-ips", "service-ips"];
  assertEquals(sampled(), [...always, "endpoints-tcp", "hairpin-connections"].sort());
  store.change(planOf([...cart, ...other], ["web"])).commit();
  assertEquals(sampled(), [...always, "endpoints-tcp"].sort());
  assertEquals(
    store.sample().find(({ container }) => container === "endpoints-tcp")?.key,
    "10.96.0.3 . 80 . 0",
  );
  store.change(planOf(cart, ["other"])).commit();
  assertEquals(sampled(), always);
  store.change(planOf([], ["cart"])).commit();
  assertEquals(sampled(), ["nodeport-ips"]);
});

Deno.test(
  "what a refused Service kept is written anew for another one, once the first is gone",
  NONE,
  async () => {
    const ip = { externalIPs: ["198.51.100.1"] };
    const kept = service("a", [A], ip);
    const sync = new FullSync(
      exampleNftablesPlan("IPv4", service("a", [A, D], ip)),
      parseTable(await listedOf(exampleNftablesPlan("IPv4", kept))),
      new Set(["shop/a"]),
    );
    for (const _ of sync.services());
    const { store } = sync;
    store.change(planOf([], ["a"])).commit();
    const same = service("b", [A], { clusterIP: "10.96.0.2", ...ip });
    const added = edits(store.change(planOf(same, ["b"])).transaction);
    assertEquals(added.filter((edit) => edit.includes("198.51.100.1")), [
      "+ service-ips 198.51.100.1 . tcp . 80 : goto masq-tcp-1",
      "+ endpoints-tcp 198.51.100.1 . 80 . 0 : 10.244.1.1 . 8080",
    ]);
  },
);

Deno.test(
  "what a refused Service keeps goes to another one that the state gives it to, and stays there",
  NONE,
  async () => {
    const ip = { externalIPs: ["198.51.100.1"] };
    const [kept, other] = [service("a", [A], ip), service("b", [B, C], { clusterIP: "10.96.0.2" })];
    const wanted = exampleNftablesPlan("IPv4", [...service("a", [A, D], ip), ...other]);
    const sync = new FullSync(
      wanted,
      parseTable(await listedOf(exampleNftablesPlan("IPv4", [...kept, ...other]))),
      new Set(["shop/a"]),
    );
    for (const _ of sync.services());
    assertEquals(sync.leftover().lines("t"), []);
    const { store } = sync;
    const shared = (operations: NftTransaction): string[] =>
      edits(operations).filter((edit) => edit.includes("198.51.100.1"));
    const after = [...service("a", [A, D]), ...service("b", [B, C], { clusterIP: "10.96.0.2", ...ip })];
    const { transaction, commit } = store.change(planOf(after, ["b"]));
    assertEquals(shared(transaction), [
      "- service-ips 198.51.100.1 . tcp . 80",
      "- endpoints-tcp 198.51.100.1 . 80 . 0",
      "+ service-ips 198.51.100.1 . tcp . 80 : goto masq-tcp-2",
      "+ endpoints-tcp 198.51.100.1 . 80 . 0 : 10.244.1.2 . 8080",
      "+ endpoints-tcp 198.51.100.1 . 80 . 1 : 10.244.1.3 . 8080",
    ]);
    commit();
    const gone = store.change(planOf(other, ["a"])).transaction;
    assertEquals(shared(gone), []);
    assertEquals(edits(gone).sort(), [
      "- cluster-ips 10.96.0.1",
      "- endpoints-tcp 10.96.0.1 . 80 . 0",
      "- service-ips 10.96.0.1 . tcp . 80",
    ]);
  },
);

Deno.test(
  "a refused Service keeps the slots of those destinations that are there, and of no others",
  NONE,
  async () => {
    const open = (nodePort: number) => ({ type: "NodePort", ports: [testPort({ nodePort })] } as const);
    const listed = await listedOf(exampleNftablesPlan("IPv4", service("web", [A, B], open(30080))));
    const kept = (nodePort: number): readonly string[] => {
      const sync = new FullSync(
        exampleNftablesPlan("IPv4", service("web", [A], open(nodePort))),
        parseTable(listed),
        new Set(["shop/web"]),
      );
      for (const _ of sync.services());
      return sync.store.service("shop/web").elements.map(({ container, key, value }) =>
        `${container} ${key} ${value}`
      );
    };
    const own = [
      "service-ips 10.96.0.1 . tcp . 80 goto tcp-2",
      "cluster-ips 10.96.0.1 ",
      "endpoints-tcp 10.96.0.1 . 80 . 0 10.244.1.1 . 8080",
      "endpoints-tcp 10.96.0.1 . 80 . 1 10.244.1.2 . 8080",
    ];
    assertEquals(kept(30081).toSorted(), own.toSorted());
    assertEquals(kept(30080).length, own.length + 3);
  },
);

Deno.test("very many elements that another process added are drift, and go", NONE, async () => {
  const objects = service("web", [A]);
  const plan = exampleNftablesPlan("IPv4", objects);
  const many = Array.from({ length: 200_000 }, (_, at) => `10.${at >> 16}.${(at >> 8) & 255}.${at & 255}`);
  const listed = parseTable((await listedOf(plan)).replace("10.96.0.1 ", `${many.join(", ")}, 10.96.0.1 `));
  const drift = atOnce(findDrift(exampleStore(objects), listed));
  assertEquals(drift.flatMap(({ deletedElements }) => deletedElements).length, many.length);
  assertEquals(new FullSync(plan, listed).leftover().deletedElements.length > many.length, true);
});

Deno.test(
  "a refused Service keeps the chains and sets of its own name; one that wants nothing has nothing to keep",
  NONE,
  async () => {
    const sticky = { sessionAffinity: "ClientIP" } as const;
    const both = [
      ...service("web", [A], sticky),
      ...service("cart", [B], { clusterIP: "10.96.0.2", ...sticky }),
    ];
    const plan = exampleNftablesPlan("IPv4", both);
    const nothing = new Map([...plan.services, ["shop/none", null] as const]);
    const refused = new Set(["shop/web", "shop/none"]);
    const sync = new FullSync({ ...plan, services: nothing }, parseTable(await listedOf(plan)), refused);
    assertEquals([...sync.services()], []);
    const { containers, chains } = sync.store.service("shop/web");
    assertEquals(containers.map(({ name }) => name.includes("shop/web/")), [true]);
    assertEquals(chains.map(({ name }) => name.includes("shop/web/")), [true, true]);
    assertEquals([...sync.store.serviceNames].sort(), ["shop/cart", "shop/web"]);
    assertEquals(sync.leftover().lines("t"), []);
  },
);
