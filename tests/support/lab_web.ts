/**
 * A lab with a Service, for tests of changes and restarts.
 *
 * @module
 */
import type { ApiJson } from "../flows/objects.ts";
import { service, slice } from "../flows/objects.ts";
import { ConnectLoop } from "./connect_loop.ts";
import { KproxyProcess } from "./kproxy_process.ts";
import type { LabHost } from "./lab_host.ts";
import { LabManifests } from "./lab_manifests.ts";
import { IPTABLES, type LabMode } from "./lab_mode.ts";
import type { SocketAddress } from "./lab_sockets.ts";
import { NODE_OBJECT, NodeLab } from "./node_lab.ts";
import { program, ROOT_NAMESPACES } from "./skip.ts";

/** Needs of such tests. */
export const WEB_NEEDS = [
  ROOT_NAMESPACES,
  ...["ip", "sysctl", "conntrack", "iptables", "ip6tables"].map(program),
];

export const WEB_PORT = 80;
export const WEB_TARGET_PORT = 8080;
export const WEB_NODE_PORT = 30080;
export const WEB_CLUSTER_IP = "10.96.0.1";
/** Addresses of serving pods; the third is on another node. */
export const WEB_PODS = ["10.244.0.11", "10.244.0.12", "10.244.1.13"] as const;

/** The Service `shop/web`, with a node port. */
export const WEB_SERVICE: ApiJson = service("shop/web", {
  type: "NodePort",
  clusterIP: WEB_CLUSTER_IP,
  ports: [`http:${WEB_PORT}:${WEB_NODE_PORT}`],
});

/** Slice of the Service, with these pods. */
export function webSlice(pods: readonly string[]): ApiJson {
  const endpoints = pods.map((ip) => `${ip}@${ip.startsWith("10.244.0.") ? "node-a" : "node-b"}`);
  return slice("shop/web.1", [`http:${WEB_TARGET_PORT}`], endpoints);
}

/** Default arguments of the lab's kproxy, except for its mode. */
export const WEB_ARGS = [
  "--hostname-override=node-a",
  "--cluster-cidr=10.244.0.0/16,fd00:10:244::/56",
  "--iptables-min-sync-period=0s",
  "--ipvs-min-sync-period=0s",
];

/** The lab, with a client pod, a client outside, serving pods, and a folder with the Service's objects. */
export class WebLab implements AsyncDisposable {
  private constructor(
    readonly lab: NodeLab,
    readonly manifests: LabManifests,
    readonly pod: LabHost,
    readonly client: LabHost,
    readonly mode: LabMode,
  ) {}

  static async create(mode: LabMode = IPTABLES): Promise<WebLab> {
    const lab = await NodeLab.create();
    const manifests = await LabManifests.create();
    for (const ip of WEB_PODS) {
      const host = await lab.host(ip, ip.startsWith("10.244.0.") ? "cni0" : "eth0");
      await host.call("serve", { protocol: "tcp", ip, port: WEB_TARGET_PORT });
    }
    const pod = await lab.host("10.244.0.5", "cni0");
    const web = new WebLab(lab, manifests, pod, await lab.host("198.51.100.9"), mode);
    await web.writeObjects();
    return web;
  }

  /** Restores the folder's initial objects. */
  async writeObjects(): Promise<void> {
    await this.manifests.clear();
    await this.manifests.replace("node.json", [NODE_OBJECT]);
    await this.manifests.replace("web.json", [WEB_SERVICE]);
    await this.manifests.replace("endpoints.json", [webSlice(WEB_PODS.slice(0, 2))]);
  }

  /** Starts a connect loop, at the pace of the mode. */
  async loop(host: LabHost, to: SocketAddress): Promise<ConnectLoop> {
    return await ConnectLoop.start(host, to, "tcp", this.mode.pace);
  }

  /** Servers that answer the pod at this address, or other results of its connections; distinct and sorted. */
  async answering(to: SocketAddress, timeoutMs = 30_000): Promise<readonly string[]> {
    // With three endpoints, chance omits one in four million runs; with 20 requests it would be one in a thousand.
    const results = await this.pod.probe({ protocol: "tcp", to, count: 40, timeoutMs });
    return [...new Set(results.map((one) => one.kind === "answer" ? one.answer.local.ip : one.kind))].sort();
  }

  /** Starts kproxy on the node and waits for its first syncs. */
  async start(args: readonly string[] = []): Promise<KproxyProcess> {
    return await KproxyProcess.start(this.options(args));
  }

  /** Options of {@linkcode start}. */
  options(args: readonly string[] = []): { netns: NodeLab["node"]["netns"]; args: string[] } {
    return {
      netns: this.lab.node.netns,
      args: [
        ...WEB_ARGS,
        `--proxy-mode=${this.mode.name}`,
        `--manifests=${this.manifests.folder}`,
        ...args,
      ],
    };
  }

  /** All rules of the mode: equal if and only if the rules are. */
  async rules(): Promise<string> {
    return await this.mode.rules(this.lab.node.netns);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.lab[Symbol.asyncDispose]();
    await this.manifests[Symbol.asyncDispose]();
  }
}
