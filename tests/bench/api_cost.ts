/**
 * What one node's first lists, and changes afterwards, cost kapi: requests, bytes, processor time, by the ways in which
 * lists can be asked for and answered. Wants what tests of kapi want.
 *
 * ```text
 * deno run -A --v8-flags=--max-semi-space-size=2,--expose-gc tests/bench/api_cost.ts [SERVICES] [ENDPOINTS]
 * ```
 *
 * @module
 */
import { runOk, systemExec } from "../../lib/kernel/exec.ts";
import { systemClock } from "../../lib/kernel/clock.ts";
import { apiAccess } from "../../lib/source/kube/kube_access.ts";
import { acceptHeader } from "../../lib/source/kube/kube_formats.ts";
import { KubeClient } from "../../lib/source/kube/kube_http.ts";
import { REFLECTOR_TIMES } from "../../lib/source/kube/kube_reflector.ts";
import type { SourceSink } from "../../lib/source/source.ts";
import { ResourceRequests } from "../../lib/source/kube/kube_requests.ts";
import { ENDPOINT_SLICES, SERVICES, type WatchedResource } from "../../lib/source/kube/kube_resources.ts";
import { KubeStore } from "../../lib/source/kube/kube_store.ts";
import { Listing } from "../../lib/source/kube/kube_listing.ts";
import { writeLine } from "../../tools/output.ts";
import { engineFlag } from "../../tools/permissions.ts";
import { buildKapi, Kapi } from "../support/kapi.ts";
import { nodeSource, ownCpuMs } from "./api_source_process.ts";

const [COUNT, ENDPOINTS] = [Number(Deno.args[0] ?? 5_000), Number(Deno.args[1] ?? 10)];
/** First argument of a process whose memory is measured. */
const CHILD = "--child";
const STARTS = 8;
const WATCHERS = 20;
const CHANGES = 300;
/** Of `/proc/PID/stat`, which counts in these. */
const TICK_MS = 10;

interface Way {
  readonly name: string;
  readonly contentType: string;
  /** `null`: as the beginning of a watch. */
  readonly version: string | null;
}
const JSON_TYPE = "application/json";
const PROTOBUF_TYPE = "application/vnd.kubernetes.protobuf";
const WAYS: readonly Way[] = [
  { name: "JSON, pages from storage", contentType: JSON_TYPE, version: "" },
  { name: "JSON, from memory", contentType: JSON_TYPE, version: "0" },
  { name: "JSON, as watches", contentType: JSON_TYPE, version: null },
  { name: "protobuf, from memory", contentType: PROTOBUF_TYPE, version: "0" },
  { name: "protobuf, as watches", contentType: PROTOBUF_TYPE, version: null },
];

/** Processor time of the server so far. */
async function serverMs(kapi: Kapi): Promise<number> {
  const pid = (await Deno.readTextFile(`${kapi.folder}/kapi.pid`)).trim();
  const fields = (await Deno.readTextFile(`/proc/${pid}/stat`)).split(") ")[1]!.split(" ");
  return (Number(fields[11]) + Number(fields[12])) * TICK_MS;
}

/** A client that counts what it is sent. */
class Counted implements Disposable {
  readonly #client: KubeClient;
  requests = 0;
  bytes = 0;

  constructor(client: KubeClient) {
    this.#client = client;
  }

  get server(): string {
    return this.#client.server;
  }

  async get(...request: Parameters<KubeClient["get"]>): ReturnType<KubeClient["get"]> {
    this.requests++;
    const answer = await this.#client.get(...request);
    const count = (piece: Uint8Array<ArrayBuffer>): void => void (this.bytes += piece.length);
    const counting = new TransformStream<Uint8Array<ArrayBuffer>, Uint8Array>({
      transform(piece, controller) {
        count(piece);
        controller.enqueue(piece);
      },
    });
    return {
      ...answer,
      body: (answer.body as ReadableStream<Uint8Array<ArrayBuffer>>).pipeThrough(counting),
    };
  }

  [Symbol.dispose](): void {
    this.#client.close();
  }
}

async function clientFor(kapi: Kapi, contentType: string): Promise<Counted> {
  const access = await apiAccess({ kubeconfig: kapi.kubeconfig, master: "", env: { get: () => undefined } });
  const accept = acceptHeader({ contentType, acceptContentTypes: "" });
  return new Counted(
    new KubeClient({ access, qps: -1, burst: 1, userAgent: "bench", accept, clock: systemClock }),
  );
}

async function list(client: Counted, resource: WatchedResource, version: string | null): Promise<void> {
  const options = { resource, client, times: REFLECTOR_TIMES, clock: systemClock, random: () => 0 };
  const requests = new ResourceRequests(options);
  const listing = new Listing(new KubeStore(resource, "", () => {}));
  const end = new AbortController();
  const asked = { version: version ?? "", paced: false };
  if (version !== null) {
    await requests.list(asked, (raws) => listing.take(raws), end.signal);
    return;
  }
  const { events } = await requests.watchList(asked, end.signal);
  for await (const batch of events) {
    for (const event of batch) {
      listing.takeEvent(event);
      if (event.endsList) return end.abort();
    }
  }
}

