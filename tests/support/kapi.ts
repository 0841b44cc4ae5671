/**
 * The API server of `tests/lab/kapi`, built once and run on 127.0.0.1 with an etcd of its own, for tests.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { runOk, systemExec } from "../../lib/kernel/exec.ts";
import { findProgram } from "../../tools/setup.ts";
import { LabGuard } from "./lab_guard.ts";
import type { RawApiObject } from "./list_watch_server.ts";
import { pathExists } from "./path_exists.ts";
import { go, type Need, program } from "./skip.ts";
import { steadyPorts } from "./steady_ports.ts";
import { eventually } from "./until.ts";

/** Needs for building the programs of `tests/lab/kapi`. */
export const KAPI_BUILD: readonly Need[] = [go(25)];
/** Needs of a test with kapi. */
export const KAPI: readonly Need[] = [...KAPI_BUILD, program("etcd")];

/** A token that the server always accepts. */
export const KAPI_TOKEN = "kapi-token";

const SOURCES = new URL("../lab/kapi/", import.meta.url).pathname;
const CACHE = new URL("../../.cache/kapi/", import.meta.url).pathname;
const BUILD_TIMEOUT_MS = 15 * 60_000;

/** Paths of collections, by kind. */
const COLLECTIONS: Readonly<Record<string, string>> = {
  Service: "/api/v1/namespaces/{namespace}/services",
  Endpoints: "/api/v1/namespaces/{namespace}/endpoints",
  EndpointSlice: "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
  Node: "/api/v1/nodes",
  ServiceCIDR: "/apis/networking.k8s.io/v1/servicecidrs",
};

/** Builds kapi unless this exact source has been built before; returns the program's path. */
export function buildKapi(): Promise<string> {
  return built("kapi", ".");
}

/** Likewise builds an etcd that supports streaming lists, which Debian's does not. */
export function buildEtcd(): Promise<string> {
  return built("etcd", "./newetcd");
}

/** Likewise builds Helm, most of which has then been compiled already. */
export function buildHelm(): Promise<string> {
  return built("helm", "helm.sh/helm/v3/cmd/helm");
}

async function built(name: string, goPackage: string): Promise<string> {
  const path = `${CACHE}${name}-${await hashOfSources()}`;
  await Deno.mkdir(CACHE, { recursive: true });
  // Test files may run in parallel: one builds, the others wait.
  using lock = await Deno.open(`${CACHE}lock`, { create: true, write: true });
  await lock.lock(true);
  if (await pathExists(path)) return path;
  const goPath = findProgram("go") ?? "/usr/local/go/bin/go";
  await runOk(systemExec, [`${SOURCES}build.sh`, `${path}.new`, goPackage], {
    env: { PATH: `${goPath.replace(/\/go$/, "")}:${Deno.env.get("PATH") ?? ""}` },
    timeoutMs: BUILD_TIMEOUT_MS,
  });
  await Deno.rename(`${path}.new`, path);
  return path;
}

/** An Event as the server gives it. */
export type StoredEvent = Readonly<Record<string, unknown>> & {
  readonly metadata: { readonly name: string };
};

/** Options of {@linkcode Kapi.start}. */
export interface KapiOptions {
  /** True: with a newer etcd, so that watches may begin with lists. @default {false} */
  readonly streamsLists?: boolean;
  /** Path of a kube-apiserver to run instead of kapi. */
  readonly kubeApiserver?: string;
}

/** API servers to test with: kapi, and the kube-apiserver that `KUBE_APISERVER` names, if any. */
export function apiServers(): readonly (KapiOptions & { readonly name: string })[] {
  const kubeApiserver = Deno.env.get("KUBE_APISERVER") ?? "";
  return [{ name: "kapi" }, ...kubeApiserver === "" ? [] : [{ name: "kube-apiserver", kubeApiserver }]];
}

/** A running API server. */
export class Kapi implements AsyncDisposable {
  /** Folder of its state, certificates and kubeconfig. */
  readonly folder: string;
  readonly port: number;
  /** False: a kube-apiserver, which validates, authorizes, and reads its tokens at its start. */
  readonly isKapi: boolean;
  readonly #program: string;
  readonly #args: readonly string[];
  readonly #env: Readonly<Record<string, string>>;
  readonly #tokens = new Set([KAPI_TOKEN]);
  readonly #guard = new LabGuard();
  #client: Deno.HttpClient | undefined;

  private constructor(
    folder: string,
    port: number,
    program: string,
    args: readonly string[],
    env: Readonly<Record<string, string>>,
  ) {
    this.folder = folder;
    this.port = port;
    this.#program = program;
    this.#args = args;
    this.#env = { KAPI: program, ...env };
    this.isKapi = env["KUBE_APISERVER"] === undefined;
  }

