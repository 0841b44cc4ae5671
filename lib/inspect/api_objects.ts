/**
 * One list of everything from the API server.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../config/types.ts";
import { ConfigError } from "../errors.ts";
import type { Exec } from "../kernel/exec.ts";
import type { ApiObject, NamespacedName } from "../model/objects.ts";
import { kubeSettings } from "../node/source.ts";
import { silentLogger } from "../observe/log.ts";
import {
  identityOf,
  type Rejection,
  type ResourceEventHandler,
  type ResourceKind,
} from "../source/source.ts";
import { KubeSource } from "../source/kube/kube_source.ts";
import { apiAccess } from "../source/kube/api_access.ts";
import type { ClusterAccess } from "../source/kube/kubeconfig.ts";

/** An API server that has not listed everything by then has trouble that the user wants to hear of. */
const LIMIT_MS = 30_000;

/** Everything that the API server has for this node. */
export interface ApiList {
  /** The server. */
  readonly from: string;
  readonly objects: readonly ApiObject[];
  readonly rejected: readonly Rejection[];
}

/** What the configuration does not say. */
export interface ApiListOptions {
  /** `--master`; empty if not given. */
  readonly master: string;
  readonly nodeName: string;
  /** Why there are none of a running kproxy, if any was asked. @default {""} */
  readonly unasked?: string;
  /** Starts credential plugins. */
  readonly exec: Exec;
  /** Enough, with its endpoints. @default {all} */
  readonly service?: NamespacedName;
  /** @default {30000} */
  readonly limitMs?: number;
}

/**
 * Lists Services, EndpointSlices, the Node and, for nftables mode, ServiceCIDRs, once.
 *
 * @throws {Error} if nothing says where the API server is, with the first failure of a list, or after `limitMs`
 */
export async function listFromApi(
  config: KubeProxyConfiguration,
  { master, nodeName, unasked = "", exec, service, limitMs = LIMIT_MS }: ApiListOptions,
): Promise<ApiList> {
  const access = await accessOf(config.clientConnection.kubeconfig, master, unasked);
  const collector = new Collector(config.mode === "nftables" || config.mode === "auto");
  const source = new KubeSource({
    access,
    nodeName,
    ...(service === undefined ? {} : { service }),
    ...kubeSettings(config),
    log: silentLogger,
    exec,
  });
  const timer = setTimeout(() => collector.fail(`no complete answer within ${limitMs / 1000} s`), limitMs);
  try {
    await source.run(collector, collector.signal);
  } finally {
    clearTimeout(timer);
  }
  if (collector.failure !== null) throw new Error(`API server ${access.server}: ${collector.failure}`);
  return { from: access.server, objects: collector.objects(), rejected: collector.rejections };
}

async function accessOf(kubeconfig: string, master: string, unasked: string): Promise<ClusterAccess> {
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

/** Takes first lists, and ends the source after them. */
class Collector implements ResourceEventHandler {
  readonly wantsServiceCidrs: boolean;
  readonly rejections: Rejection[] = [];
  failure: string | null = null;
  readonly #objects = new Map<string, ApiObject>();
  readonly #missing: Set<ResourceKind>;
  readonly #end = new AbortController();

  constructor(wantsServiceCidrs: boolean) {
    this.wantsServiceCidrs = wantsServiceCidrs;
    this.#missing = new Set(["services", "endpointslices", "nodes"]);
    if (wantsServiceCidrs) this.#missing.add("servicecidrs");
  }

  get signal(): AbortSignal {
    return this.#end.signal;
  }

  objects(): readonly ApiObject[] {
    return [...this.#objects.values()];
  }

  events(batch: Parameters<ResourceEventHandler["events"]>[0]): void {
    for (const event of batch) {
      if (event.type === "synced") this.#missing.delete(event.kind);
      else if (event.type === "delete") this.#objects.delete(identityOf(event.old));
      else this.#objects.set(identityOf(event.object), event.object);
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