async function measureStarts(kapi: Kapi, { name, contentType, version }: Way): Promise<void> {
  using client = await clientFor(kapi, contentType);
  await list(client, SERVICES, version);
  Object.assign(client, { requests: 0, bytes: 0 });
  const [cpuMs, startMs, ownMs] = [await serverMs(kapi), performance.now(), ownCpuMs()];
  for (let i = 0; i < STARTS; i++) {
    await Promise.all([SERVICES, ENDPOINT_SLICES].map((resource) => list(client, resource, version)));
  }
  const each = (sum: number): string => (sum / STARTS).toFixed(0);
  const bytes = (client.bytes / STARTS / 1e6).toFixed(2);
  writeLine(
    `| ${name} | ${client.requests / STARTS} | ${bytes} | ${each(await serverMs(kapi) - cpuMs)} | ` +
      `${each(ownCpuMs() - ownMs)} | ${each(performance.now() - startMs)} |`,
  );
}

async function measureChanges(kapi: Kapi, program: string, contentType: string): Promise<void> {
  using client = await clientFor(kapi, contentType);
  const options = {
    resource: ENDPOINT_SLICES,
    client,
    times: REFLECTOR_TIMES,
    clock: systemClock,
    random: () => 0,
  };
  const requests = new ResourceRequests(options);
  const end = new AbortController();
  let version = "";
  await requests.list({ version: "0", paced: false }, () => {}, end.signal).then((found) => version = found);
  let taken = 0;
  const watches = Array.from({ length: WATCHERS }, async () => {
    const events = await requests.watch({ version, paced: false }, end.signal);
    try {
      for await (const batch of events) for (const _ of batch) taken++;
    } catch (error) {
      if (!end.signal.aborted) throw error;
    }
  });
  client.bytes = 0;
  const cpuMs = await serverMs(kapi);
  await runOk(systemExec, [
    program,
    "touch",
    "-kubeconfig",
    kapi.kubeconfig,
    "-count",
    String(CHANGES),
    "-every",
    "5ms",
  ], {
    timeoutMs: 120_000,
  });
  while (taken < CHANGES * WATCHERS) await systemClock.sleep(20);
  const ms = await serverMs(kapi) - cpuMs;
  const name = contentType === JSON_TYPE ? "JSON" : "protobuf";
  writeLine(`| ${name} | ${(client.bytes / taken / 1000).toFixed(2)} | ${(ms / CHANGES).toFixed(2)} |`);
  end.abort();
  await Promise.all(watches);
}

/** The memory of a process that only lists and watches: `CHILD KUBECONFIG CONTENT_TYPE`. */
async function childMemory(kubeconfig: string, contentType: string): Promise<void> {
  const end = new AbortController();
  let kinds = 0;
  const sink: SourceSink = {
    events: (batch) => {
      kinds += batch.filter(({ type }) => type === "synced").length;
      if (kinds === 3) setTimeout(() => end.abort(), 1_000);
    },
    rejected: ({ message }) => writeLine(message),
  };
  await (await nodeSource(kubeconfig, contentType)).run(sink, end.signal);
  const status = await Deno.readTextFile("/proc/self/status");
  const megabytes = (name: string): string =>
    (Number(new RegExp(`${name}:\\s+(\\d+)`).exec(status)?.[1]) / 1024).toFixed(0);
  writeLine(`| ${contentType} | ${megabytes("VmHWM")} | ${megabytes("RssAnon")} |`);
}

async function measureMemory(kapi: Kapi, contentType: string): Promise<void> {
  const flags = ["-A", "--no-check", engineFlag()];
  const argv = [Deno.execPath(), "run", ...flags, import.meta.filename!, CHILD, kapi.kubeconfig, contentType];
  writeLine((await runOk(systemExec, argv, { timeoutMs: 60_000 })).trim());
}

async function measureAll(): Promise<void> {
  const program = await buildKapi();
  await using kapi = await Kapi.start([], { streamsLists: true });
  await kapi.fill(COUNT, ENDPOINTS);
  writeLine(
    `${COUNT} Services and slices of ${ENDPOINTS} endpoints, one node's start (mean of ${STARTS}):\n`,
  );
  writeLine("| lists | requests | MB | server's processor, ms | own processor, ms | ms in all |");
  writeLine("| --- | --- | --- | --- | --- | --- |");
  for (const way of WAYS) await measureStarts(kapi, way);
  writeLine(`\n${CHANGES} changes of a slice, watched by ${WATCHERS}:\n`);
  writeLine("| watches | KB for each | server's processor for each change, ms |");
  writeLine("| --- | --- | --- |");
  for (const contentType of [JSON_TYPE, PROTOBUF_TYPE]) await measureChanges(kapi, program, contentType);
  writeLine("\nA process that lists and watches, and does nothing else:\n");
  writeLine("| form | MB at most | MB of it anonymous |");
  writeLine("| --- | --- | --- |");
  for (const contentType of [JSON_TYPE, PROTOBUF_TYPE]) await measureMemory(kapi, contentType);
}

const [first, kubeconfig = "", contentType = ""] = Deno.args;
if (first === CHILD) await childMemory(kubeconfig, contentType);
else await measureAll();
