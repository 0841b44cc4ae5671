/**
 * What forwards connections of TCP from a client to a backend, each started in a network namespace: nothing
 * at all, kproxy in mode userspace, socat and HAProxy.
 *
 * @module
 */
import { signalChild } from "../../tools/end_programs.ts";
import { ROOT } from "../../tools/project_files.ts";
import { findProgram } from "../../tools/setup.ts";
import { service, slice } from "../flows/objects.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { LabManifests } from "../support/lab_manifests.ts";
import type { SocketAddress } from "../support/lab_sockets.ts";
import type { Netns } from "../support/netns.ts";
import { connectionsWithin, type DescriptorLimit } from "./descriptor_limit.ts";

/** Where the backend listens: an endpoint must not be on a loopback address. */
export const BACKEND: SocketAddress = { ip: "10.244.0.10", port: 8080 };
const CLUSTER_IP = "10.96.0.10";
const SERVICE_CIDR = "10.96.0.0/16";
const SOCAT: SocketAddress = { ip: "127.0.0.2", port: 8081 };
/** HAProxy's own default, and what kproxy and socat here use for streams. */
const [HAPROXY_BUFFER_BYTES, LARGE_BUFFER_BYTES] = [16_384, 65_536];
const HAPROXY: SocketAddress = { ip: "127.0.0.3", port: 8082 };

/** Something at work that clients may connect to. */
export interface Forwarder extends AsyncDisposable {
  readonly at: SocketAddress;
  /** Of the process whose costs, with those of its children, are what forwarding costs; null if there is none. */
  readonly pid: number | null;
}

/** A way from clients to the backend. */
export interface ForwarderKind {
  readonly name: "direct" | "kproxy" | "socat" | "HAProxy" | "HAProxy, large";
  /** A program of Debian; null if none is needed. */
  readonly program: "socat" | "haproxy" | null;
  /** How it is set up, for people. */
  readonly how: string;
  /** True if it can be given thousands of connections that do nothing. */
  readonly holdsMany: boolean;
  readonly start: (place: ForwarderPlace) => Promise<Forwarder>;
}

/** Where forwarders are started. */
export interface ForwarderPlace {
  readonly netns: Netns;
  /** For what they read. */
  readonly folder: string;
  readonly descriptors: DescriptorLimit;
  /** `kproxy.js` of a bundle in the place of the source; null: the source. */
  readonly program: string | null;
}

/** All that are compared, the fastest first. */
export const FORWARDERS: readonly ForwarderKind[] = [
  {
    name: "direct",
    program: null,
    how: "the client connects to the backend itself",
    holdsMany: false,
    start: () => Promise.resolve({ at: BACKEND, pid: null, [Symbol.asyncDispose]: () => Promise.resolve() }),
  },
  {
    name: "kproxy",
    program: null,
    how: "mode userspace, by rules: a cluster IP",
    holdsMany: true,
    start: startKproxy,
  },
  {
    name: "socat",
    program: "socat",
    how: "a process for each connection (fork), buffers of 64 KiB",
    holdsMany: false,
    start: (place) =>
      startProgram(place, SOCAT, [
        "socat",
        `-b${LARGE_BUFFER_BYTES}`,
        `TCP4-LISTEN:${SOCAT.port},bind=${SOCAT.ip},fork,reuseaddr,nodelay,backlog=4096`,
        `TCP4:${BACKEND.ip}:${BACKEND.port},nodelay`,
      ]),
  },
  {
    name: "HAProxy",
    program: "haproxy",
    how: "mode tcp, nbthread 1, otherwise its defaults (buffers of 16 KiB)",
    holdsMany: true,
    start: (place) => startHaproxy(place, HAPROXY_BUFFER_BYTES),
  },
  {
    name: "HAProxy, large",
    program: "haproxy",
    how: "the same with buffers of 64 KiB (tune.bufsize)",
    holdsMany: false,
    start: (place) => startHaproxy(place, LARGE_BUFFER_BYTES),
  },
];

async function startHaproxy(place: ForwarderPlace, bufferBytes: number): Promise<Forwarder> {
  const file = `${place.folder}/haproxy.cfg`;
  await Deno.writeTextFile(file, haproxyConfig(place.descriptors, bufferBytes));
  return await startProgram(place, HAPROXY, ["haproxy", "-db", "-f", file]);
}

function haproxyConfig({ count }: DescriptorLimit, bufferBytes: number): string {
  return `global
  nbthread 1
  tune.bufsize ${bufferBytes}
  maxconn ${connectionsWithin(20_000, { count })}
defaults
  mode tcp
  timeout connect 5s
  timeout client 1h
  timeout server 1h
listen bench
  bind ${HAPROXY.ip}:${HAPROXY.port}
  server backend ${BACKEND.ip}:${BACKEND.port}
`;
}

/** Those whose program is here, and the names of the others. */
export function present(kinds: readonly ForwarderKind[]): { here: ForwarderKind[]; missing: string[] } {
  const isHere = ({ program }: ForwarderKind): boolean =>
    program === null || findProgram(program) !== undefined;
  return {
    here: kinds.filter(isHere),
    missing: kinds.filter((kind) => !isHere(kind)).flatMap(({ program }) => program ?? []),
  };
}

/** Gives the namespace the backend's address, a way to Services, and ports enough for many connections in a row. */
export async function prepareNetns(netns: Netns): Promise<void> {
  await netns.run(["ip", "addr", "add", `${BACKEND.ip}/32`, "dev", "lo"]);
  await netns.run(["ip", "route", "add", SERVICE_CIDR, "dev", "lo"]);
  await netns.run(["sysctl", "-q", "-w", "net.ipv4.ip_local_port_range=10000 65000"]);
}

async function startKproxy({ netns, folder, descriptors, program }: ForwarderPlace): Promise<Forwarder> {
  await using parts = new AsyncDisposableStack();
  const manifests = parts.use(await LabManifests.create());
  await manifests.replace("objects.json", [
    service("bench/web", { clusterIP: CLUSTER_IP, ports: ["http:80"] }),
    slice("bench/web.1", [`http:${BACKEND.port}`], [`${BACKEND.ip}@bench`]),
  ]);
  const kproxy = parts.use(
    await KproxyProcess.start({
      netns,
      args: [
        ...["--proxy-mode=userspace", "--hostname-override=bench", `--manifests=${manifests.folder}`],
        ...["--healthz-bind-address=", "--metrics-bind-address=127.0.0.1:10249"],
      ],
      as: { prefix: descriptors.prefix, deno: Deno.execPath(), root: ROOT },
      ...program === null ? {} : { bundle: { main: program, cache: folder } },
    }, 1),
  );
  const kept = parts.move();
  return {
    at: { ip: CLUSTER_IP, port: 80 },
    pid: kproxy.pid,
    [Symbol.asyncDispose]: () => kept.disposeAsync(),
  };
}

function startProgram(
  { netns, descriptors }: ForwarderPlace,
  at: SocketAddress,
  argv: readonly string[],
): Promise<Forwarder> {
  const child = new Deno.Command("ip", {
    args: ["netns", "exec", netns.name, ...descriptors.prefix, ...argv],
    stdin: "null",
    stdout: "null",
    stderr: "inherit",
  }).spawn();
  return Promise.resolve({
    at,
    pid: child.pid,
    [Symbol.asyncDispose]: async () => {
      signalChild(child);
      await child.status;
    },
  });
}
