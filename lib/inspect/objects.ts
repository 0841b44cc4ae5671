/**
 * Where a command that looks at the node has the objects from: files, a running kproxy, or the API server.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../config/types.ts";
import { ConfigError, UsageError } from "../errors.ts";
import type { Exec } from "../kernel/exec.ts";
import type { ApiObject, NamespacedName } from "../model/objects.ts";
import { nodeName } from "../kernel/machine.ts";
import { kubeSettings } from "../node/source.ts";
import { silentLogger } from "../observe/log.ts";
import type { ObjectSelection } from "../serve/status/select_objects.ts";
import type { ClusterAccess } from "../source/kube/kubeconfig.ts";
import {
  identityOf,
  type Rejection,
  type ResourceEventHandler,
  type ResourceKind,
} from "../source/source.ts";
import { type DesiredState, type RulesMode, stateOfObjects } from "./desired/desired.ts";

export interface ListedObjects {
  /** E.g. `files a.yaml`, `kproxy on /run/kproxy/kproxy.sock`, `https://10.0.0.1:6443`. */
  readonly from: string;
  /** The one that rules are made by. */
  readonly config: KubeProxyConfiguration;
  /** What a running kproxy runs; null: none was asked, or one whose rules cannot be looked at. */
  readonly mode: RulesMode | null;
  readonly nodeName: string;
  readonly objects: readonly ApiObject[];
  /** Objects that were refused, those among them that this release cannot read; the others count. */
  readonly rejected: readonly Rejection[];
  /** Services whose rules the kernel has refused, and why; null: only a running kproxy knows. */
  readonly quarantined: ReadonlyMap<NamespacedName, string> | null;
  /** Objects that are none of the proxy's, and why; of a source that uses kube-proxy's selectors none is known. */
  readonly excluded: readonly Rejection[];
}

/** The same, as the state of this node. */
export interface FoundObjects extends Omit<ListedObjects, "nodeName" | "objects"> {
  readonly state: DesiredState;
}

/** Which objects {@linkcode findObjects} takes. */
export interface FindObjectsOptions {
  readonly config: KubeProxyConfiguration;
  readonly master: string;
  /** True: the configuration names the API server or files, so that no running kproxy is asked. */
  readonly isSourceNamed: boolean;
  /** Why the kproxy that runs here is not asked. @default {it is, unless a source is named} */
  readonly unasked?: string;
  readonly exec: Exec;
  /** What is enough, where the source can choose. @default {all} */
  readonly selection?: ObjectSelection;
  readonly limitMs?: number;
  /** Receives what is wrong with parts of objects, which are left out. */
  readonly report: (problem: string) => void;
}

/**
 * The objects, from the first of these that there is: files that the configuration names, a kproxy that runs here, the API server.
 *
 * @throws {UsageError} if a file is not there
 * @throws {Error} if there is none of them; with the first failure of a list, or after `limitMs`
 */
export async function findObjects(options: FindObjectsOptions): Promise<FoundObjects> {
  const { objects, nodeName, ...found } = await listObjects(options);
  return { ...found, state: stateOfObjects(objects, nodeName, options.report, found.config) };
}

async function listObjects(options: FindObjectsOptions): Promise<ListedObjects> {
  const { config, isSourceNamed, selection = {}, report } = options;
  if (config.kproxy.manifests.length > 0) return await listFiles(config);
  let unasked = isSourceNamed ? "" : options.unasked;
  if (unasked === undefined) {
    const { askRunning } = await import("./running/running.ts");
    const running = await askRunning(config, selection, report);
    if (typeof running !== "string") return running;
    unasked = running;
  }
  return await listFromApi(options, unasked);
}

function byConfig(
  config: KubeProxyConfiguration,
): Pick<ListedObjects, "config" | "mode" | "nodeName" | "quarantined"> {
  return { config, mode: null, nodeName: nodeName(config), quarantined: null };
}

