/**
 * An API server for measuring: lists (paged) and watches of a made-up cluster over plain HTTP on loopback, and a second
 * listener on a Unix socket through which the cluster is changed from another network namespace.
 *
 * ```text
 * deno run --allow-net=127.0.0.1:PORT,unix:SOCKET --allow-read=SOCKET --allow-write=SOCKET fake_api.ts PORT SOCKET SERVICES ENDPOINTS
 * ```
 *
 * | path | what it does |
 * | --- | --- |
 * | `/touch?i=K` | replaces the first endpoint of Service K |
 * | `/slice/add?i=K`, `/slice/delete?i=K` | makes or removes the slice of Service K |
 * | `/service/add?i=K`, `/service/delete?i=K` | makes or removes Service K without its slice |
 * | `POST /put/services?i=K`, `POST /put/endpointslices?i=K` | makes or replaces object K of that kind by what is sent; of no text removes it |
 *
 * Each answers `{ atMs, ip }`: when the watch event was handed to the connections, in milliseconds since the epoch, and
 * the address by which the change can be recognised in the kernel. It prints `ready` when it can be asked.
 *
 * @module
 */
import { writeLine } from "../../tools/output.ts";
import {
  clusterIp,
  type ClusterSize,
  endpointIp,
  NODE_NAME,
  nodeObject,
  serviceObject,
  sliceObject,
} from "./fake_objects.ts";

/** What is listed and watched. */
export type Resource = "services" | "endpointslices" | "nodes" | "servicecidrs";
type Watcher = ReadableStreamDefaultController<Uint8Array>;

interface ListMeta {
  readonly apiVersion: string;
  readonly kind: string;
}

const LISTS: Readonly<Record<Resource, ListMeta>> = {
  services: { apiVersion: "v1", kind: "ServiceList" },
  endpointslices: { apiVersion: "discovery.k8s.io/v1", kind: "EndpointSliceList" },
  nodes: { apiVersion: "v1", kind: "NodeList" },
  servicecidrs: { apiVersion: "networking.k8s.io/v1", kind: "ServiceCIDRList" },
};
const BOOKMARK_MS = 45_000;
const encoder = new TextEncoder();

/** When the change was handed over, and how to recognise it. */
export interface Change {
  readonly atMs: number;
  readonly ip: string;
}