  /**
   * Builds programs if needed, and starts etcd and the server in a new folder on free ports. `args` are more flags of
   * `kapi serve`, such as `-without-slices`.
   */
  static async start(
    args: readonly string[] = [],
    { streamsLists = false, kubeApiserver }: KapiOptions = {},
  ): Promise<Kapi> {
    // Debian's etcd is too old for a kube-apiserver, too.
    const env = streamsLists || kubeApiserver !== undefined ? { ETCD: await buildEtcd() } : {};
    const kapi = new Kapi(
      // The process id tells the guard to which process it belongs.
      await Deno.makeTempDir({ prefix: `kproxy-kapi-${Deno.pid}-` }),
      // The server's port, and two of etcd.
      steadyPorts(3),
      await buildKapi(),
      args,
      kubeApiserver === undefined
        ? env
        : { ...env, KUBE_APISERVER: kubeApiserver, KAPI: `${SOURCES}kube_apiserver.sh` },
    );
    try {
      await kapi.#writeTokens();
      await kapi.clientCertificate("kube-proxy");
      await kapi.resume();
      if (!kapi.isKapi) await kapi.#hideOwnService();
      return kapi;
    } catch (error) {
      await kapi[Symbol.asyncDispose]();
      throw error;
    }
  }

  get url(): string {
    return `https://127.0.0.1:${this.port}`;
  }

  /** Path of a kubeconfig with a token that is always valid. */
  get kubeconfig(): string {
    return `${this.folder}/kubeconfig`;
  }

  /** Path of the certificate authority of the server's certificate. */
  get ca(): string {
    return `${this.folder}/ca.crt`;
  }

