/**
 * The Services that a move to another mode is judged for: from files, or from the API server.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../../config/types.ts";
import { UsageError } from "../../../errors.ts";
import type { Exec } from "../../../kernel/exec.ts";
import { ChangeTracker } from "../../../model/change_tracker.ts";
import type { ApiObject, IpFamily } from "../../../model/objects.ts";
import type { ProxyState } from "../../../model/state.ts";
import { readManifests } from "../../../source/files/files.ts";

const FAMILIES: readonly IpFamily[] = ["IPv4", "IPv6"];

/** Services of both families, and where they are from. */
export interface FoundServices {
  readonly from: string;
  readonly states: ReadonlyMap<IpFamily, ProxyState>;
  /** Objects that were refused, each with the reason. */
  readonly rejected: readonly string[];
}

/** What says where they are. */
export interface ServicesQuestion {
  readonly config: KubeProxyConfiguration;
  /** `--master`; empty if not given. */
  readonly master: string;
  readonly nodeName: string;
  /** Starts credential plugins. */
  readonly exec: Exec;
}

/**
 * Reads them once.
 *
 * @throws {UsageError} if a manifest path is not there
 * @throws {Error} if the API server does not list them
 */
export async function readServices({ config, nodeName }: ServicesQuestion): Promise<FoundServices> {
  const { manifests, endpointsSource } = config.kproxy;
  try {
    const { objects, problems } = await readManifests(manifests, { endpointsSource });
    const rejected = problems.map(({ where, message }) => `${where}: ${message}`);
    return { from: manifests.join(", "), states: foldServices(objects, nodeName), rejected };
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound || error instanceof TypeError)) throw error;
    throw new UsageError(error.message, { cause: error });
  }
}

function foldServices(objects: readonly ApiObject[], name: string): ReadonlyMap<IpFamily, ProxyState> {
  return new Map(FAMILIES.map((family) => {
    // What of an object is left out is told by those that serve it.
    const tracker = new ChangeTracker({ family, node: { name, zone: "" }, report: () => {} });
    for (const object of objects) if (object.kind === "Service") tracker.updateService(undefined, object);
    return [family, tracker.checkout().state];
  }));
}
