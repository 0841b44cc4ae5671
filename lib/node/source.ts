/**
 * Opens the source of objects that the configuration names.
 *
 * @module
 */
import { systemClock, wallClockMs } from "../kernel/clock.ts";
import { parseIp } from "../model/ip.ts";
import type { KubeProxyConfiguration } from "../config/types.ts";
import { UsageError } from "../errors.ts";
import { othersMayWrite } from "../kernel/file_owner.ts";
import type { Exec } from "../kernel/exec.ts";
import type { Logger } from "../observe/log.ts";
import type { ApiAnswer, ApiRequest } from "../observe/metrics.ts";
import type { SnapshotMetrics } from "../observe/metrics_kproxy.ts";
import { CombinedSource } from "../source/combined_source.ts";
import { classifyPaths, type FileCheck, STDIN_PATH } from "../source/files/manifest_files.ts";
import type { Source } from "../source/source.ts";
import type { KubeSourceOptions } from "../source/kube/kube_source.ts";
import { USER_AGENT } from "./version.ts";
import type { KubeClient } from "../source/kube/kube_client.ts";
import { type EventRecorder, LogEvents } from "../observe/events.ts";

export interface SourceOptions {
  readonly master: string;
  /** True: manifest files that others may write are accepted even as root. */
  readonly allowsInsecureFiles: boolean;
  readonly nodeName: string;
  readonly log: Logger;
  readonly onRequest: (request: ApiRequest) => void;
  readonly onAnswer: (answer: ApiAnswer) => void;
  readonly exec?: Exec;
  readonly snapshot: SnapshotMetrics | null;
}

/**
 * The files of `kproxy.manifests`, the API server, or both: with manifests the API server is asked only if a kubeconfig or
 * `--master` is given too, and files win per object.
 *
 * @throws {ConfigError} if the kubeconfig is wrong or, without any source, the environment is not a pod's
 * @throws {UsageError} if a manifest path is not there
 */
export async function openSource(config: KubeProxyConfiguration, options: SourceOptions): Promise<Source> {
  const { manifests } = config.kproxy;
  const { master, log, allowsInsecureFiles } = options;
  await requirePaths(manifests);
  const files = manifests.length === 0
    ? null
    : new (await import("../source/files/file_source.ts")).FileSource({
      paths: manifests,
      log,
      ownIps,
      checkFile: fileCheckOf(log, allowsInsecureFiles || Deno.uid() !== 0),
      ...(manifests.includes(STDIN_PATH) ? { stdin: standardInput() } : {}),
    });
  if (files !== null && !usesApiServer(config, master)) {
    if (config.kproxy.snapshot !== "") {
      log.warn("kproxy.snapshot has no effect: all objects come from files, which are on this node anyway");
    }
    return files;
  }
  const api = await openApi(config, options);
  return files === null ? api : new CombinedSource(files, api, (message) => log.info(message));
}

/** Check of manifests, which decide the rules: only root and the user of this program may write them. */
function fileCheckOf(log: Logger, isAllowed: boolean): FileCheck {
  return (file, opened) => {
    const problem = othersMayWrite(opened);
    if (problem === null) return null;
    if (!isAllowed) return `${problem}; give it to root, or allow it by --allow-insecure-files`;
    log.warn("Manifest file may be written by others", { file, problem });
    return null;
  };
}

/** Devices whose addresses are cluster IPs: of IPVS mode, and of node-local DNS caches. */
const SERVICE_DEVICES: readonly string[] = ["kube-ipvs0", "nodelocaldns"];

/** The addresses of this machine, but for those that Services have here. */
function ownIps(): readonly string[] {
  return Deno.networkInterfaces().filter(({ name }) => !SERVICE_DEVICES.includes(name))
    .map(({ address }) => parseIp(address)?.text ?? address);
}

/** False if manifests are the only source. `master` as in {@linkcode SourceOptions}. */
export function usesApiServer(config: KubeProxyConfiguration, master: string): boolean {
  return config.kproxy.manifests.length === 0 || master !== "" || config.clientConnection.kubeconfig !== "";
}

let inputOfProcess: Promise<Blob> | undefined;

/** Standard input from its beginning, however often the proxy starts anew in this process. */
function standardInput(): ReadableStream<Uint8Array> {
  return new ReadableStream({
    async pull(controller) {
      inputOfProcess ??= new Response(Deno.stdin.readable).blob();
      controller.enqueue(new Uint8Array(await (await inputOfProcess).arrayBuffer()));
      controller.close();
    },
  });
}

