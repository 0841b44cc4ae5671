/**
 * `deno run -A tests/bench/first_sync_cpu.ts [--mode iptables|nftables] [--services N] [--json]`: processor time of a first sync without
 * programs: lists as they arrive, in protobuf or JSON, become the text that programs would read. Prints milliseconds of the own thread
 * and, in brackets, of all threads of the process. Builds are compared as bundles, since that is what nodes run:
 * `deno bundle --minify -o FILE tests/bench/first_sync_cpu.ts`, and then in turns.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { IptablesProxier } from "../../lib/backend/iptables/apply/apply.ts";
import { NftablesProxier } from "../../lib/backend/nftables/apply/proxier.ts";
import type { FamilyProxier } from "../../lib/backend/backend.ts";
import type { Exec } from "../../lib/kernel/exec.ts";
import { Iptables } from "../../lib/kernel/iptables.ts";
import { Nft } from "../../lib/kernel/nft.ts";
import { ChangeTracker } from "../../lib/model/change_tracker.ts";
import { silentLogger } from "../../lib/observe/log.ts";
import { formatOf } from "../../lib/source/kube/kube_formats.ts";
import { Listing } from "../../lib/source/kube/kube_listing.ts";
import { ENDPOINT_SLICES, SERVICES, type WatchedResource } from "../../lib/source/kube/kube_resources.ts";
import { KubeStore } from "../../lib/source/kube/kube_store.ts";
import { ProxyLoop } from "../../lib/sync/proxy_loop.ts";
import { Reconciler } from "../../lib/sync/reconcile.ts";
import { writeLine } from "../../tools/output.ts";
import { listBytes } from "../support/kube_protobuf.ts";
import { NODE_NAME, serviceObject, sliceObject } from "./fake_objects.ts";

const FAMILY = "IPv4";
const PIECE_BYTES = 65_536;

/** Nanoseconds in `schedstat`, as milliseconds: of this thread and of all. */
function cpuMs(): readonly [own: number, all: number] {
  const read = (path: string): number => Number(Deno.readTextFileSync(path).split(" ", 1)[0]) / 1e6;
  let all = 0;
  for (const { name } of Deno.readDirSync("/proc/self/task")) {
    all += read(`/proc/self/task/${name}/schedstat`);
  }
  return [read("/proc/thread-self/schedstat"), all];
}

/** Programs that take their text and have nothing to say. */
class TakingPrograms implements Exec {
  bytes = 0;

  run(_argv: readonly string[], { stdin = "" }: Parameters<Exec["run"]>[1] = {}) {
    if (typeof stdin === "string") this.bytes += stdin.length;
    else for (const piece of stdin()) this.bytes += piece.length;
    return Promise.resolve({ code: 0, stdout: "", stderr: "" });
  }
}

function proxierOf(mode: string | undefined, exec: Exec): FamilyProxier {
  const common = { interfaceIps: () => [], logger: silentLogger, nowMs: () => performance.now() };
  const settings = {
    masqueradeMark: 0x4000,
    masqueradeAll: false,
    detector: { kind: "none" },
    nodePortAddresses: { matchAll: true, cidrs: [], containsIPv4Loopback: true },
    nodeIp: "10.200.0.1",
  } as const;
  if (mode === "nftables") {
    return new NftablesProxier({
      ...common,
      family: FAMILY,
      nft: new Nft(exec),
      settings: { ...settings, objectComments: true },
      blankAtMs: performance.now(),
    });
  }
  if (mode !== "iptables") throw new RangeError(`--mode must be iptables or nftables: got ${mode}`);
  const programs = { command: "iptables", save: "iptables-save", restore: "iptables-restore" };
  return new IptablesProxier({
    ...common,
    iptables: new Iptables(exec, { family: FAMILY, variant: "nft", version: "1.8.9", programs }),
    settings: { ...settings, localhostNodePorts: true, dropInvalid: true },
  });
}

/** What an API server answers. */
function listOf(resource: WatchedResource, items: readonly object[], isJson: boolean): Uint8Array {
  const { apiVersion, objectKind } = resource;
  const list = { apiVersion, kind: `${objectKind}List`, metadata: { resourceVersion: "7" }, items };
  return isJson ? new TextEncoder().encode(JSON.stringify(list)) : listBytes(list);
}

function arriving(bytes: Uint8Array): ReadableStream<Uint8Array> {
  return ReadableStream.from((function* () {
    for (let at = 0; at < bytes.length; at += PIECE_BYTES) yield bytes.subarray(at, at + PIECE_BYTES);
  })());
}

async function takeList(resource: WatchedResource, body: Uint8Array, isJson: boolean, loop: ProxyLoop) {
  const store = new KubeStore(resource, "", loop.rejected.bind(loop));
  const listing = new Listing(store);
  const contentType = isJson ? "application/json" : "application/vnd.kubernetes.protobuf";
  const reading = { signal: new AbortController().signal, note: () => {} };
  await formatOf({ contentType }, resource.path).readPage(
    { body: arriving(body) },
    resource,
    reading,
    (raws) => {
      listing.take(raws);
    },
  );
  loop.events([...listing.finish(resource.path), { type: "synced", kind: resource.kind }]);
  // A source keeps what it has delivered.
  return store;
}

if (import.meta.main) {
  const { mode, services, json } = parseArgs(Deno.args, {
    boolean: ["json"],
    string: ["mode", "services"],
    default: { mode: "iptables", services: "1000" },
  });
  const size = { services: Number(services), endpoints: 10 };
  const all = Array.from({ length: size.services }, (_, index) => index);
  const bodies = [
    [SERVICES, listOf(SERVICES, all.map((index) => serviceObject(index, 1)), json)],
    [ENDPOINT_SLICES, listOf(ENDPOINT_SLICES, all.map((index) => sliceObject(index, 1, size, false)), json)],
  ] as const;
  const exec = new TakingPrograms();
  const tracker = new ChangeTracker({ family: FAMILY, node: { name: NODE_NAME, zone: "" } });
  const loop = new ProxyLoop({
    lanes: [{ family: FAMILY, tracker, requestSync: () => {} }],
    nodeName: NODE_NAME,
    onNode: () => {},
    onRejected: ({ message }) => {
      throw new TypeError(message);
    },
  });
  const proxier = proxierOf(mode, exec);
  const observer = { synced: () => {}, failed: () => {} };
  const reconciler = new Reconciler({ tracker, proxier, observer, nowMs: () => performance.now() });
  const times = [cpuMs()];
  const stores: KubeStore[] = [];
  for (const [resource, body] of bodies) stores.push(await takeList(resource, body, json, loop));
  times.push(cpuMs());
  await reconciler.reconcile();
  times.push(cpuMs());
  const between = (from: number, to: number): string => {
    const [own, every] = [0, 1].map((at) =>
      (times[to]?.[at as 0 | 1] ?? 0) - (times[from]?.[at as 0 | 1] ?? 0)
    );
    return `${own?.toFixed(0)} (${every?.toFixed(0)}) ms`;
  };
  writeLine(
    `${mode}, ${size.services} × ${size.endpoints}: lists ${between(0, 1)}, first sync ${between(1, 2)}, ` +
      `${exec.bytes} bytes for programs, ${stores.length} lists`,
  );
}
