/**
 * The API server as a source for programs that use kproxy as a library.
 *
 * @module
 */
import { type Logger, silentLogger } from "../../observe/log.ts";
import type { Source } from "../source.ts";

/** What {@linkcode openCluster} asks, and how. */
export interface ClusterOptions {
  /** The only Node that is read: whose zone, pod networks and addresses count. */
  readonly nodeName: string;
  /** A kubeconfig; `""`: the server alone or, without one, the service account of the pod. @default {""} */
  readonly kubeconfig?: string;
  /** The server's URL, instead of the kubeconfig's. @default {""} */
  readonly server?: string;
  /** Requests per second; 0: no limit. First lists do not wait. @default {5} */
  readonly qps?: number;
  /** Requests that may come at once. @default {10} */
  readonly burst?: number;
  /** What the server is told who asks. @default {"kproxy"} */
  readonly userAgent?: string;
  /** Is told of lost connections and of retries. @default {not reported} */
  readonly log?: Logger;
}

/**
 * Services, EndpointSlices, one Node and (if asked for) ServiceCIDRs of an API server, listed and watched: over losses of the
 * connection of any length, and by kube-proxy's selectors.
 *
 * @throws {ConfigError} if the kubeconfig is wrong or, without one and without a server, the environment is not a pod's
 */
export async function openCluster(options: ClusterOptions): Promise<Source> {
  const { kubeconfig = "", server = "" } = options;
  // Commands that only need rules or packets do not load the API client's modules.
  const [{ apiAccess }, { KubeSource }] = await Promise.all([
    import("./kube_access.ts"),
    import("./kube.ts"),
  ]);
  return new KubeSource({
    access: await apiAccess({ kubeconfig, master: server, env: Deno.env }),
    nodeName: options.nodeName,
    // Objects are not wanted again where nothing has changed.
    configSyncPeriodMs: Infinity,
    qps: options.qps ?? 5,
    burst: options.burst ?? 10,
    userAgent: options.userAgent ?? "kproxy",
    log: options.log ?? silentLogger,
  });
}
