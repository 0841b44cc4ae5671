import { assertEquals, assertRejects } from "@std/assert";
import type { ApiObject, EndpointSlice, NodeObject, Service, ServiceCidr } from "../model/objects.ts";
import { inform, type InformerHandlers } from "./informer.ts";
import type { ResourceEventHandler, SourceEvent } from "./source.ts";
import { decodeObject } from "./decode/decode.ts";

function decoded(raw: unknown): ApiObject {
  const [object] = decodeObject(raw, "test", { manifest: true }).objects;
  if (object === undefined) throw new TypeError("no object");
  return object;
}

function service(name: string, port: number): Service {
  const spec = { clusterIP: "10.96.10.1", ports: [{ port }] };
  return decoded({
    apiVersion: "v1",
    kind: "Service",
    metadata: { namespace: "shop", name },
    spec,
  }) as Service;
}

const SLICE = decoded({
  apiVersion: "discovery.k8s.io/v1",
  kind: "EndpointSlice",
  metadata: { namespace: "shop", name: "web-1", labels: { "kubernetes.io/service-name": "web" } },
  addressType: "IPv4",
  ports: [{ port: 8080 }],
  endpoints: [],
}) as EndpointSlice;
const NODE = decoded({ apiVersion: "v1", kind: "Node", metadata: { name: "node-a" } }) as NodeObject;
const CIDR: ServiceCidr = { kind: "ServiceCIDR", name: "kubernetes", cidrs: ["10.96.0.0/12"] };

/** A source that calls `say` with its handler, then waits for its end. */
function source(say: (handler: ResourceEventHandler) => void) {
  return {
    name: "test",
    run(handler: ResourceEventHandler, signal: AbortSignal): Promise<void> {
      say(handler);
      if (signal.aborted) return Promise.resolve();
      return new Promise<void>((resolve) =>
        signal.addEventListener("abort", () => resolve(), { once: true })
      );
    },
  };
}

/** Handlers that record each call. */
function recording(told: string[]): InformerHandlers {
  const of = (kind: string) => ({
    add: ({ name }: { readonly name: string }) => void told.push(`${kind} add ${name}`),
    update: (_old: unknown, { name }: { readonly name: string }) => void told.push(`${kind} update ${name}`),
    delete: ({ name }: { readonly name: string }) => void told.push(`${kind} delete ${name}`),
    synced: () => void told.push(`${kind} synced`),
  });
  return {
    services: of("services"),
    endpointSlices: of("endpointslices"),
    nodes: of("nodes"),
    serviceCidrs: of("servicecidrs"),
    rejected: ({ object, message }) => void told.push(`rejected ${object}: ${message}`),
    failed: (kind, reason) => void told.push(`failed ${kind}: ${reason}`),
    refused: (kind, reason) => void told.push(`refused ${kind}: ${reason}`),
    heard: (kind) => void told.push(`heard ${kind}`),
  };
}

const WEB = service("web", 80);
const CHANGED = service("web", 81);

Deno.test(
  "handlers of each kind hear of what is new, changed and gone, in order",
  { permissions: "none" },
  async () => {
    const told: string[] = [];
    const ending = new AbortController();
    let wantsServiceCidrs: boolean | undefined;
    await inform(
      source((handler) => {
        ({ wantsServiceCidrs } = handler);
        handler.events([
          { type: "add", object: WEB },
          { type: "add", object: SLICE },
          { type: "add", object: NODE },
          { type: "add", object: CIDR },
          ...(["services", "endpointslices", "nodes", "servicecidrs"] as const)
            .map((kind): SourceEvent => ({ type: "synced", kind })),
        ]);
        handler.events([{ type: "update", old: WEB, object: CHANGED }]);
        handler.rejected({ where: "a.yaml:3", object: "Service shop/odd", message: "no port" });
        handler.failed?.("services", "refused");
        handler.heard?.("services");
        handler.refused?.("nodes", "forbidden");
        handler.events([{ type: "delete", old: CHANGED }, { type: "delete", old: SLICE }]);
        ending.abort();
      }),
      recording(told),
      ending.signal,
    );
    assertEquals(told, [
      "services add web",
      "endpointslices add web-1",
      "nodes add node-a",
      "servicecidrs add kubernetes",
      "services synced",
      "endpointslices synced",
      "nodes synced",
      "servicecidrs synced",
      "services update web",
      "rejected Service shop/odd: no port",
      "failed services: refused",
      "heard services",
      "refused nodes: forbidden",
      "services delete web",
      "endpointslices delete web-1",
    ]);
    assertEquals(wantsServiceCidrs, true);
  },
);

Deno.test("a kind without handlers is passed over, and ServiceCIDRs are then not asked for", {
  permissions: "none",
}, async () => {
  const ending = new AbortController();
  let wantsServiceCidrs: boolean | undefined;
  const rejected: string[] = [];
  await inform(
    source((handler) => {
      ({ wantsServiceCidrs } = handler);
      handler.events([{ type: "add", object: WEB }, { type: "synced", kind: "nodes" }]);
      ending.abort();
    }),
    { rejected: ({ message }) => void rejected.push(message) },
    ending.signal,
  );
  assertEquals([wantsServiceCidrs, rejected], [false, []]);
});

Deno.test("what a handler throws ends the informer, and no handler is called after it", {
  permissions: "none",
}, async () => {
  const told: string[] = [];
  const failing: InformerHandlers = {
    ...recording(told),
    services: {
      add: () => {
        throw new RangeError("too many Services");
      },
    },
  };
  const say = (handler: ResourceEventHandler): void => {
    handler.events([{ type: "add", object: NODE }, { type: "add", object: WEB }, {
      type: "delete",
      old: NODE,
    }]);
  };
  await assertRejects(
    () => inform(source(say), failing, new AbortController().signal),
    RangeError,
    "too many Services",
  );
  assertEquals(told, ["nodes add node-a"]);
});

Deno.test("why a source cannot go on is reported", { permissions: "none" }, async () => {
  const broken = { name: "test", run: () => Promise.reject(new TypeError("no such path")) };
  await assertRejects(
    () => inform(broken, { rejected: () => {} }, new AbortController().signal),
    TypeError,
    "no such path",
  );
});
