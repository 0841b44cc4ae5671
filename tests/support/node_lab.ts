/**
 * A small network around a node, all in namespaces: pods of the node, pods of other nodes, clients outside.
 *
 * ```
 *  pods of the node ──cni0── node ──eth0── world ── clients outside, pods of other nodes
 *                                 ──eth1──
 * ```
 *
 * The world is the router before every address outside of the node. It routes all packets of its hosts through the node,
 * and answers itself for every address without a host, so that packets which the node forwards are seen to arrive.
 *
 * @module
 */
import { runOk, systemExec } from "../../lib/kernel/exec.ts";
import type { ObjectJson } from "../../lib/source/decode/api_json.ts";
import { LabGuard } from "./lab_guard.ts";
import { LabHost } from "./lab_host.ts";
import { createNetns, type Netns, removeNetns } from "./netns.ts";

/** Addresses of the node; those on `cni0` are its pods' gateway. */
export const NODE_ADDRESSES = {
  eth0: ["192.0.2.10", "fd00:192::10"],
  eth1: ["192.168.7.10", "fd00:7::10"],
  cni0: ["10.244.255.1", "fd00:10:244:ff::1"],
} as const;

/** The Node object of the lab's node, as the API server would send it. */
export const NODE_OBJECT = {
  apiVersion: "v1",
  kind: "Node",
  metadata: { name: "node-a", labels: { "topology.kubernetes.io/zone": "z1" } },
  spec: { podCIDRs: ["10.244.0.0/24", "fd00:10:244::/64"] },
  status: {
    addresses: NODE_ADDRESSES.eth0.map((address) => ({ type: "InternalIP", address })),
  },
} as const satisfies ObjectJson<"Node">;

const WORLD_ADDRESSES = {
  eth0: ["192.0.2.1", "fd00:192::1"],
  eth1: ["192.168.7.1", "fd00:7::1"],
  hosts: ["169.254.1.1", "fd00:fe::1"],
} as const;
/** Routing table for packets of the world's hosts, and of the world itself: all go to the node. */
const TO_NODE_TABLE = 200;

const COMMON_SYSCTLS = [
  ...["all", "default"].flatMap((scope) => [
    `net.ipv4.conf.${scope}.rp_filter=0`,
    `net.ipv4.conf.${scope}.send_redirects=0`,
    `net.ipv4.conf.${scope}.accept_redirects=0`,
    `net.ipv6.conf.${scope}.accept_redirects=0`,
    `net.ipv6.conf.${scope}.accept_ra=0`,
    // With duplicate address detection, an address cannot be used for its first second.
    `net.ipv6.conf.${scope}.accept_dad=0`,
    `net.ipv6.conf.${scope}.dad_transmits=0`,
  ]),
  // Each REJECT must be answered; by default a host sends only a few a second.
  "net.ipv4.icmp_ratelimit=0",
  "net.ipv6.icmp.ratelimit=0",
];
/**
 * A route makes every address the world's own, but packets from them must be accepted all the same. And packets of
 * its own connections must not be recognized before they have been to the node and back.
 */
const WORLD_SYSCTLS = ["net.ipv4.conf.all.accept_local=1", "net.ipv4.ip_early_demux=0"];
const ROUTER_SYSCTLS = [...COMMON_SYSCTLS, "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"];

/** Prefix length of a single address. */
export function hostPrefix(address: string): string {
  return address.includes(":") ? `${address}/128` : `${address}/32`;
}

function familyFlag(address: string): string {
  return address.includes(":") ? "-6 " : "";
}

async function setSysctls(netns: Netns, settings: readonly string[]): Promise<void> {
  await netns.run(["sysctl", "-q", "-w", ...settings]);
}

/** Runs lines of the command `ip` in a namespace, in one process per address family. */
async function ip(netns: Netns, lines: readonly string[]): Promise<void> {
  for (const six of [false, true]) {
    const chosen = lines.filter((line) => line.startsWith("-6 ") === six);
    if (chosen.length === 0) continue;
    const argv = ["ip", ...(six ? ["-6"] : []), "-n", netns.name, "-batch", "-"];
    await runOk(systemExec, argv, { stdin: chosen.map((line) => line.replace(/^-6 /, "") + "\n").join("") });
  }
}

/** The network; disposing of it removes everything. */
export class NodeLab implements AsyncDisposable {
  readonly #hosts = new Map<string, LabHost>();
  readonly #interfaces = new Set<string>();
  /** The node's route for each address. */
  readonly #routes = new Map<string, string>();
  readonly #guard = new LabGuard();
  /** Namespaces to remove, in order of creation. */
  readonly #namespaces: Netns[] = [];
  #node: LabHost | undefined;
  #world: LabHost | undefined;

