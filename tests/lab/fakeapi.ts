/**
 * A list/watch server over plain HTTP that holds many Services at little cost, for measuring. Deterministic: all addresses
 * follow from the numbers.
 *
 * Usage: `deno run --allow-net=127.0.0.1 tests/lab/fakeapi.ts PORT SERVICES ENDPOINTS_PER_SERVICE`. Prints `ready PORT …`.
 *
 * - Lists in pages (`limit`, `continue`), watches from a version with the history since the start, bookmarks once a minute.
 * - `POST /touch?i=K` gives the first endpoint of Service K its other address; answers `{t, ip, watchers}`, t being the
 *   milliseconds since the epoch at which the event had been written to the watches.
 * - `POST /add?i=K` and `POST /remove?i=K` make and delete Service K with its slice; same answer.
 *
 * @module
 */

interface Entry {
  readonly name: string;
  readonly json: string;
}

interface Collection {
  readonly listKind: string;
  readonly apiVersion: string;
  /** By number; -1 for what is not numbered. */
  readonly entries: Map<number, Entry>;
  readonly watches: Set<ReadableStreamDefaultController<Uint8Array>>;
  /** Lines of all events with their versions. */
  readonly history: { readonly version: number; readonly line: string }[];
}

const [port = 18080, services = 1000, endpoints = 10] = Deno.args.map(Number);
const SERVICE_BASE = (10 << 24 | 96 << 16) >>> 0;
const POD_BASE = (10 << 24 | 128 << 16) >>> 0;
const POD_ADDRESSES = 4_000_000;
const BOOKMARK_MS = 60_000;
const encoder = new TextEncoder();

let version = 1000;
const touched = new Set<number>();

const collections: Readonly<Record<string, Collection>> = {
  services: collection("ServiceList", "v1"),
  endpointslices: collection("EndpointSliceList", "discovery.k8s.io/v1"),
  nodes: collection("NodeList", "v1"),
};

function collection(listKind: string, apiVersion: string): Collection {
  return { listKind, apiVersion, entries: new Map(), watches: new Set(), history: [] };
}

function address(base: number, offset: number): string {
  const number = base + offset;
  return [number >>> 24, (number >>> 16) & 255, (number >>> 8) & 255, number & 255].join(".");
}

function metadata(name: string, rest: Readonly<Record<string, unknown>> = {}): Record<string, unknown> {
  return {
    name,
    namespace: "default",
    uid: name,
    resourceVersion: String(version),
    creationTimestamp: "2026-01-01T00:00:00Z",
    ...rest,
  };
}

function serviceOf(i: number): Record<string, unknown> {
  const clusterIP = address(SERVICE_BASE, i + 10);
  return {
    metadata: metadata(`svc-${i}`),
    spec: {
      type: "ClusterIP",
      clusterIP,
      clusterIPs: [clusterIP],
      ipFamilies: ["IPv4"],
      ipFamilyPolicy: "SingleStack",
      sessionAffinity: "None",
      internalTrafficPolicy: "Cluster",
      selector: { app: `a${i}` },
      ports: [{ name: "http", protocol: "TCP", port: 80, targetPort: 8080 }],
    },
    status: { loadBalancer: {} },
  };
}

function firstAddress(i: number): string {
  return address(POD_BASE, (i * endpoints) % POD_ADDRESSES + (touched.has(i) ? POD_ADDRESSES : 0));
}

function sliceOf(i: number): Record<string, unknown> {
  const labels = { "kubernetes.io/service-name": `svc-${i}` };
  return {
    metadata: metadata(`svc-${i}-abc`, { labels, generateName: `svc-${i}-` }),
    addressType: "IPv4",
    ports: [{ name: "http", protocol: "TCP", port: 8080 }],
    endpoints: Array.from({ length: endpoints }, (_, e) => ({
      addresses: [e === 0 ? firstAddress(i) : address(POD_BASE, (i * endpoints + e) % POD_ADDRESSES)],
      conditions: { ready: true, serving: true, terminating: false },
      nodeName: `node-${e % 100}`,
    })),
  };
}

function nodeN1(): Record<string, unknown> {
  return {
    metadata: metadata("n1", { namespace: undefined, labels: { "kubernetes.io/hostname": "n1" } }),
    spec: { podCIDR: "10.244.0.0/24", podCIDRs: ["10.244.0.0/24"] },
    status: { addresses: [{ type: "InternalIP", address: "10.200.0.1" }] },
  };
}

