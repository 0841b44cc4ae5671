/**
 * A hostile program on the node that pretends to be kproxy: serves its documents, with a kubeconfig and objects of its own, at the port of
 * the metrics server and on a socket in a folder of its own, and is the API server of that kubeconfig. Prints `ready`, and then a
 * line for each request with credentials.
 *
 * @module
 */
import { SyncError } from "../../lib/errors.ts";
import {
  CONFIG_PATH,
  OBJECTS_PATH,
  PORTALS_PATH,
  STATUS_PATH,
} from "../../lib/serve/status/status_document.ts";
import { writeLine } from "../../tools/output.ts";
import { testService, testSlice, testSliceEndpoint } from "./model_objects.ts";
import { serving } from "./status_server.ts";

/** Input of the program, as JSON. */
export interface SquatterOrder {
  /** Folder to create, with the socket `kproxy.sock` in it. */
  readonly folder: string;
  /** Path of the token that it tries to get. */
  readonly tokenFile: string;
}

/** Destination of packets to the cluster's API if its objects are believed. */
export const EVIL = "203.0.113.66";

if (import.meta.main) {
  const { folder, tokenFile }: SquatterOrder = JSON.parse(Deno.args[0] ?? "{}");
  await squat(folder, tokenFile);
}

async function squat(folder: string, tokenFile: string): Promise<void> {
  await Deno.mkdir(folder, { mode: 0o755 });
  const api = Deno.serve({ hostname: "127.0.0.1", port: 6_443, onListen: () => {} }, (request) => {
    const credentials = request.headers.get("authorization");
    if (credentials !== null) writeLine(`got ${credentials}`);
    return new Response("{}", { status: 403 });
  });
  const kubeconfig = `${folder}/kubeconfig`;
  const server = `http://127.0.0.1:${api.addr.port}`;
  await Deno.writeTextFile(
    kubeconfig,
    JSON.stringify({
      apiVersion: "v1",
      kind: "Config",
      clusters: [{ name: "c", cluster: { server } }],
      users: [{ name: "u", user: { tokenFile } }],
      contexts: [{ name: "x", context: { cluster: "c", user: "u" } }],
      "current-context": "x",
    }),
  );
  const clientConnection = { acceptContentTypes: "", burst: 10, contentType: "", kubeconfig, qps: 5 };
  const at = { namespace: "default", name: "kubernetes" };
  const objects = [
    testService({ ...at, clusterIP: "10.96.0.1" }),
    testSlice({ ...at, serviceName: at.name, endpoints: [testSliceEndpoint(EVIL)] }),
  ];
  await serving(async ({ record, askSocket }) => {
    const error = new SyncError("nftables", "apply", "no memory");
    for (const family of ["IPv4", "IPv6"] as const) {
      record.observer.failed({ family, full: true, durationMs: 1, error });
    }
    const pages = new Map<string, string>([["/proxyMode", "nftables"]]);
    for (const path of [STATUS_PATH, CONFIG_PATH, OBJECTS_PATH, PORTALS_PATH]) {
      const { body } = await askSocket(`GET ${path} HTTP/1.0`);
      // Without a master, so that the kubeconfig is used.
      pages.set(path, body.replace(/"master":"[^"]*"/, '"master":""'));
    }
    const answer = (request: Request): Response => {
      const page = pages.get(new URL(request.url).pathname);
      return new Response(page ?? "404", { status: page === undefined ? 404 : 200 });
    };
    Deno.serve({ hostname: "127.0.0.1", port: 10_249, onListen: () => {} }, answer);
    Deno.serve({ path: `${folder}/kproxy.sock`, onListen: () => {} }, answer);
    await Deno.chmod(`${folder}/kproxy.sock`, 0o666);
    writeLine("ready");
    await new Promise((resolve) => setTimeout(resolve, 600_000));
  }, {
    families: ["IPv4", "IPv6"],
    mode: "nftables",
    config: { clientConnection, mode: "nftables" },
    objects,
  });
}
