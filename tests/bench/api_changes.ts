/**
 * Changes of a cluster at a steady pace, as its controllers and kubelets make them: `api_changes.ts KUBECONFIG SERVICES PER_SECOND SECONDS`.
 * Each gives an endpoint of a slice another address; every five minutes the node says that it is well. Prints how many it made.
 *
 * @module
 */
import { writeLine } from "../../tools/output.ts";
import { NODE_NAME } from "./fake_objects.ts";

/** As often as a kubelet that has nothing new to say. */
const HEARTBEAT_MS = 300_000;
/** As many images as a kubelet tells of: most of a Node are those. */
const IMAGES = 50;

interface Kubeconfig {
  readonly clusters: readonly [
    { readonly cluster: { readonly server: string; readonly "certificate-authority-data": string } },
  ];
  readonly users: readonly [{ readonly user: { readonly token: string } }];
}

/** Requests that write. */
class Writer {
  readonly #server: string;
  readonly #token: string;
  readonly #http: Deno.HttpClient;

  constructor({ clusters, users }: Kubeconfig) {
    const [{ cluster }] = clusters;
    this.#server = cluster.server;
    this.#token = users[0].user.token;
    this.#http = Deno.createHttpClient({ caCerts: [atob(cluster["certificate-authority-data"])] });
  }

  async send(method: string, path: string, body: unknown, type = "application/json"): Promise<void> {
    const response = await fetch(this.#server + path, {
      method,
      client: this.#http,
      headers: { authorization: `Bearer ${this.#token}`, "content-type": type },
      body: JSON.stringify(body),
    });
    const text = await response.text();
    // What is there already stays.
    if (!response.ok && response.status !== 409) throw new Error(`${method} ${path}: ${text}`);
  }
}

/** A Node of ordinary size, about 8 KB of JSON. */
function nodeObject() {
  const images = Array.from({ length: IMAGES }, (_, i) => ({
    names: [`registry.example.com/team/part-${i}@sha256:${String(i).padStart(64, "0")}`],
    sizeBytes: 50_000_000 + i,
  }));
  const status = { addresses: [{ type: "InternalIP", address: "10.78.0.2" }], images };
  const spec = { podCIDR: "10.128.0.0/24", podCIDRs: ["10.128.0.0/24"] };
  return { apiVersion: "v1", kind: "Node", metadata: { name: NODE_NAME }, spec, status };
}

async function run(kubeconfig: Kubeconfig, services: number, perSecond: number, seconds: number) {
  const writer = new Writer(kubeconfig);
  await writer.send("POST", "/api/v1/nodes", nodeObject());
  const beganMs = performance.now();
  let beats = 0;
  const count = Math.round(perSecond * seconds);
  const sleepUntil = async (ms: number): Promise<void> => {
    const leftMs = beganMs + ms - performance.now();
    if (leftMs > 0) await new Promise((resolve) => setTimeout(resolve, leftMs));
  };
  for (let i = 0; i < count; i++) {
    await sleepUntil(1000 * i / perSecond);
    if (performance.now() - beganMs >= HEARTBEAT_MS * (beats + 1)) {
      beats++;
      const patch = { metadata: { annotations: { "example.com/heartbeat": String(beats) } } };
      await writer.send("PATCH", `/api/v1/nodes/${NODE_NAME}`, patch, "application/merge-patch+json");
    }
    // Far from the one before: no two changes of one sync are of one Service.
    const service = `svc-${String(i * 7919 % services).padStart(5, "0")}-0`;
    const path = `/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/${service}`;
    const address = `10.${192 + (i >> 16) % 64}.${i >> 8 & 255}.${i & 255}`;
    const patch = [{ op: "replace", path: "/endpoints/0/addresses/0", value: address }];
    await writer.send("PATCH", path, patch, "application/json-patch+json");
  }
  await sleepUntil(1000 * seconds);
  writeLine(JSON.stringify({ changes: count, beats }));
}

if (import.meta.main) {
  const [path = "", ...numbers] = Deno.args;
  const [services = 1, perSecond = 1, seconds = 0] = numbers.map(Number);
  await run(JSON.parse(await Deno.readTextFile(path)), services, perSecond, seconds);
  Deno.exit(0);
}