  private constructor() {}

  /** Creates node and world; hosts are created on demand. */
  static async create(): Promise<NodeLab> {
    const lab = new NodeLab();
    try {
      await lab.#build();
      return lab;
    } catch (error) {
      await lab[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** The node. */
  get node(): LabHost {
    if (this.#node === undefined) throw new TypeError("The lab is not built");
    return this.#node;
  }

  /** The host that answers for every address without a host. */
  get world(): LabHost {
    if (this.#world === undefined) throw new TypeError("The lab is not built");
    return this.#world;
  }

  async #namespace(): Promise<Netns> {
    const netns = await createNetns();
    this.#namespaces.push(netns);
    return netns;
  }

  async #build(): Promise<void> {
    const [node, world] = [await this.#namespace(), await this.#namespace()];
    await setSysctls(node, ROUTER_SYSCTLS);
    await setSysctls(world, [...ROUTER_SYSCTLS, ...WORLD_SYSCTLS]);
    const links = (["eth0", "eth1"] as const).map((name) =>
      `link add ${name} type veth peer name ${name} netns ${world.name}`
    );
    await ip(node, [
      ...links,
      // Without a fixed address a bridge takes the lowest hardware address of its ports, while pods use the old one.
      "link add cni0 address 02:00:00:00:00:01 type bridge mcast_snooping 0",
      ...addAddresses("eth0", NODE_ADDRESSES.eth0, { v4: 24, v6: 64 }),
      ...addAddresses("eth1", NODE_ADDRESSES.eth1, { v4: 24, v6: 64 }),
      ...addAddresses("cni0", NODE_ADDRESSES.cni0, { v4: 32, v6: 128 }),
      ...["eth0", "eth1", "cni0"].map((name) => `link set ${name} up`),
    ]);
    const [world4, world6] = WORLD_ADDRESSES.eth0;
    await ip(world, [
      ...addAddresses("eth0", WORLD_ADDRESSES.eth0, { v4: 32, v6: 128 }),
      ...addAddresses("eth1", WORLD_ADDRESSES.eth1, { v4: 32, v6: 128 }),
      "link set eth0 up",
      "link set eth1 up",
      ...["", "-6 "].flatMap((family, i) => {
        const table = `table ${TO_NODE_TABLE}`;
        return [
          `${family}route add ${NODE_ADDRESSES.eth0[i]} dev eth0 ${table}`,
          `${family}route add ${NODE_ADDRESSES.eth1[i]} dev eth1 ${table}`,
          `${family}route add local ${WORLD_ADDRESSES.hosts[i]} dev lo ${table}`,
          `${family}route add default via ${NODE_ADDRESSES.eth0[i]} dev eth0 ${table}`,
          `${family}rule add iif lo lookup ${TO_NODE_TABLE} priority 100`,
          // Local addresses by a route count as own only in this table, which now comes after the one above.
          `${family}route add local ${family === "" ? "0.0.0.0/0" : "::/0"} dev lo table local`,
          `${family}rule add lookup local priority 150`,
          `${family}rule del priority 0`,
          // Neighbour discovery uses multicast.
          ...(family === ""
            ? []
            : ["ff00::/8", "fe80::/10"].map((to) => `-6 rule add to ${to} lookup local priority 90`)),
        ];
      }),
    ]);
    await ip(node, [`route add default via ${world4}`, `-6 route add default via ${world6}`]);
    this.#node = await LabHost.start(node, "node");
    this.#world = await LabHost.start(world, "world");
  }

  /**
   * Host of this address, created on first use. `at` is the node's interface on which its packets arrive: `cni0` (the bridge), any
   * other name for a pod with an interface of its own, `eth0` or `eth1` for a host behind the world.
   */
  async host(address: string, at = "eth0"): Promise<LabHost> {
    const outside = at === "eth0" || at === "eth1";
    const key = `${address} ${outside ? "world" : at}`;
    const known = this.#hosts.get(key);
    const made = known ?? await this.#makeHost(address, outside ? "world" : at);
    this.#hosts.set(key, made);
    // In another case, the same address may be at another interface.
    await this.#route(address, outside ? null : at);
    if (known === undefined) {
      await untilReachable(made, address);
    }
    return made;
  }

  async #makeHost(address: string, at: string): Promise<LabHost> {
    const netns = await this.#namespace();
    await setSysctls(netns, COMMON_SYSCTLS);
    const index = this.#hosts.size;
    const router = at === "world" ? this.world : this.node;
    const gateway = ofFamily(at === "world" ? WORLD_ADDRESSES.hosts : NODE_ADDRESSES.cni0, address);
    const name = at === "world" || at === "cni0" ? `h${index}` : at;
    const family = familyFlag(address);
    if (this.#interfaces.has(name)) throw new TypeError(`Interface ${name} is taken`);
    this.#interfaces.add(name);
    await ip(router.netns, [
      `link add ${name} type veth peer name eth0 netns ${netns.name}`,
      // Hairpin mode, as network plugins set it: packets of a pod to itself leave by the port they came in on.
      ...(at === "cni0"
        ? [`link set ${name} master cni0`, `link set ${name} type bridge_slave hairpin on`]
        : []),
      `link set ${name} up`,
      // Only the interface that has an IPv6 address answers for it.
      ...(at === "cni0" ? [] : addAddresses(name, [gateway], { v4: 32, v6: 128 })),
      ...(at === "world"
        ? [
          `${family}route add ${hostPrefix(address)} dev ${name} table local`,
          `${family}rule add iif ${name} lookup ${TO_NODE_TABLE} priority 100`,
        ]
        : []),
    ]);
    await ip(netns, [
      ...addAddresses("eth0", [address], { v4: 32, v6: 128 }),
      "link set eth0 up",
      `${family}route add ${hostPrefix(gateway)} dev eth0`,
      `${family}route add default via ${gateway}`,
    ]);
    return await LabHost.start(netns, address);
  }

  /** Gives a host more addresses; `at` is the node's interface to it. */
  async lend(host: LabHost, addresses: readonly string[], at: string): Promise<void> {
    await ip(host.netns, addAddresses("eth0", addresses, { v4: 32, v6: 128 }));
    for (const address of addresses) await this.#route(address, at);
  }

  /** Host of this address behind the world, if it was created. */
  outsideHost(address: string): LabHost | undefined {
    return this.#hosts.get(`${address} world`);
  }

  /** Sets the node's route to the address; null: the default route. */
  async #route(address: string, at: string | null): Promise<void> {
    const family = familyFlag(address);
    const six = family !== "";
    const gateway = WORLD_ADDRESSES.eth0[six ? 1 : 0];
    const way = at === null ? `via ${gateway} dev eth0` : `dev ${at}`;
    if (this.#routes.get(address) === way) return;
    await ip(this.node.netns, [`${family}route replace ${hostPrefix(address)} ${way}`]);
    this.#routes.set(address, way);
  }

  /** Restores the node's IPv6 addresses and routes, which the kernel drops when IPv6 is disabled. */
  async restoreIpv6(): Promise<void> {
    const [, world6] = WORLD_ADDRESSES.eth0;
    const routes = [...this.#routes].filter(([address]) => address.includes(":"));
    await ip(this.node.netns, [
      ...Object.entries(NODE_ADDRESSES).flatMap(([device, [, address]]) =>
        addAddresses(device, [address], { v4: 32, v6: device === "cni0" ? 128 : 64 })
      ),
      `-6 route add default via ${world6}`,
      ...routes.map(([address, path]) => `-6 route replace ${hostPrefix(address)} ${path}`),
    ]);
  }

  /** All hosts so far. */
  get hosts(): readonly LabHost[] {
    return [...this.#hosts.values()];
  }

  /** Drops all connections that the node tracks. */
  async flushConntrack(): Promise<void> {
    await this.node.netns.run(["conntrack", "-F"]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const host of [...this.#hosts.values(), this.#node, this.#world]) host?.[Symbol.dispose]();
    for (const netns of this.#namespaces.toReversed()) await removeNetns(netns);
    await this.#guard[Symbol.asyncDispose]();
  }
}

/** The address of the same family as `address`. */
function ofFamily(addresses: readonly [string, string], address: string): string {
  return addresses[address.includes(":") ? 1 : 0];
}

/**
 * A new link may lose packets until both ends know that they are up. Pings the node and, past it, the world, because the
 * node's firewall may block either.
 */
async function untilReachable(host: LabHost, address: string): Promise<void> {
  for (let attempt = 0; attempt < 300; attempt++) {
    for (const to of [NODE_ADDRESSES.eth0, WORLD_ADDRESSES.eth0]) {
      const { kind } = await host.call("ping", address, ofFamily(to, address), 100);
      if (kind === "answer") return;
    }
  }
  throw new Error(`${host.label} reaches neither the node nor the world`);
}

function addAddresses(
  device: string,
  addresses: readonly string[],
  prefix: { readonly v4: number; readonly v6: number },
): string[] {
  return addresses.map((address) =>
    address.includes(":")
      ? `-6 addr add ${address}/${prefix.v6} dev ${device} nodad`
      : `addr add ${address}/${prefix.v4} dev ${device}`
  );
}
