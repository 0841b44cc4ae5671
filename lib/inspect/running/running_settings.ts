/**
 * What the kproxy that runs on this node is set to, for those who look at the node and not at its objects.
 *
 * @module
 */
import { PROXY_MODES } from "../../config/types.ts";
import type { KubeProxyConfiguration } from "../../config/types.ts";
import type { StatusDocument } from "../../serve/status/status_document.ts";
import { NotRunningError, RunningKproxy } from "./running.ts";

/** How a node is proxied now. */
export interface RunningSettings {
  /** In words, e.g. `kproxy on /run/kproxy/kproxy.sock`. */
  readonly where: string;
  /** As in {@linkcode RunningKproxy}. */
  readonly isTrusted: boolean;
  /** Address of the API server as its command line gives it; `""` if it does not. */
  readonly master: string;
  /** In the mode that is in use. */
  readonly config: KubeProxyConfiguration;
  /** Name of its own Node. */
  readonly nodeName: string;
  /** What Services ask for and do not get; null: it is of an older release, which does not tell. */
  readonly unserved: NonNullable<StatusDocument["unserved"]> | null;
}

/** Asks it; null if there is none, or none that tells of itself. */
export async function runningSettings(
  { kproxy: { socket } }: Pick<KubeProxyConfiguration, "kproxy">,
): Promise<RunningSettings | null> {
  try {
    const running = new RunningKproxy(socket);
    const [status, { config, master }] = await Promise.all([running.status(), running.config()]);
    const mode = PROXY_MODES.find((one) => one === status.mode.used) ?? config.mode;
    return {
      where: `kproxy on ${running.address}`,
      isTrusted: running.isTrusted,
      master,
      config: { ...config, mode },
      nodeName: status.node.name,
      unserved: status.unserved ?? null,
    };
  } catch (error) {
    if (error instanceof NotRunningError) return null;
    throw error;
  }
}