/** Changes one object and tells the watches. */
function change(
  target: Collection,
  type: string,
  i: number,
  make: (i: number) => Record<string, unknown>,
): void {
  version++;
  const object = make(i);
  const kind = target.listKind.replace(/List$/, "");
  if (type === "DELETED") target.entries.delete(i);
  else target.entries.set(i, entryOf(object));
  const line = `${JSON.stringify({ type, object: { kind, apiVersion: target.apiVersion, ...object } })}\n`;
  target.history.push({ version, line });
  const bytes = encoder.encode(line);
  for (const watch of target.watches) watch.enqueue(bytes);
}

function entryOf(object: Record<string, unknown>): Entry {
  return { name: (object["metadata"] as { name: string }).name, json: JSON.stringify(object) };
}

function list(target: Collection, query: URLSearchParams): Response {
  const limit = Number(query.get("limit")) || Infinity;
  const start = Number(query.get("continue") ?? 0);
  const wanted = /^metadata\.name=(.*)$/.exec(query.get("fieldSelector") ?? "")?.[1];
  const all = [...target.entries.values()].filter(({ name }) => wanted === undefined || name === wanted);
  const items = all.slice(start, start + limit);
  const next = start + limit < all.length ? { continue: String(start + limit) } : {};
  const head = JSON.stringify({
    kind: target.listKind,
    apiVersion: target.apiVersion,
    metadata: { resourceVersion: String(version), ...next },
  });
  return json(`${head.slice(0, -1)},"items":[${items.map((entry) => entry.json).join(",")}]}`);
}

function watch(target: Collection, query: URLSearchParams): Response {
  const from = Number(query.get("resourceVersion") ?? version);
  let bookmark: ReturnType<typeof setInterval>;
  let own: ReadableStreamDefaultController<Uint8Array>;
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      own = controller;
      const missed = target.history.filter((event) => event.version > from).map(({ line }) => line).join("");
      if (missed !== "") controller.enqueue(encoder.encode(missed));
      bookmark = setInterval(() => {
        const object = { metadata: { resourceVersion: String(version) } };
        controller.enqueue(encoder.encode(`${JSON.stringify({ type: "BOOKMARK", object })}\n`));
      }, BOOKMARK_MS);
      target.watches.add(controller);
    },
    cancel() {
      clearInterval(bookmark);
      target.watches.delete(own);
    },
  });
  return new Response(body, { headers: { "content-type": "application/json" } });
}

function json(text: string, status = 200): Response {
  return new Response(text, { status, headers: { "content-type": "application/json" } });
}

function command(name: string, i: number): Response | undefined {
  const { services: svc, endpointslices: eps } = collections as Record<
    "services" | "endpointslices",
    Collection
  >;
  if (name === "touch") {
    if (!touched.delete(i)) touched.add(i);
    change(eps, "MODIFIED", i, sliceOf);
  } else if (name === "add") {
    change(svc, "ADDED", i, serviceOf);
    change(eps, "ADDED", i, sliceOf);
  } else if (name === "remove") {
    change(svc, "DELETED", i, serviceOf);
    change(eps, "DELETED", i, sliceOf);
  } else {
    return undefined;
  }
  return json(JSON.stringify({ t: Date.now(), ip: firstAddress(i), watchers: eps.watches.size }));
}

function answer(request: Request): Response {
  const url = new URL(request.url);
  const last = url.pathname.split("/").at(-1) ?? "";
  const commanded = command(last, Number(url.searchParams.get("i")));
  if (commanded !== undefined) return commanded;
  // Events that a proxy reports are taken and forgotten.
  if (request.method === "POST") {
    return json(`{"apiVersion":"v1","kind":"Event","metadata":{"name":"x"}}`, 201);
  }
  const target = collections[last];
  if (target === undefined) {
    const node = url.pathname.endsWith("/nodes/n1") ? collections["nodes"]?.entries.get(0) : undefined;
    if (node !== undefined) return json(node.json);
    return json(
      '{"kind":"Status","apiVersion":"v1","status":"Failure","code":404,"message":"not found"}',
      404,
    );
  }
  if (url.searchParams.has("sendInitialEvents")) {
    return json('{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}', 422);
  }
  return url.searchParams.has("watch") ? watch(target, url.searchParams) : list(target, url.searchParams);
}

for (let i = 0; i < services; i++) {
  collections["services"]?.entries.set(i, entryOf(serviceOf(i)));
  collections["endpointslices"]?.entries.set(i, entryOf(sliceOf(i)));
}
collections["nodes"]?.entries.set(0, entryOf(nodeN1()));

Deno.serve({
  hostname: "127.0.0.1",
  port,
  onListen: ({ port }) => {
    Deno.stdout.writeSync(encoder.encode(`ready ${port} ${services} ${endpoints}\n`));
  },
}, answer);
