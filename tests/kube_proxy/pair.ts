/**
 * Two nodes that are alike, one with kube-proxy and one with kproxy, of one API server and with one configuration.
 *
 * @module
 */
import type { ObjectJson } from "../../lib/source/decode/api_json.ts";
import type { KubeProxyMode } from "../support/kube_proxy/kube_proxy.ts";
import { ProxyApi } from "../support/kube_proxy/proxy_api.ts";
import { proxyConfiguration, RealKubeProxy } from "../support/kube_proxy/real_kube_proxy.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { NodeLab } from "../support/node_lab.ts";

/** Fields of the configuration beside the mode; none at all would be read as not said, which is a second. */
const FIELDS = {
  clusterCIDR: "10.244.0.0/16,fd00:10:244::/56",
  iptables: { minSyncPeriod: "1ms" },
  nftables: { minSyncPeriod: "1ms" },
  ipvs: { minSyncPeriod: "1ms" },
} as const;

/** See the module; disposing of it removes everything. */
export class ProxyPair implements AsyncDisposable {
  readonly #stack: AsyncDisposableStack;
  readonly #kubeProxy: RealKubeProxy;
  readonly #kproxy: KproxyProcess;

  private constructor(
    readonly mode: KubeProxyMode,
    /** kube-proxy's node. */
    readonly theirs: NodeLab,
    /** kproxy's. */
    readonly ours: NodeLab,
    readonly api: ProxyApi,
    kubeProxy: RealKubeProxy,
    kproxy: KproxyProcess,
    stack: AsyncDisposableStack,
  ) {
    this.#kubeProxy = kubeProxy;
    this.#kproxy = kproxy;
    this.#stack = stack;
  }

  /** Starts both proxies; resolves when both serve these objects. */
  static async create(
    program: string,
    mode: KubeProxyMode,
    objects: readonly ObjectJson[],
    fields: Readonly<Record<string, unknown>> = {},
  ): Promise<ProxyPair> {
    await using stack = new AsyncDisposableStack();
    const [theirs, ours] = [stack.use(await NodeLab.create()), stack.use(await NodeLab.create())];
    const api = stack.use(await ProxyApi.open([theirs.node.netns, ours.node.netns]));
    api.replace(objects);
    const all = { mode, ...FIELDS, ...fields };
    const kubeProxy = stack.use(
      await RealKubeProxy.start(program, { netns: theirs.node.netns, api, fields: all }),
    );
    const config = `${api.folder}/kproxy.json`;
    await Deno.writeTextFile(config, JSON.stringify(proxyConfiguration(api, all)));
    const kproxy = stack.use(
      await KproxyProcess.start({ netns: ours.node.netns, args: [`--config=${config}`] }),
    );
    const pair = new ProxyPair(mode, theirs, ours, api, kubeProxy, kproxy, stack.move());
    try {
      await pair.#inForce();
      return pair;
    } catch (error) {
      await pair[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Ends both proxies as their Pods' ends would; what they wrote stays. */
  async endProxies(): Promise<void> {
    await this.#kubeProxy.stop();
    await this.#kproxy.stop();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack[Symbol.asyncDispose]();
  }

  async #inForce(): Promise<void> {
    try {
      for (const lab of [this.theirs, this.ours]) await this.api.inForce(lab.node.netns, this.mode);
    } catch (error) {
      throw new Error(`kube-proxy said:\n${this.#kubeProxy.log}`, { cause: error });
    }
  }
}
