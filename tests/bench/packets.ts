/**
 * The way of packets: a client, a node and pods, each in a network namespace, and what a new connection takes through the node's rules.
 * All proxies are at work at the same time, each on a node of its own, and are measured in turns.
 *
 * @module
 */
import { runOk, systemExec } from "../../lib/kernel/exec.ts";
import type { PacketsRow, PathSamples } from "../../tools/figures/records.ts";
import { median } from "../../tools/figures/samples.ts";
import type { SocketAddress } from "../support/lab_sockets.ts";
import { link, type Netns } from "../support/netns.ts";
import { signalChild } from "../../tools/end_programs.ts";
import { openNetns } from "./bench_netns.ts";
import { FakeApi } from "./fake_api_process.ts";
import {
  clusterIp,
  type ClusterSize,
  ENDPOINT_PORT,
  endpointIp,
  SERVICE_PORT,
  serviceObject,
  sliceObject,
} from "./fake_objects.ts";
import { KproxyProcess } from "./kproxy_process.ts";
import { LineReader } from "./line_reader.ts";
import type { BenchMode } from "./mode.ts";
import { type Peer, startPeer } from "./peer_process.ts";

/** What to measure. */
export interface PacketsOptions {
  readonly modes: readonly BenchMode[];
  readonly size: ClusterSize;
  /** `kproxy.js` of a bundle; undefined: the source. */
  readonly program: string | undefined;
  readonly peer: Peer | undefined;
  readonly rounds: number;
}

const TIMEOUT_MS = 300_000;
/** Of the node, also in the API. */
const NODE_IP = "10.200.0.1";
const NODE_PORT = 30_080;
/** Connections to each place in a round. */
const CONNECTIONS = 1_000;
const RATE_CONNECTIONS = 3_000;
const STREAMS = 4;
const STREAM_MS = 2_000;
const VERSION = 500;

/** What the program of `load.c` tells. */
interface LoadResult {
  readonly ms: number;
  readonly timesMs: readonly number[];
  readonly bytes: number;
}

/** The program of `load.c` in the client's namespace: its first word, where it connects to, and the other words. */
type Client = (
  job: "reach" | "requests" | "streams",
  to: SocketAddress,
  ...words: readonly number[]
) => Promise<LoadResult>;

/** A node that forwards between a client and pods. */
interface Path {
  readonly node: Netns;
  readonly client: Client;
}

/** One row on its way, and where its client connects to. */
interface Measured {
  readonly row: { readonly mode: PacketsRow["mode"]; readonly proxy: PacketsRow["proxy"] };
  readonly client: Client;
  readonly places: Readonly<Partial<Record<"pod" | "first" | "middle" | "last", SocketAddress>>>;
  readonly throughput: SocketAddress;
  readonly connectUs: Partial<Record<"pod" | "first" | "middle" | "last", number[]>>;
  readonly perSecond: number[];
  readonly megabytes: number[];
}

/** Measures; what it makes is gone when it settles. */
export async function measurePackets(options: PacketsOptions, folder: string): Promise<PacketsRow[]> {
  const { modes, peer, rounds } = options;
  await using stack = new AsyncDisposableStack();
  const load = `${folder}/load`;
  await runOk(systemExec, ["gcc", "-O2", "-o", load, new URL("./load.c", import.meta.url).pathname]);
  const all = [await withoutProxy(stack, load, options.size)];
  for (const mode of modes) {
    for (const proxy of peer === undefined ? ["kproxy"] as const : ["kproxy", "kube-proxy"] as const) {
      all.push(await withProxy(stack, options, { mode, proxy, load }, folder));
    }
  }
  for (let round = 0; round < rounds; round++) {
    for (const measured of all) await measureRound(measured);
  }
  return all.map(({ row, connectUs, perSecond, megabytes }) => ({
    ...row,
    path: {
      connectUs: connectUs as PathSamples["connectUs"],
      connectionsPerSecond: perSecond,
      megabytesPerSecond: megabytes,
    },
  }));
}

async function measureRound({ client, places, throughput, ...samples }: Measured): Promise<void> {
  for (const [place, to] of Object.entries(places) as [keyof typeof places, SocketAddress][]) {
    const { timesMs } = await client("requests", to, CONNECTIONS);
    (samples.connectUs[place] ??= []).push(Math.round(10_000 * median(timesMs)) / 10);
  }
  const to = places.middle ?? throughput;
  const { ms } = await client("requests", to, RATE_CONNECTIONS);
  samples.perSecond.push(Math.round(1000 * RATE_CONNECTIONS / ms));
  const { bytes, ms: streamMs } = await client("streams", throughput, STREAMS, STREAM_MS);
  samples.megabytes.push(Math.round(bytes / 1000 / streamMs));
}

