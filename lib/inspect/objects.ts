/**
 * Sources of the objects for a command that inspects the node: files, a running kproxy, or the API server.
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
  /** Source, e.g. `files a.yaml`, `kproxy on /run/kproxy/kproxy.sock`, `https://10.0.0.1:6443`. */
  readonly from: string;
  /** The configuration that rules are made by. */
  readonly config: KubeProxyConfiguration;
  /** Mode of the running kproxy; null: none was asked, or its rules cannot be inspected. */
  readonly mode: RulesMode | null;
  readonly nodeName: string;
  readonly objects: readonly ApiObject[];
  /** Objects that were refused, also those that this release cannot read; the other objects are used. */
  readonly rejected: readonly Rejection[];
  /** Services whose rules the kernel has refused, and why; null: only a running kproxy knows. */
  readonly quarantined: ReadonlyMap<NamespacedName, string> | null;
  /** Objects that the proxy ignores, and why; unknown from a source that uses kube-proxy's selectors. */
  readonly excluded: readonly Rejection[];
}

/** The listed objects, as this node's state. */
export interface FoundObjects extends Omit<ListedObjects, "nodeName" | "objects"> {
  readonly state: DesiredState;
}

/** Options of {@linkcode findObjects}. */
export interface FindObjectsOptions {
  readonly config: KubeProxyConfiguration;
  readonly master: string;
  /** True: the configuration names the API server or files, so that no running kproxy is asked. */
  readonly isSourceNamed: boolean;
  /** Why the kproxy on this node is not asked. @default {it is, unless a source is named} */
  readonly unasked?: string;
  readonly exec: Exec;
  /** Objects that suffice, where the source can select. @default {all} */
  readonly selection?: ObjectSelection;
  readonly limitMs?: number;
  /** Receives a problem for each part of an object that is left out. */
  readonly report: (problem: string) => void;
}

/**
 * The objects, from the first source that exists: files that the configuration names, a kproxy on this node, the API server.
 *
 * @throws {UsageError} if a file is missing
 * @throws {Error} if there is no source; with the first failure of a list, or after `limitMs`
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

/** An API server that needs longer for its lists has a problem that the user wants to know. */
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

/** An API server selects a Service by name, not by address. */
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
    // Outside of a pod, and with no flag given, no file is at fault.
    if (!(error instanceof ConfigError) || kubeconfig !== "" || master !== "") throw error;
    throw new Error(
      `Nothing says where the objects are: ${unasked === "" ? "" : `${unasked}; `}` +
        "name files with --manifests=PATH or an API server with --kubeconfig=FILE",
      { cause: error },
    );
  }
}

/** Collects the first list of each kind, then ends the source. */
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
    // Rules are also made without ServiceCIDRs.
    if (kind !== "servicecidrs" && this.#missing.has(kind)) this.fail(reason);
  }

  fail(reason: string): void {
    this.failure ??= reason;
    this.#end.abort();
  }
}
