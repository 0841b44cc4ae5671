/**
 * The Services that a move to another mode is judged for: from files, a running kproxy, or the API server.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../../config/types.ts";
import type { Exec } from "../../../kernel/exec.ts";
import type { IpFamily } from "../../../model/objects.ts";
import type { ProxyState } from "../../../model/state.ts";
import { findObjects } from "../../objects.ts";
import { askRunning } from "../../running_objects.ts";

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
  /** True: the command line names the API server, so that no running kproxy is asked. */
  readonly isSourceNamed: boolean;
  /** How long the API server may take. */
  readonly limitMs: number;
}

/**
 * Reads them once.
 *
 * @throws {UsageError} if nothing says where they are, or a file is not there
 * @throws {Error} if the API server does not list them
 */
export async function readServices(
  { config, master, nodeName, exec, isSourceNamed, limitMs }: ServicesQuestion,
): Promise<FoundServices> {
  const { from, state, rejected } = await findObjects({
    config: { ...config, hostnameOverride: nodeName },
    master,
    isSourceNamed,
    exec,
    limitMs,
    askRunning,
    // What of an object is left out is told by those that serve it.
    report: () => {},
  });
  return {
    from,
    states: state.states,
    rejected: rejected.map(({ where, message }) => `${where}: ${message}`),
  };
}