async function requirePaths(manifests: readonly string[]): Promise<void> {
  try {
    await classifyPaths(manifests);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound || error instanceof TypeError)) throw error;
    throw new UsageError(error.message, { cause: error });
  }
}

async function openApi(
  config: KubeProxyConfiguration,
  { master, nodeName, log, onRequest, onAnswer, snapshot, exec }: SourceOptions,
): Promise<Source> {
  // Loaded only where it is needed: the API client's modules cost memory that a node without an API server can keep.
  const [{ apiAccess }, { KubeSource }] = await Promise.all([
    import("../source/kube/api_access.ts"),
    import("../source/kube/kube_source.ts"),
  ]);
  const { kubeconfig } = config.clientConnection;
  const access = await apiAccess({ kubeconfig, master, env: Deno.env });
  let hasAnswered = false;
  const api = new KubeSource({
    access,
    nodeName,
    ...kubeSettings(config),
    onRequest: (request) => {
      hasAnswered ||= request.code === "200";
      onRequest(request);
    },
    onAnswer,
    log,
    exec,
  });
  if (snapshot === null) return api;
  const { SnapshotSource } = await import("../source/snapshot/snapshot_source.ts");
  return new SnapshotSource({
    source: api,
    hasAnswered: () => hasAnswered,
    path: config.kproxy.snapshot,
    maxAgeMs: config.kproxy.snapshotMaxAge,
    node: nodeName,
    log,
    observer: snapshot,
    epochMs: wallClockMs,
  });
}

/** The `KubeSourceOptions` that the configuration decides. */
export type KubeSettings = Pick<KubeSourceOptions, "qps" | "burst" | "contentTypes" | "userAgent">;

/** Settings of requests to an API server for objects, by this configuration. */
export function kubeSettings({ clientConnection }: KubeProxyConfiguration): KubeSettings {
  return {
    qps: clientConnection.qps,
    burst: clientConnection.burst,
    contentTypes: clientConnection,
    userAgent: USER_AGENT,
  };
}

interface ApiClientOptions {
  readonly master: string;
  readonly exec?: Exec | undefined;
  readonly onRequest?: ((request: ApiRequest) => void) | undefined;
  readonly onAnswer?: ((answer: ApiAnswer) => void) | undefined;
}

/**
 * A separate client: its requests must neither wait for lists nor use up their rate.
 *
 * @throws {ConfigError} if the kubeconfig is wrong or, without any source, the environment is not a pod's
 */
export async function openApiClient(
  config: KubeProxyConfiguration,
  { master, exec, onRequest = () => {}, onAnswer = () => {} }: ApiClientOptions,
): Promise<KubeClient> {
  // Loaded only where it is needed, as the source is.
  const [{ apiAccess }, { KubeClient }] = await Promise.all([
    import("../source/kube/api_access.ts"),
    import("../source/kube/kube_client.ts"),
  ]);
  const { kubeconfig } = config.clientConnection;
  const access = await apiAccess({ kubeconfig, master, env: Deno.env });
  return new KubeClient({
    access,
    qps: 0,
    burst: 0,
    userAgent: USER_AGENT,
    clock: systemClock,
    exec,
    onRequest,
    onAnswer,
  });
}

interface EventsOptions extends ApiClientOptions {
  readonly log: Logger;
  readonly hostname?: () => string;
}

/** An Event recorder, and the work behind it, which ends with the signal and never rejects. */
export interface OpenedEvents {
  readonly recorder: EventRecorder;
  run(signal: AbortSignal): Promise<void>;
}

/**
 * A recorder to the API server, if the configuration names one or the source is one; else to the log.
 *
 * @throws {ConfigError} if the kubeconfig is wrong or, without any source, the environment is not a pod's
 */
export async function openEvents(
  config: KubeProxyConfiguration,
  options: EventsOptions,
): Promise<OpenedEvents> {
  const { master, log, hostname = Deno.hostname } = options;
  if (!usesApiServer(config, master)) {
    return { recorder: new LogEvents(log), run: () => Promise.resolve() };
  }
  // Loaded only where it is needed, as the source is.
  const [client, { KubeEvents }] = await Promise.all([
    openApiClient(config, options),
    import("../source/kube/event_recorder.ts"),
  ]);
  const recorder = new KubeEvents({
    client,
    hostname: hostname(),
    log,
    clock: systemClock,
    nowMs: wallClockMs,
    random: Math.random,
  });
  return {
    recorder,
    run: async (signal) => {
      await recorder.run(signal);
      client.close();
    },
  };
}
