/**
 * The program kube-proxy, where there is one: `KUBE_PROXY` is its path.
 *
 * @module
 */
import { signalChild } from "../../../tools/end_programs.ts";
import type { Netns } from "../netns.ts";
import type { ProxyApi } from "./proxy_api.ts";

/** Lines of its log that are kept. */
const KEPT_LINES = 2_000;
/** What a node has once and not in each network namespace is left alone, and connections keep the kernel's own limits of time. */
const CONNTRACK = { maxPerCore: 0, min: 0, tcpEstablishedTimeout: "0s", tcpCloseWaitTimeout: "0s" };

/** The program's path, if the environment has one. */
export function kubeProxyProgram(): string | undefined {
  return Deno.env.get("KUBE_PROXY") || undefined;
}

/** A `KubeProxyConfiguration` with these fields, which kube-proxy and kproxy take alike. */
export function proxyConfiguration(
  api: ProxyApi,
  fields: Readonly<Record<string, unknown>>,
): Record<string, unknown> {
  return {
    apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
    kind: "KubeProxyConfiguration",
    hostnameOverride: "node-a",
    clientConnection: { kubeconfig: api.kubeconfig },
    conntrack: CONNTRACK,
    ...fields,
  };
}

/** A running kube-proxy; disposing of it kills it. What it wrote stays. */
export class RealKubeProxy implements AsyncDisposable {
  readonly #child: Deno.ChildProcess;
  readonly #lines: string[] = [];
  readonly #reading: Promise<void>;

  private constructor(child: Deno.ChildProcess) {
    this.#child = child;
    this.#reading = this.#read();
  }

  /** Starts it on a node of this API server, without waiting. */
  static async start(
    program: string,
    { netns, api, fields }: {
      readonly netns: Netns;
      readonly api: ProxyApi;
      /** As {@linkcode proxyConfiguration} takes them. */
      readonly fields: Readonly<Record<string, unknown>>;
    },
  ): Promise<RealKubeProxy> {
    const config = `${api.folder}/${netns.name}.kube-proxy.json`;
    await Deno.writeTextFile(config, JSON.stringify(proxyConfiguration(api, fields)));
    const child = new Deno.Command("ip", {
      args: ["netns", "exec", netns.name, program, `--config=${config}`, "--v=2"],
      stdin: "null",
      stdout: "null",
      stderr: "piped",
    }).spawn();
    return new RealKubeProxy(child);
  }

  /** What it said last. */
  get log(): string {
    return this.#lines.join("\n");
  }

  /** Ends it and waits for the end. */
  async stop(signal: Deno.Signal = "SIGTERM"): Promise<void> {
    signalChild(this.#child, signal);
    await this.#child.status;
    await this.#reading;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop("SIGKILL");
  }

  async #read(): Promise<void> {
    let rest = "";
    for await (const text of this.#child.stderr.pipeThrough(new TextDecoderStream())) {
      const lines = (rest + text).split("\n");
      rest = lines.pop() ?? "";
      this.#lines.push(...lines);
      if (this.#lines.length > KEPT_LINES) this.#lines.splice(0, this.#lines.length - KEPT_LINES);
    }
  }
}
