/**
 * Where a command that looks at the node has the objects from: files, a running kproxy, or the API server.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../config/types.ts";
import { UsageError } from "../errors.ts";
import type { Exec } from "../kernel/exec.ts";
import type { ApiObject, NamespacedName } from "../model/objects.ts";
import { nodeName } from "../node/node_name.ts";
import type { ObjectSelection } from "../serve/status/select_objects.ts";
import type { Rejection } from "../source/source.ts";
import { type DesiredState, type RulesMode, stateOfObjects } from "./desired/desired.ts";

/** What one of them says. */
interface ObjectSource {
  /** E.g. `files a.yaml`, `kproxy on /run/kproxy/kproxy.sock`, `https://10.0.0.1:6443`. */
  readonly from: string;
  /** The one that rules are made by. */
  readonly config: KubeProxyConfiguration;
  /** What a running kproxy runs; null: none was asked, or one whose rules cannot be looked at. */
  readonly mode: RulesMode | null;
  /** Objects that were refused, those among them that this release cannot read; the others count. */
  readonly rejected: readonly Rejection[];
  /** Services whose rules the kernel has refused, and why; null: none but a running kproxy knows. */
  readonly quarantined: ReadonlyMap<NamespacedName, string> | null;
}

/** What a source has listed. */
export interface ListedObjects extends ObjectSource {
  readonly nodeName: string;
  readonly objects: readonly ApiObject[];
  /** Objects that are none of the proxy's, and why; where kube-proxy's selectors were asked by, none is known. */
  readonly excluded?: readonly Rejection[];
}

/** What the objects of this node are. */
export interface FoundObjects extends ObjectSource {
  readonly state: DesiredState;
  /** See {@linkcode ListedObjects}. */
  readonly excluded: readonly Rejection[];
}

/** What {@linkcode findObjects} goes by. */
export interface FindObjectsOptions {
  readonly config: KubeProxyConfiguration;
  /** `--master`; empty if not given. */
  readonly master: string;
  /** True: the configuration names the API server or files, so that no running kproxy is asked. */
  readonly isSourceNamed: boolean;
  /** Why the kproxy that runs here is not asked. @default {it is, unless a source is named} */
  readonly unasked?: string;
  /** Starts credential plugins. */
  readonly exec: Exec;
  /** What is enough, where the source can choose. @default {all} */
  readonly selection?: ObjectSelection;
  /** How long the API server may take. @default {30000} */
  readonly limitMs?: number;
  /** Hears of parts of objects that are left out. */
  readonly report: (problem: string) => void;
}

/**
 * The objects, from the first of these that there is: files that the configuration names, a kproxy that runs here, the API server.
 *
 * @throws {UsageError} if a file is not there
 * @throws {Error} if there is none of them
 */
export async function findObjects(options: FindObjectsOptions): Promise<FoundObjects> {
  const { objects, nodeName, excluded = [], ...source } = await listObjects(options);
  return { ...source, state: stateOfObjects(objects, nodeName, options.report, source.config), excluded };
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
  const { listFromApi } = await import("./api_objects.ts");
  const named = { ...options, nodeName: nodeName(config), unasked, ...serviceOf(selection) };
  return {
    config,
    mode: null,
    nodeName: named.nodeName,
    quarantined: null,
    ...await listFromApi(config, named),
  };
}

async function listFiles(config: KubeProxyConfiguration): Promise<ListedObjects> {
  const { readManifests } = await import("../source/files/file_source.ts");
  const { manifests } = config.kproxy;
  try {
    const { objects, problems: rejected, excluded } = await readManifests(manifests);
    const from = `files ${manifests.join(", ")}`;
    return {
      from,
      config,
      mode: null,
      nodeName: nodeName(config),
      objects,
      rejected,
      quarantined: null,
      excluded,
    };
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound || error instanceof TypeError)) throw error;
    throw new UsageError(error.message, { cause: error });
  }
}

/** A server finds one Service by its name, not by an address. */
function serviceOf(selection: ObjectSelection): { readonly service?: NamespacedName } {
  const { services = [], addresses = [], nodePorts = [], endpoints = [] } = selection;
  const [service] = services;
  const isByName = services.length === 1 && addresses.length + nodePorts.length + endpoints.length === 0;
  return isByName && service !== undefined && /^[^/]+\/[^/]+$/.test(service) ? { service } : {};
}