async function listFiles(config: KubeProxyConfiguration): Promise<ListedObjects> {
  const { readManifests } = await import("../source/files/file_source.ts");
  const { manifests } = config.kproxy;
  try {
    const { objects, problems, excluded } = await readManifests(manifests);
    const from = `files ${manifests.join(", ")}`;
    return { ...byConfig(config), from, objects, rejected: problems, excluded };
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound || error instanceof TypeError)) throw error;
    throw new UsageError(error.message, { cause: error });
  }
}

/** An API server that has not listed everything by then has trouble that the user wants to know. */
const LIMIT_MS = 30_000;

/** Lists Services, EndpointSlices, the Node and, for nftables mode, ServiceCIDRs, once. */
async function listFromApi(options: FindObjectsOptions, unasked: string): Promise<ListedObjects> {
  const { config, exec, selection = {}, limitMs = LIMIT_MS } = options;
  const own = byConfig(config);
  const { KubeSource } = await import("../source/kube/kube_source.ts");
  const access = await accessOf(options, unasked);
  const list = new FirstList(config.mode === "nftables" || config.mode === "auto");
  const source = new KubeSource({
    access,
    nodeName: own.nodeName,
    ...serviceOf(selection),
    ...kubeSettings(config),
    log: silentLogger,
    exec,
  });
  const timer = setTimeout(() => list.fail(`no complete answer within ${limitMs / 1000} s`), limitMs);
  try {
    await source.run(list, list.signal);
  } finally {
    clearTimeout(timer);
  }
  if (list.failure !== null) throw new Error(`API server ${access.server}: ${list.failure}`);
  const objects = [...list.objects.values()];
  return { ...own, from: access.server, objects, rejected: list.rejections, excluded: [] };
}

/** A server finds one Service by its name, not by an address. */
function serviceOf(selection: ObjectSelection): { readonly service?: NamespacedName } {
  const { services = [], addresses = [], nodePorts = [], endpoints = [] } = selection;
  const [service] = services;
  const isByName = services.length === 1 && addresses.length + nodePorts.length + endpoints.length === 0;
  return isByName && service !== undefined && /^[^/]+\/[^/]+$/.test(service) ? { service } : {};
}

async function accessOf({ config, master }: FindObjectsOptions, unasked: string): Promise<ClusterAccess> {
  const { apiAccess } = await import("../source/kube/api_access.ts");
  const { kubeconfig } = config.clientConnection;
  try {
    return await apiAccess({ kubeconfig, master, env: Deno.env });
  } catch (error) {
    // Outside of a pod, with nothing said, there is nothing wrong with any file.
    if (!(error instanceof ConfigError) || kubeconfig !== "" || master !== "") throw error;
    throw new Error(
      `Nothing says where the objects are: ${unasked === "" ? "" : `${unasked}; `}` +
        "name files with --manifests=PATH or an API server with --kubeconfig=FILE",
      { cause: error },
    );
  }
}

/** Takes the first list of each kind, and ends the source after them. */
class FirstList implements ResourceEventHandler {
  readonly objects = new Map<string, ApiObject>();
  readonly rejections: Rejection[] = [];
  failure: string | null = null;
  readonly #missing: Set<ResourceKind>;
  readonly #end = new AbortController();

  constructor(readonly wantsServiceCidrs: boolean) {
    this.#missing = new Set(["services", "endpointslices", "nodes"]);
    if (wantsServiceCidrs) this.#missing.add("servicecidrs");
  }

  get signal(): AbortSignal {
    return this.#end.signal;
  }

  events(batch: Parameters<ResourceEventHandler["events"]>[0]): void {
    for (const event of batch) {
      if (event.type === "synced") this.#missing.delete(event.kind);
      else if (event.type === "delete") this.objects.delete(identityOf(event.old));
      else this.objects.set(identityOf(event.object), event.object);
    }
    if (this.#missing.size === 0) this.#end.abort();
  }

  rejected(rejection: Rejection): void {
    this.rejections.push(rejection);
  }

  failed(kind: ResourceKind, reason: string): void {
    // Rules are made without them, too.
    if (kind !== "servicecidrs" && this.#missing.has(kind)) this.fail(reason);
  }

  fail(reason: string): void {
    this.failure ??= reason;
    this.#end.abort();
  }
}
