/**
 * Servers of kapi over one etcd in a network namespace, each for one client: what a client costs is what its server does more
 * than the one that nobody asks.
 *
 * @module
 */
import { kubeconfigText } from "../support/kubeconfig_text.ts";
import { link, type Netns } from "../support/netns.ts";
import { buildEtcd, buildKapi, KAPI_TOKEN } from "../support/kapi.ts";
import { cpuTicks, TICK_MS } from "./process_costs.ts";

const SOURCES = new URL("../lab/kapi/", import.meta.url).pathname;
const ETCD_PORT = 22379;
const FIRST_PORT = 26443;
const START_TIMEOUT_MS = 120_000;
const FILL_TIMEOUT_MS = 600_000;
/** Requests are logged from this level on, each when it has ended. */
const LOGGED = "-v=3";
/** As kubeadm starts it: from this, API servers learn what to tell those who wait where nothing changes. */
const ETCD_FLAGS = "--watch-progress-notify-interval=5s";
/** Of each client, its only one. */
const DEVICE = "kp-api";

/** One server. */
export interface ApiServer {
  /** Holds its certificate, kubeconfig and log. */
  readonly folder: string;
  readonly port: number;
  readonly pid: number;
}

/** A client's namespace, which reaches the servers and nothing else. */
export interface ClientNetns {
  readonly netns: Netns;
  /** Where it finds the servers. */
  readonly address: string;
  /** Its own, by which their logs know it. */
  readonly ownAddress: string;
}

/** What has crossed a client's only device, in bytes: TCP, TLS and HTTP included. */
export interface Traffic {
  readonly received: number;
  readonly sent: number;
}

/** The servers; they end with their namespace. */
export class ApiServers {
  readonly #netns: Netns;
  readonly #folder: string;
  readonly #program: string;
  readonly #etcd: string;
  readonly #servers: ApiServer[] = [];

  private constructor(netns: Netns, folder: string, program: string, etcd: string) {
    this.#netns = netns;
    this.#folder = folder;
    this.#program = program;
    this.#etcd = etcd;
  }

  /** Builds what is missing, which takes minutes. Files go to `folder`; `clients` will reach the servers. */
  static async prepare(netns: Netns, clients: readonly Netns[], folder: string): Promise<ApiServers> {
    for (const [i, client] of clients.entries()) {
      const { address, ownAddress } = clientOf(client, i);
      await link(
        { netns, name: `client${i}`, addresses: [`${address}/30`] },
        { netns: client, name: DEVICE, addresses: [`${ownAddress}/30`] },
      );
    }
    return new ApiServers(netns, folder, await buildKapi(), await buildEtcd());
  }

  /** Starts one more. `streamsLists`: watches may begin with lists. */
  async start({ streamsLists = true } = {}): Promise<ApiServer> {
    const index = this.#servers.length;
    const folder = `${this.#folder}/server${index}`;
    await Deno.mkdir(folder);
    // All stand over the first one's storage.
    const [first] = this.#servers;
    if (first !== undefined) await Deno.copyFile(`${first.folder}/etcd.pid`, `${folder}/etcd.pid`);
    const port = FIRST_PORT + index;
    const addresses = Array.from({ length: 8 }, (_, i) => serverAddress(i)).join(",");
    await this.#netns.run([
      ...[
        "env",
        `KAPI=${this.#program}`,
        `ETCD=${this.#etcd}`,
        `ETCD_PORT=${ETCD_PORT}`,
        `ETCD_FLAGS=${ETCD_FLAGS}`,
      ],
      ...[`${SOURCES}run.sh`, folder, String(port), "-bind", "0.0.0.0", "-san", addresses, LOGGED],
      // Of two such words the last one counts.
      ...["-feature-gates", `WatchList=${streamsLists}`],
    ], { timeoutMs: START_TIMEOUT_MS });
    const pid = Number(await Deno.readTextFile(`${folder}/kapi.pid`));
    const server = { folder, port, pid };
    this.#servers.push(server);
    return server;
  }

  /** Makes Services `svc-00000` and on up to `services`, each with a slice. */
  async fill({ folder }: ApiServer, services: number, endpoints: number): Promise<void> {
    const options = ["-services", String(services), "-endpoints", String(endpoints)];
    await this.#netns.run([this.#program, "fill", "-kubeconfig", `${folder}/kubeconfig`, ...options], {
      timeoutMs: FILL_TIMEOUT_MS,
    });
  }

  /** Runs a script of this folder where the servers are; yields what it prints. */
  async script(name: string, args: readonly string[], timeoutMs: number): Promise<string> {
    const path = new URL(name, import.meta.url).pathname;
    return await this.#netns.run([Deno.execPath(), "run", "-A", "-q", "--no-check", path, ...args], {
      timeoutMs,
    });
  }
}

function serverAddress(client: number): string {
  return `10.78.${client}.1`;
}

/** Where the client of that number finds the servers. */
export function clientOf(netns: Netns, index: number): ClientNetns {
  return { netns, address: serverAddress(index), ownAddress: `10.78.${index}.2` };
}

/** Processor time of a server so far, in milliseconds; resolution 10 ms. */
export async function serverCpuMs({ pid }: ApiServer): Promise<number> {
  const { user, system } = cpuTicks(await Deno.readTextFile(`/proc/${pid}/stat`));
  return (user + system) * TICK_MS;
}

/** What a client has received and sent so far. */
export async function trafficOf({ netns }: ClientNetns): Promise<Traffic> {
  const text = await netns.run(["ip", "-j", "-s", "link", "show", "dev", DEVICE]);
  const [device] = JSON.parse(text) as [{ stats64: { rx: { bytes: number }; tx: { bytes: number } } }];
  const { rx, tx } = device.stats64;
  return { received: rx.bytes, sent: tx.bytes };
}

/** A kubeconfig by which a client reaches a server; `cluster` goes to the fields of the cluster. */
export async function kubeconfigFor(
  { address }: ClientNetns,
  { folder, port }: ApiServer,
  cluster: Readonly<Record<string, unknown>> = {},
): Promise<string> {
  const authority = btoa(await Deno.readTextFile(`${folder}/ca.crt`));
  const server = `https://${address}:${port}`;
  return kubeconfigText({
    cluster: { server, "certificate-authority-data": authority, ...cluster },
    user: { token: KAPI_TOKEN },
  });
}
