/**
 * The metrics server's pages beside the metrics: `/statusz`, `/flagz`, `/configz`, `/healthz`, `/debug/flags/v`; and below
 * `/debug/pprof/` V8's profiles in place of Go's.
 *
 * @module
 */
import { answerOf, jsonAnswer, textAnswer } from "./http_answer.ts";
import { INT32_MAX, INT32_MIN } from "../config/value_texts.ts";
import type { FieldValue } from "../config/setting.ts";
import { withFields } from "../config/fields.ts";
import type { KubeProxyConfiguration, ProxyMode } from "../config/types.ts";
import { configInApiOrder } from "../config/write.ts";
import type { SliMetrics } from "../observe/metrics_kproxy.ts";
import type { Handler, Peer } from "./http_listener.ts";
import type { MetricsPages } from "./metrics_server.ts";
import type { Verbosity } from "../observe/log.ts";
import { systemClock } from "../kernel/clock.ts";

const WARNING =
  "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.";

/** Version, start and pages of the process. */
export function statuszAnswer(
  request: Request,
  { startMs, version, emulationVersion }: Pick<MetricsPages, "startMs" | "version" | "emulationVersion">,
  paths: Iterable<string>,
): Response {
  const first = [...paths].map((path) => `/${path.split("/", 2)[1]}`);
  return zpageAnswer(request, "statusz", [
    "",
    `Started: ${unixDate(startMs)}`,
    `Up: ${uptime(Date.now() - startMs)}`,
    `Deno version: ${Deno.version.deno}`,
    `Binary version: ${version}`,
    `Emulation version: ${emulationVersion}`,
    `Paths: ${[...new Set(first)].sort().join(" ")}`,
  ]);
}

/** Every flag with its value. */
export function flagzAnswer(
  request: Request,
  flags: Iterable<readonly [name: string, value: string]>,
): Response {
  const lines = [...flags].sort(([left], [right]) => left < right ? -1 : 1);
  return zpageAnswer(request, "flagz", lines.map(([name, value]) => `${name}=${value}`));
}

function zpageAnswer(request: Request, page: string, lines: readonly string[]): Response {
  if (!acceptsText(request.headers.get("accept"))) {
    const message = "only the following media types are accepted: text/plain";
    const status = { kind: "Status", apiVersion: "v1", metadata: {}, status: "Failure", message };
    return jsonAnswer(JSON.stringify({ ...status, reason: "NotAcceptable", code: 406 }), { status: 406 });
  }
  return textAnswer(["", `kube-proxy ${page}`, WARNING, ...lines, ""].join("\n"));
}

function acceptsText(accept: string | null): boolean {
  if (accept === null || accept.trim() === "") return true;
  return accept.split(",").some((range) => /^\s*(text\/plain|text\/\*|\*\/\*)\s*(;|$)/i.test(range));
}

/** `Wed Oct  1 21:03:43 UTC 2025` */
function unixDate(epochMs: number): string {
  const [weekday, day, month, year, time] = new Date(epochMs).toUTCString().replace(",", "").split(" ");
  return `${weekday} ${month} ${String(Number(day)).padStart(2)} ${time} UTC ${year}`;
}

/** `1 hr 02 min 03 sec` */
function uptime(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const two = (value: number): string => String(value).padStart(2, "0");
  return `${Math.floor(seconds / 3600)} hr ${two(Math.floor(seconds / 60) % 60)} min ${
    two(seconds % 60)
  } sec`;
}

const PACED_MODES = ["iptables", "ipvs", "nftables"] as const;

/**
 * Compact JSON in the form of kube-proxy 1.36: the API object, with the periods of the modes not in use as `0s`.
 *
 * @param mode the one really in use
 */
export function configzBody(config: KubeProxyConfiguration, mode: ProxyMode): string {
  const idle = PACED_MODES.filter((candidate) => candidate !== mode);
  const zeroed = new Map<string, FieldValue>(
    idle.flatMap((name) => [[`${name}.syncPeriod`, 0], [`${name}.minSyncPeriod`, 0]]),
  );
  return JSON.stringify({ "kubeproxy.config.k8s.io": configInApiOrder(withFields(config, zeroed)) });
}

/**
 * Answers `ok`; the root page with `?verbose` also lists its one check.
 *
 * @param isRoot true for `/healthz`, false for `/healthz/ping`
 */
