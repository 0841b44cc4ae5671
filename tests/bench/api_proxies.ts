/**
 * Proxies as clients of kapi: kproxy and, where there is one, a peer, each in a network namespace of its own.
 *
 * @module
 */
import {
  type ApiServer,
  type ClientNetns,
  kubeconfigFor,
  serverCpuMs,
  type Traffic,
  trafficOf,
} from "./api_servers.ts";
import { KproxyProcess } from "./kproxy_process.ts";
import { type Peer, startPeer } from "./peer_process.ts";
import type { ProxyProcess } from "./proxy_process.ts";

/** Which proxy. */
export type ProxyName = "kproxy" | "peer";

/** A proxy, where it runs, and whom it asks. */
export interface ProxyPlace {
  readonly name: ProxyName;
  readonly client: ClientNetns;
  readonly server: ApiServer;
  /** Where its files go; must exist. */
  readonly folder: string;
  readonly peer: Peer | null;
  /** `kproxy.js` of a bundle; the source if undefined. */
  readonly program: string | undefined;
}

/** What everything has cost so far: bytes, milliseconds. */
export interface Meter extends Traffic {
  readonly atMs: number;
  readonly serverMs: number;
  /** Of a server that nobody asks. */
  readonly idleServerMs: number;
  readonly ownMs: number;
  /** Of the programs that it started. */
  readonly programsMs: number;
}

/** What lies between two looks; what the server does without any client is taken off. */
export interface Cost {
  readonly received: number;
  readonly sent: number;
  readonly serverMs: number;
  readonly ownMs: number;
  readonly programsMs: number;
}

const MODE = "nftables";
const SETTLE_TIMEOUT_MS = 600_000;
const QUIET_MS = 3_000;
/** Less than any object has, and more than a bookmark of each kind. */
const QUIET_BYTES = 4_000;
/** Of a Service and its slice at least, in protobuf. */
const LEAST_BYTES = 500;

/** Starts it, in mode nftables. */
export async function startProxy(
  { name, client, server, folder, peer, program }: ProxyPlace,
): Promise<ProxyProcess> {
  const master = `https://${client.address}:${server.port}`;
  const kubeconfig = await kubeconfigFor(client, server);
  if (name === "peer") {
    if (peer === null) throw new TypeError("There is no peer");
    const options = { master, kubeconfig, mode: MODE, minSyncPeriodMs: null, folder } as const;
    return await startPeer(peer, client.netns, options);
  }
  const path = `${folder}/kproxy.kubeconfig`;
  await Deno.writeTextFile(path, kubeconfig);
  return new KproxyProcess(client.netns, {
    master,
    mode: MODE,
    flags: [`--kubeconfig=${path}`],
    ...program === undefined ? {} : { program },
  });
}

/** Looks; without a process, before it is started. */
export async function look(
  { client, server }: ProxyPlace,
  idle: ApiServer,
  process: ProxyProcess | null,
): Promise<Meter> {
  const [traffic, serverMs, idleServerMs, cpu] = await Promise.all([
    trafficOf(client),
    serverCpuMs(server),
    serverCpuMs(idle),
    process?.cpuParts() ?? { ownMs: 0, programsMs: 0 },
  ]);
  return { ...traffic, ...cpu, atMs: Date.now(), serverMs, idleServerMs };
}

/** What it cost from one look to the next. */
export function costBetween(from: Meter, to: Meter): Cost {
  return {
    received: to.received - from.received,
    sent: to.sent - from.sent,
    serverMs: to.serverMs - from.serverMs - (to.idleServerMs - from.idleServerMs),
    ownMs: to.ownMs - from.ownMs,
    programsMs: to.programsMs - from.programsMs,
  };
}

/**
 * Resolves when all Services have arrived since `from`, nothing more has for three seconds, and what was to do with them is done.
 *
 * @throws {Error} if the process ends, or takes ten minutes, with the end of its log
 */
export async function settled(
  place: ProxyPlace,
  process: ProxyProcess,
  from: Traffic,
  services: number,
): Promise<void> {
  const deadlineMs = performance.now() + SETTLE_TIMEOUT_MS;
  let before = from.received;
  const least = before + services * LEAST_BYTES;
  for (let quietSinceMs = performance.now();;) {
    await new Promise((resolve) => setTimeout(resolve, 250));
    if (process.hasEnded) throw new Error(`${process.name} ended:\n${process.tail}`);
    if (performance.now() > deadlineMs) throw new Error(`${process.name} does not settle:\n${process.tail}`);
    const { received } = await trafficOf(place.client);
    if (received - before > QUIET_BYTES || received < least) {
      before = received;
      quietSinceMs = performance.now();
    }
    if (performance.now() - quietSinceMs >= QUIET_MS) break;
  }
  await process.settled(SETTLE_TIMEOUT_MS);
}