  /** Starts the programs that are not running; resolves when the server is ready. */
  async resume(): Promise<void> {
    const flags = ["-token-file", `${this.folder}/tokens`, "-client-ca", `${this.folder}/client-ca.crt`];
    await runOk(
      systemExec,
      [`${SOURCES}run.sh`, this.folder, String(this.port), ...flags, ...this.#args],
      { env: this.#env, timeoutMs: 90_000 },
    );
    this.#client?.close();
    this.#client = Deno.createHttpClient({ caCerts: [await Deno.readTextFile(this.ca)], http2: false });
  }

  /** Stops the server; with `all`, etcd too. Their state is kept. */
  async pause(all = false): Promise<void> {
    await runOk(systemExec, [`${SOURCES}stop.sh`, this.folder, ...(all ? [] : ["kapi"])], {
      timeoutMs: 60_000,
    });
  }

  async restart(): Promise<void> {
    await this.pause();
    await this.resume();
  }

  /** Makes etcd drop all old revisions. */
  async compact(): Promise<void> {
    const etcd = (await Deno.readTextFile(`${this.folder}/etcd.url`)).trim();
    await runOk(systemExec, [this.#program, "compact", "-etcd", etcd], { timeoutMs: 60_000 });
  }

  /** Creates `count` Services with as many endpoints each, svc-00000 and on. */
  async fill(count: number, endpoints: number): Promise<void> {
    const options = ["-services", String(count), "-endpoints", String(endpoints)];
    await runOk(systemExec, [this.#program, "fill", "-kubeconfig", this.kubeconfig, ...options], {
      timeoutMs: 120_000,
    });
  }

  /** Makes a token valid from now on. */
  async admit(token: string): Promise<void> {
    this.#tokens.add(token);
    await this.#writeTokens();
    if (!this.isKapi) await this.restart();
  }

  /** Makes a token invalid from now on. Watches that are open stay open, as in Kubernetes. */
  async revoke(token: string): Promise<void> {
    this.#tokens.delete(token);
    await this.#writeTokens();
  }

  /** Creates (again) `NAME.crt` and `NAME.key` in the folder, signed by the authority of client certificates. */
  async clientCertificate(name: string, validFor = "24h"): Promise<void> {
    const options = ["-dir", this.folder, "-name", name, "-valid-for", validFor];
    await runOk(systemExec, [this.#program, "client-cert", ...options]);
  }

  /** Creates an object, or replaces an existing one. Afterwards lists of the server include it, too. */
  async put(given: RawApiObject): Promise<void> {
    const object = this.isKapi ? given : withoutClusterIps(given);
    const created = await this.#request("POST", collectionOf(object), object, [201, 409]);
    const { text } = created.status === 409
      ? await this.#request("PUT", pathOf(object), object, [200])
      : created;
    const { metadata } = JSON.parse(text) as RawApiObject;
    await this.#request("GET", `${pathOf(object)}?resourceVersion=${metadata.resourceVersion}`, undefined, [
      200,
    ]);
  }

  /** Creates a namespace, which kapi does not require. */
  async makeNamespace(name: string): Promise<void> {
    await this.#request("POST", "/api/v1/namespaces", { metadata: { name } }, [201, 409]);
  }

  /** Applies a merge patch. */
  async patch(object: RawApiObject, patch: unknown): Promise<void> {
    await this.#request("PATCH", pathOf(object), patch, [200]);
  }

  async remove(object: RawApiObject): Promise<void> {
    await this.#request("DELETE", pathOf(object), undefined, [200, 404]);
  }

  /** Deletes all objects of a test, so that the next one begins without any. */
  async clear(): Promise<void> {
    for (const [kind, path] of Object.entries(COLLECTIONS)) {
      const object: RawApiObject = { kind, metadata: { name: "", namespace: "default" } };
      // The server's own Service and ServiceCIDR would be created again.
      const others = this.isKapi ? "" : "?fieldSelector=metadata.name!=kubernetes";
      const collection = path.includes("{") ? collectionOf(object) : path;
      await this.#request("DELETE", `${collection}${others}`, undefined, [200, 404]);
    }
  }

  /** Waits until the namespace has so many Events of kproxy that satisfy `isWanted`; a server writes some by itself. */
  async untilEvents(
    count: number,
    isWanted: (event: StoredEvent) => boolean = () => true,
    namespace = "default",
  ): Promise<readonly StoredEvent[]> {
    const path = `/apis/events.k8s.io/v1/namespaces/${namespace}/events`;
    return await eventually(async () => {
      const { text } = await this.#request("GET", path, undefined, [200]);
      const found = (JSON.parse(text) as { items: StoredEvent[] }).items
        .filter((event) => event["reportingController"] === "kube-proxy" && isWanted(event));
      assertEquals(found.length, count, text);
      return found;
    }, { everyMs: 50 });
  }

  /** Stops everything and removes the folder. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#client?.close();
    await this.pause(true);
    await Deno.remove(this.folder, { recursive: true });
    await this.#guard[Symbol.asyncDispose]();
  }

  /** Labels `default/kubernetes`, which the server creates, so that kproxy ignores it. */
  async #hideOwnService(): Promise<void> {
    const own = { kind: "Service", metadata: { name: "kubernetes", namespace: "default" } };
    const labels = { "service.kubernetes.io/service-proxy-name": "none" };
    await eventually(async () => {
      const { status } = await this.#request("PATCH", pathOf(own), { metadata: { labels } }, [200, 404]);
      assertEquals(status, 200);
    }, { everyMs: 200 });
  }

  async #writeTokens(): Promise<void> {
    const path = `${this.folder}/tokens`;
    await Deno.writeTextFile(`${path}.new`, [...this.#tokens].join("\n"));
    await Deno.rename(`${path}.new`, path);
  }

  async #request(
    method: string,
    path: string,
    body: unknown,
    wanted: readonly number[],
  ): Promise<{ readonly status: number; readonly text: string }> {
    if (this.#client === undefined) throw new TypeError("kapi is not running");
    const type = method === "PATCH" ? "application/merge-patch+json" : "application/json";
    const response = await fetch(this.url + path, {
      method,
      client: this.#client,
      headers: { authorization: `Bearer ${KAPI_TOKEN}`, "content-type": type },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    if (!wanted.includes(response.status)) {
      throw new Error(`${method} ${path}: status ${response.status}: ${text}`);
    }
    return { status: response.status, text };
  }
}

/** Without cluster IPs: a server that validates assigns each Service one, and allows none twice. */
function withoutClusterIps(object: RawApiObject): RawApiObject {
  const { spec } = object as { readonly spec?: Readonly<Record<string, unknown>> };
  if (object.kind !== "Service" || spec?.["clusterIP"] === "None") return object;
  const { clusterIP: _, clusterIPs: __, ...others } = spec ?? {};
  return { ...object, spec: others } as RawApiObject;
}

function collectionOf({ kind, metadata }: RawApiObject): string {
  const path = COLLECTIONS[kind];
  if (path === undefined) throw new TypeError(`No resource for kind ${kind}`);
  return path.replace("{namespace}", metadata.namespace ?? "default");
}

function pathOf(object: RawApiObject): string {
  return `${collectionOf(object)}/${object.metadata.name}`;
}

async function hashOfSources(): Promise<string> {
  const names: string[] = [];
  for (const folder of ["", "newetcd/"]) {
    for await (const { name } of Deno.readDir(SOURCES + folder)) {
      if (/\.go$|^go\.(mod|sum)$|^build\.sh$/.test(name)) names.push(folder + name);
    }
  }
  const texts = await Promise.all(names.sort().map((name) => Deno.readTextFile(SOURCES + name)));
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(texts.join("\0")));
  return Array.from(new Uint8Array(digest).slice(0, 8), (byte) => byte.toString(16).padStart(2, "0")).join(
    "",
  );
}