export function pingHandler(slis: SliMetrics, isRoot: boolean): Handler {
  return (request) => {
    slis.pinged();
    const isVerbose = isRoot && new URL(request.url).searchParams.has("verbose");
    return textAnswer(isVerbose ? "[+]ping ok\nhealthz check passed\n" : "ok");
  };
}

const MAX_BODY_BYTES = 1024;

/** Sets the verbosity to the number that is PUT. */
export function verbosityHandler(verbosity: Verbosity): Handler {
  return async (request) => {
    if (request.method !== "PUT") return textAnswer("unsupported http method\n", { status: 406 });
    const text = await limitedText(request);
    const level = /^[+-]?\d+$/.test(text) ? Number(text) : NaN;
    if (!(level >= INT32_MIN && level <= INT32_MAX)) {
      const problem = `want an integer from ${INT32_MIN} to ${INT32_MAX}`;
      return textAnswer(`failed set klog.logging.verbosity ${text}: ${problem}\n`, { status: 400 });
    }
    // Lines without a verbosity cannot be switched off.
    verbosity.level = Math.max(0, level);
    return textAnswer(`successfully set klog.logging.verbosity to ${text}\n`);
  };
}

/** The body, cut off where no number can be that long. */
async function limitedText(request: Request): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const chunk of request.body ?? []) {
    text += decoder.decode(chunk, { stream: true });
    if (text.length > MAX_BODY_BYTES) return text.slice(0, MAX_BODY_BYTES);
  }
  return text;
}

const DEFAULT_SECONDS = 30;
const MAX_SECONDS = 300;
const INDEX = `/debug/pprof/

profile?seconds=30  CPU profile of V8 (.cpuprofile), for the developer tools of a browser
heap                heap snapshot of V8 (.heapsnapshot)

Go's other profiles are not available: kproxy is no Go program.
`;

let profiling = false;

/** Handlers of the profile pages by path. */
export const PROFILES: ReadonlyMap<string, Handler> = new Map<string, Handler>([
  ["/debug/pprof", () => new Response(null, { status: 302, headers: { location: "/debug/pprof/" } })],
  ["/debug/pprof/", () => textAnswer(INDEX)],
  ["/debug/pprof/profile", cpuProfileAnswer],
  ["/debug/pprof/heap", heapSnapshotAnswer],
]);

async function cpuProfileAnswer(request: Request, _peer: Peer, stopping: AbortSignal): Promise<Response> {
  // The runtime grants the inspector only together with everything else of that kind.
  const { state } = await Deno.permissions.query({ name: "sys" });
  if (state !== "granted") {
    const why = "the runtime opens its inspector only to programs with --allow-sys without a list";
    return textAnswer(`CPU profile: not available: ${why}; run kproxy from source with it\n`, {
      status: 501,
    });
  }
  if (profiling) return textAnswer("Could not enable CPU profiling: already in use\n", { status: 500 });
  profiling = true;
  try {
    const asked = Number(new URL(request.url).searchParams.get("seconds"));
    const seconds = asked > 0 ? Math.min(asked, MAX_SECONDS) : DEFAULT_SECONDS;
    return attachment(await cpuProfile(seconds * 1000, stopping), "kproxy.cpuprofile");
  } finally {
    profiling = false;
  }
}

/** JSON text of a V8 CPU profile over `ms`, or until `signal` aborts. */
async function cpuProfile(ms: number, signal: AbortSignal): Promise<string> {
  const { Session } = await import("node:inspector");
  const session = new Session();
  session.connect();
  const post = (method: string): Promise<unknown> =>
    new Promise((resolve, reject) => {
      session.post(method, (error, result) => error === null ? resolve(result) : reject(error));
    });
  try {
    await post("Profiler.enable");
    await post("Profiler.start");
    await systemClock.sleep(ms, signal);
    const { profile } = await post("Profiler.stop") as { profile: unknown };
    return JSON.stringify(profile);
  } finally {
    session.disconnect();
  }
}

async function heapSnapshotAnswer(): Promise<Response> {
  const { getHeapSnapshot } = await import("node:v8");
  return attachment(ReadableStream.from<Uint8Array>(getHeapSnapshot()), "kproxy.heapsnapshot");
}

function attachment(body: string | ReadableStream<Uint8Array>, file: string): Response {
  return answerOf("application/octet-stream", body, {
    headers: { "content-disposition": `attachment; filename="${file}"` },
  });
}