/** Client and pods with a node between them, which forwards. */
async function openPath(stack: AsyncDisposableStack, load: string): Promise<Path> {
  const [client, node, pods] = [await openNetns(stack), await openNetns(stack), await openNetns(stack)];
  // Outside of what is routed to pods, which they take for their own.
  for (
    const [netns, name, net] of [[client, "client", "192.168.201"], [pods, "pods", "192.168.202"]] as const
  ) {
    await link(
      { netns: node, name, addresses: [`${net}.1/24`] },
      { netns, name: "eth0", addresses: [`${net}.2/24`] },
    );
    await netns.run(["ip", "route", "add", "default", "via", `${net}.1`]);
  }
  await node.run(["sysctl", "-qw", "net.ipv4.ip_forward=1"]);
  await node.run(["ip", "addr", "add", `${NODE_IP}/32`, "dev", "lo"]);
  await node.run(["ip", "route", "add", "10.128.0.0/9", "via", "192.168.202.2"]);
  await pods.run(["ip", "route", "add", "local", "10.128.0.0/9", "dev", "lo"]);
  await startBackend(stack, pods, load);
  return {
    node,
    client: async (job, { ip, port }, ...words) =>
      JSON.parse(
        await client.run([load, job, ip, ...[port, ...words].map(String)], {
          timeoutMs: TIMEOUT_MS + 30_000,
        }),
      ),
  };
}

async function startBackend(stack: AsyncDisposableStack, pods: Netns, load: string): Promise<void> {
  const child = new Deno.Command("ip", {
    args: ["netns", "exec", pods.name, load, "serve", "0.0.0.0", `${ENDPOINT_PORT}`],
    stdin: "null",
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  stack.defer(async () => {
    signalChild(child);
    await child.status;
  });
  const lines = new LineReader(child.stdout);
  const isReady = await lines.next() === "ready";
  await lines.cancel();
  if (!isReady) throw new Error("The backend did not start");
}

function podOf(size: ClusterSize): SocketAddress {
  return { ip: endpointIp(0, 0, size, false), port: ENDPOINT_PORT };
}

function measuredOf(
  row: Measured["row"],
  client: Client,
  places: Measured["places"],
  throughput: SocketAddress,
): Measured {
  return { row, client, places, throughput, connectUs: {}, perSecond: [], megabytes: [] };
}

async function withoutProxy(stack: AsyncDisposableStack, load: string, size: ClusterSize): Promise<Measured> {
  const { client } = await openPath(stack, load);
  const pod = podOf(size);
  await client("reach", pod, TIMEOUT_MS);
  return measuredOf({ mode: null, proxy: "none" }, client, { pod }, pod);
}

/** Starts a proxy on a node of its own; resolves when the first, the middle and the last Service and the node port lead to pods. */
async function withProxy(
  stack: AsyncDisposableStack,
  { size, program, peer }: PacketsOptions,
  { mode, proxy, load }: {
    readonly mode: BenchMode;
    readonly proxy: "kproxy" | "kube-proxy";
    readonly load: string;
  },
  folder: string,
): Promise<Measured> {
  const { node, client } = await openPath(stack, load);
  await mode.prepare(node);
  const { proxyMode } = mode;
  const api = stack.use(await FakeApi.start(node, size, `${folder}/${proxyMode}-${proxy}.sock`));
  await putNodePort(api, size);
  const own = `${folder}/${proxyMode}-${proxy}`;
  await Deno.mkdir(own);
  stack.use(
    proxy === "kube-proxy" && peer !== undefined
      ? await startPeer(peer, node, { master: api.url, mode: proxyMode, starter: [], folder: own })
      : new KproxyProcess(node, {
        ...{ master: api.url, mode: proxyMode },
        ...program === undefined ? {} : { program },
      }),
  );
  const nodePort = { ip: NODE_IP, port: NODE_PORT };
  const of = (index: number): SocketAddress => ({ ip: clusterIp(index), port: SERVICE_PORT });
  const indexes = [0, size.services >> 1, size.services - 1];
  for (const to of [...indexes.map(of), nodePort]) {
    await client("reach", to, TIMEOUT_MS);
  }
  const [first, middle, last] = (await rulesInOrder(mode, node) ?? indexes.map(clusterIp))
    .map((ip) => ({ ip, port: SERVICE_PORT }));
  const places = { pod: podOf(size), first: first!, middle: middle!, last: last! };
  return measuredOf({ mode: proxyMode, proxy }, client, places, nodePort);
}

/** Cluster IPs of the first, the middle and the last Service whose rule is tried; undefined where there is no order. */
async function rulesInOrder({ proxyMode }: BenchMode, node: Netns): Promise<string[] | undefined> {
  if (proxyMode !== "iptables") return undefined;
  const saved = await node.run(["iptables-nft-save", "-t", "nat"]);
  const ips = Array.from(
    saved.matchAll(/^-A KUBE-SERVICES -d ([\d.]+)\/32 .* -j KUBE-SVC-/gm),
    ([, ip = ""]) => ip,
  );
  return [ips[0]!, ips[ips.length >> 1]!, ips.at(-1)!];
}

/** One Service more, with a node port. */
async function putNodePort(api: FakeApi, size: ClusterSize): Promise<void> {
  const { spec, ...service } = serviceObject(size.services, VERSION);
  const ports = spec!.ports!.map((port) => ({ ...port, nodePort: NODE_PORT }));
  await api.put(
    "endpointslices",
    size.services,
    JSON.stringify(sliceObject(size.services, VERSION, size, false)),
  );
  await api.put(
    "services",
    size.services,
    JSON.stringify({ ...service, spec: { ...spec, type: "NodePort", ports } }),
  );
}
