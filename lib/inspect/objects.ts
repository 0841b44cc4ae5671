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
import { type DataPlane, type DesiredState, stateOfObjects } from "./desired/desired.ts";

/** What a kproxy that runs on this node tells of itself. */
export interface RunningAnswer {
  /** Where it was asked, e.g. `kproxy on /run/kproxy/kproxy.sock`. */
  readonly where: string;
  /** Null: one whose rules cannot be looked at. */
  readonly mode: DataPlane | null;
  /** The one in force. */
  readonly config: KubeProxyConfiguration;
  readonly nodeName: string;
  /** Those that were asked for. */
  readonly objects: readonly ApiObject[];
  /** Those that it refuses as they are now, and those that this release cannot read. */
  readonly rejected: readonly Rejection[];
  /** Services whose rules the kernel has refused, and why. */
  readonly quarantined: ReadonlyMap<NamespacedName, string>;
}

/**
 * Asks the kproxy that runs on this node; a few words if there is none that tells of itself, e.g. `no kproxy answers on /run/kproxy/kproxy.sock`.
 *
 * @param config says where its listener is
 * @param report is told of another program that answers there instead
 */
export type AskRunning = (
  config: KubeProxyConfiguration,
  selection: ObjectSelection,
  report: (problem: string) => void,
) => Promise<RunningAnswer | string>;

/** What the objects of this node are. */
export interface FoundObjects {
  /** E.g. `files a.yaml`, `kproxy on /run/kproxy/kproxy.sock`, `https://10.0.0.1:6443`. */
  readonly from: string;
  /** The one that rules are made by. */
  readonly config: KubeProxyConfiguration;
  /** What a running kproxy runs; null: none was asked. */
  readonly mode: DataPlane | null;
  readonly state: DesiredState;
  /** Objects that were refused; the others count. */
  readonly rejected: readonly Rejection[];
  /** Services whose rules the kernel has refused, and why; null: none but a running kproxy knows. */
  readonly quarantined: ReadonlyMap<NamespacedName, string> | null;
  /** Objects that are none of the proxy's, and why; who was asked by kube-proxy's selectors does not tell of them. */
  readonly excluded: readonly Rejection[];
}

/** What {@linkcode findObjects} goes by. */
export interface FindObjectsOptions {
  readonly config: KubeProxyConfiguration;
  /** `--master`; empty if not given. */
  readonly master: string;
  /** True: the configuration names the API server or files, so that nobody else is asked. */
  readonly isSourceNamed: boolean;
  /** Starts credential plugins. */
  readonly exec: Exec;
  readonly askRunning: AskRunning;
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
  const { config, isSourceNamed, askRunning, selection = {}, report } = options;
  if (config.kproxy.manifests.length > 0) return await objectsOfFiles(options);
  const running = isSourceNamed ? "" : await askRunning(config, selection, report);
  if (typeof running !== "string") {
    const { where, mode, objects, rejected, quarantined } = running;
    const state = stateOfObjects(objects, running.nodeName, report, running.config);
    return { from: where, config: running.config, mode, state, rejected, quarantined, excluded: [] };
  }
  return await objectsOfApi(options, running);
}

async function objectsOfFiles({ config, report }: FindObjectsOptions): Promise<FoundObjects> {
  const { readManifests } = await import("../source/files/files.ts");
  const { manifests } = config.kproxy;
  try {
    const { objects, problems, excluded } = await readManifests(manifests);
    const from = `files ${manifests.join(", ")}`;
    return found(from, config, { objects, rejected: problems, excluded, report });
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound || error instanceof TypeError)) throw error;
    throw new UsageError(error.message, { cause: error });
  }
}

async function objectsOfApi(
  { config, master, exec, limitMs, report, selection = {} }: FindObjectsOptions,
  unasked: string,
): Promise<FoundObjects> {
  const { listFromApi } = await import("./api_objects.ts");
  const { from, objects, rejected } = await listFromApi(config, {
    master,
    nodeName: nodeName(config),
    unasked,
    exec,
    ...serviceOf(selection),
    ...(limitMs === undefined ? {} : { limitMs }),
  });
  return found(from, config, { objects, rejected, excluded: [], report });
}

/** A server finds one Service by its name; who has an address it does not know. */
function serviceOf(selection: ObjectSelection): { readonly service?: NamespacedName } {
  const { services = [], addresses = [], nodePorts = [], endpoints = [] } = selection;
  const [service] = services;
  const isByName = services.length === 1 && addresses.length + nodePorts.length + endpoints.length === 0;
  return isByName && service !== undefined && /^[^/]+\/[^/]+$/.test(service) ? { service } : {};
}

function found(
  from: string,
  config: KubeProxyConfiguration,
  { objects, rejected, excluded, report }: {
    readonly objects: readonly ApiObject[];
    readonly rejected: readonly Rejection[];
    readonly excluded: readonly Rejection[];
    readonly report: (problem: string) => void;
  },
): FoundObjects {
  const state = stateOfObjects(objects, nodeName(config), report, config);
  return { from, config, mode: null, state, rejected, quarantined: null, excluded };
}