/** What the server has and who watches it. */
export class FakeCluster {
  readonly #size: ClusterSize;
  readonly #touched = new Set<number>();
  /** Texts of the objects: a list is put together from them. */
  readonly #texts: Readonly<Record<Resource, Map<number, string>>> = {
    services: new Map(),
    endpointslices: new Map(),
    nodes: new Map([[0, JSON.stringify(nodeObject())]]),
    servicecidrs: new Map(),
  };
  readonly #watchers: Readonly<Record<Resource, Set<Watcher>>> = {
    services: new Set(),
    endpointslices: new Set(),
    nodes: new Set(),
    servicecidrs: new Set(),
  };
  #version = 1000;

  constructor(size: ClusterSize) {
    this.#size = size;
    for (let i = 0; i < size.services; i++) {
      this.#texts.services.set(i, this.#service(i));
      this.#texts.endpointslices.set(i, this.#slice(i));
    }
  }

  /** The text of a list of at most `limit` (0: all) objects from number `offset` on. */
  page(resource: Resource, limit: number, offset: number): string {
    const texts = [...this.#texts[resource].values()];
    const end = limit > 0 ? offset + limit : texts.length;
    const items = texts.slice(offset, end);
    const left = texts.length - offset - items.length;
    const metadata = {
      resourceVersion: String(this.#version),
      ...(left > 0 ? { continue: String(end), remainingItemCount: left } : {}),
    };
    const { apiVersion, kind } = LISTS[resource];
    return `{"kind":"${kind}","apiVersion":"${apiVersion}","metadata":${JSON.stringify(metadata)},"items":[${
      items.join(",")
    }]}`;
  }

  /** Every change from now on. */
  watch(resource: Resource): ReadableStream<Uint8Array> {
    const watchers = this.#watchers[resource];
    let own: Watcher | undefined;
    return new ReadableStream({
      start(controller) {
        own = controller;
        watchers.add(controller);
      },
      cancel() {
        if (own !== undefined) watchers.delete(own);
      },
    });
  }

  /** Replaces the first endpoint of a Service. */
  touch(index: number): Change {
    if (!this.#touched.delete(index)) this.#touched.add(index);
    const atMs = this.#emit("endpointslices", "MODIFIED", index, this.#slice(index));
    return { atMs, ip: endpointIp(index, 0, this.#size, this.#touched.has(index)) };
  }

  addSlice(index: number): Change {
    const atMs = this.#emit("endpointslices", "ADDED", index, this.#slice(index));
    return { atMs, ip: endpointIp(index, 0, this.#size, false) };
  }

  deleteSlice(index: number): Change {
    const atMs = this.#emit("endpointslices", "DELETED", index, this.#slice(index));
    return { atMs, ip: endpointIp(index, 0, this.#size, false) };
  }

  addService(index: number): Change {
    return { atMs: this.#emit("services", "ADDED", index, this.#service(index)), ip: clusterIp(index) };
  }

  deleteService(index: number): Change {
    return { atMs: this.#emit("services", "DELETED", index, this.#service(index)), ip: clusterIp(index) };
  }

  /** What a server sends about once a minute, so that its clients know that the connection lives. */
  bookmark(): void {
    const metadata = { resourceVersion: String(this.#version) };
    for (const resource of Object.keys(LISTS) as Resource[]) {
      const { apiVersion, kind } = LISTS[resource];
      const object = { kind: kind.replace(/List$/, ""), apiVersion, metadata };
      const event = encoder.encode(`${JSON.stringify({ type: "BOOKMARK", object })}\n`);
      for (const watcher of this.#watchers[resource]) watcher.enqueue(event);
    }
  }

  /** Makes or replaces an object by its text; removes it if that is empty. */
  put(resource: Resource, index: number, text: string): Change {
    const known = this.#texts[resource].get(index);
    const type = text === "" ? "DELETED" : known === undefined ? "ADDED" : "MODIFIED";
    return { atMs: this.#emit(resource, type, index, text === "" ? known ?? "{}" : text), ip: "" };
  }

  #emit(resource: Resource, type: "ADDED" | "MODIFIED" | "DELETED", index: number, text: string): number {
    if (type === "DELETED") this.#texts[resource].delete(index);
    else this.#texts[resource].set(index, text);
    const event = encoder.encode(`{"type":"${type}","object":${text}}\n`);
    const atMs = performance.timeOrigin + performance.now();
    for (const watcher of this.#watchers[resource]) watcher.enqueue(event);
    return atMs;
  }

  #service(index: number): string {
    return JSON.stringify(serviceObject(index, ++this.#version));
  }

  #slice(index: number): string {
    return JSON.stringify(sliceObject(index, ++this.#version, this.#size, this.#touched.has(index)));
  }
}

function json(text: string, status = 200): Response {
  return new Response(text, { status, headers: { "content-type": "application/json" } });
}

function change(cluster: FakeCluster, url: URL): Change | undefined {
  const index = Number(url.searchParams.get("i"));
  switch (url.pathname) {
    case "/touch":
      return cluster.touch(index);
    case "/slice/add":
      return cluster.addSlice(index);
    case "/slice/delete":
      return cluster.deleteSlice(index);
    case "/service/add":
      return cluster.addService(index);
    case "/service/delete":
      return cluster.deleteService(index);
  }
  return undefined;
}

function answer(cluster: FakeCluster, request: Request): Response {
  const url = new URL(request.url);
  const changed = change(cluster, url);
  if (changed !== undefined) return json(JSON.stringify(changed));
  if (request.method === "POST") {
    const apiVersion = url.pathname.includes("/events.k8s.io/v1/") ? "events.k8s.io/v1" : "v1";
    return json(JSON.stringify({ kind: "Event", apiVersion }), 201);
  }
  if (url.pathname.endsWith(`/nodes/${NODE_NAME}`)) return json(JSON.stringify(nodeObject()));
  const resource = url.pathname.split("/").at(-1) ?? "";
  if (!Object.hasOwn(LISTS, resource)) {
    return json(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":404}`, 404);
  }
  const known = resource as Resource;
  if (url.searchParams.has("sendInitialEvents")) {
    // As of a server that has no such watches: clients list then.
    return json(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`, 422);
  }
  if (["1", "true"].includes(url.searchParams.get("watch") ?? "")) {
    return new Response(cluster.watch(known), { headers: { "content-type": "application/json" } });
  }
  const number = (name: string): number => Number(url.searchParams.get(name) ?? 0);
  // From memory, as servers do: as a whole, whatever the limit.
  const limit = url.searchParams.get("resourceVersion") === "0" ? 0 : number("limit");
  return json(cluster.page(known, limit, number("continue")));
}

/** The second listener's answers. */
async function answerOwner(cluster: FakeCluster, request: Request): Promise<Response> {
  const url = new URL(request.url);
  const [, put, resource = ""] = url.pathname.split("/");
  if (put !== "put" || !Object.hasOwn(LISTS, resource)) return answer(cluster, request);
  const index = Number(url.searchParams.get("i"));
  return json(JSON.stringify(cluster.put(resource as Resource, index, await request.text())));
}

if (import.meta.main) {
  const [port = "", socket = "", services = "", endpoints = ""] = Deno.args;
  const cluster = new FakeCluster({ services: Number(services), endpoints: Number(endpoints) });
  const handler = (request: Request): Response => answer(cluster, request);
  const onListen = (): void => {};
  Deno.serve({ hostname: "127.0.0.1", port: Number(port), onListen }, handler);
  Deno.serve({ path: socket, onListen }, (request) => answerOwner(cluster, request));
  setInterval(() => cluster.bookmark(), BOOKMARK_MS);
  writeLine("ready");
}
