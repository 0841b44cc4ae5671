/**
 * A lab with a UDP Service that is reached by every kind of frontend, in one IP family.
 *
 * @module
 */
import type { IpFamily } from "../../lib/model/objects.ts";
import { type ApiJson, service, type ServiceSpec, slice } from "../flows/objects.ts";
import type { LabHost } from "./lab_host.ts";
import type { SocketAddress } from "./lab_sockets.ts";
import { NODE_ADDRESSES, NodeLab } from "./node_lab.ts";
import { type UdpRoute, UdpSender } from "./udp_sender.ts";
import { until } from "./until.ts";

const PORT = 53;
const NODE_PORT = 30053;
const TARGET_PORT = 5353;
const FIRST_SOURCE_PORT = 4000;

interface Addresses {
  readonly pods: readonly [string, string, string];
  readonly pod: string;
  readonly client: string;
  readonly clusterIP: string;
  readonly externalIP: string;
  readonly loadBalancerIP: string;
}

const ADDRESSES: Readonly<Record<IpFamily, Addresses>> = {
  IPv4: {
    pods: ["10.244.0.11", "10.244.0.12", "10.244.0.13"],
    pod: "10.244.0.5",
    client: "198.51.100.9",
    clusterIP: "10.96.0.10",
    externalIP: "203.0.113.7",
    loadBalancerIP: "203.0.113.8",
  },
  IPv6: {
    pods: ["fd00:10:244::11", "fd00:10:244::12", "fd00:10:244::13"],
    pod: "fd00:10:244::5",
    client: "2001:db8:51::9",
    clusterIP: "fd00:10:96::a",
    externalIP: "2001:db8:113::7",
    loadBalancerIP: "2001:db8:113::8",
  },
};

/** Frontends of the Service. */
export const UDP_FRONTENDS = [
  "cluster IP",
  "node port",
  "second node address",
  "external IP",
  "load balancer IP",
] as const;
export type UdpFrontend = typeof UDP_FRONTENDS[number];

/** The lab, with serving pods, a client pod and a client outside. */
export class UdpLab implements AsyncDisposable {
  readonly #senders: UdpSender[] = [];

  private constructor(
    readonly family: IpFamily,
    readonly lab: NodeLab,
    readonly pod: LabHost,
    readonly client: LabHost,
  ) {}

  static async create(family: IpFamily): Promise<UdpLab> {
    const { pods, pod, client } = ADDRESSES[family];
    const lab = await NodeLab.create();
    // A node tracks connections once a rule needs it; on a real node the CNI or firewall has such a rule.
    for (const program of ["iptables", "ip6tables"]) {
      await lab.node.netns.run([program, "-t", "nat", "-A", "POSTROUTING", "-o", "wan0", "-j", "MASQUERADE"]);
    }
    for (const ip of pods) {
      await (await lab.host(ip, "cni0")).call("serve", { protocol: "udp", ip, port: TARGET_PORT });
    }
    return new UdpLab(family, lab, await lab.host(pod, "cni0"), await lab.host(client));
  }

  get addresses(): Addresses {
    return ADDRESSES[this.family];
  }

  /** The Service `shop/dns` and its slice with these endpoints (as in `tests/flows/objects.ts`). */
  objects(endpoints: readonly string[], spec: Partial<ServiceSpec> = {}): ApiJson[] {
    const { clusterIP, externalIP, loadBalancerIP } = this.addresses;
    const dns = service("shop/dns", {
      type: "LoadBalancer",
      clusterIP,
      clusterIPs: [clusterIP],
      ipFamilies: [this.family],
      ports: [`dns:${PORT}:${NODE_PORT}/UDP`],
      externalIPs: [externalIP],
      ingress: [{ ip: loadBalancerIP }],
      ...spec,
    });
    const endpointSlice = slice("shop/dns.1", [`dns:${TARGET_PORT}/UDP`], endpoints);
    return [dns, { ...endpointSlice, addressType: this.family }];
  }

  /** Destination of datagrams for a frontend. */
  frontend(name: UdpFrontend): SocketAddress {
    const { clusterIP, externalIP, loadBalancerIP } = this.addresses;
    const index = this.family === "IPv4" ? 0 : 1;
    const frontends: Readonly<Record<UdpFrontend, SocketAddress>> = {
      "cluster IP": { ip: clusterIP, port: PORT },
      "node port": { ip: NODE_ADDRESSES.eth0[index], port: NODE_PORT },
      "second node address": { ip: NODE_ADDRESSES.eth1[index], port: NODE_PORT },
      "external IP": { ip: externalIP, port: PORT },
      "load balancer IP": { ip: loadBalancerIP, port: PORT },
    };
    return frontends[name];
  }

  /** A sender with a port of its own: to the cluster IP from the pod, else from outside. */
  sender(name: UdpFrontend, pace: Pick<UdpRoute, "slowness"> = {}): UdpSender {
    const [host, ip] = name === "cluster IP"
      ? [this.pod, this.addresses.pod] as const
      : [this.client, this.addresses.client] as const;
    const from = { ip, port: FIRST_SOURCE_PORT + this.#senders.length };
    const sender = new UdpSender({ ...pace, host, from, to: this.frontend(name) });
    this.#senders.push(sender);
    return sender;
  }

  /** Waits until this pod answers a new flow. */
  async untilServed(ip: string, { slowness = 1 }: Pick<UdpRoute, "slowness"> = {}): Promise<void> {
    const to = this.frontend("cluster IP");
    const isServed = async (): Promise<boolean> => {
      const [result] = await this.pod.probe({ protocol: "udp", to, timeoutMs: 100 * slowness });
      return result?.kind === "answer" && result.answer.local.ip === ip;
    };
    await until(isServed, `${ip} is chosen`, { limitMs: 300_000 });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const sender of this.#senders) await sender[Symbol.asyncDispose]();
    await this.lab[Symbol.asyncDispose]();
  }
}
