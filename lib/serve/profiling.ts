/**
 * The pages below `/debug/pprof/`: V8's profiles in place of Go's.
 *
 * @module
 */
import { systemClock } from "../kernel/clock.ts";
import { textAnswer } from "./answers.ts";
import type { Handler, Peer } from "./http_listener.ts";

const DEFAULT_SECONDS = 30;
const MAX_SECONDS = 300;
const INDEX = `/debug/pprof/

profile?seconds=30  CPU profile of V8 (.cpuprofile), for the developer tools of a browser
heap                heap snapshot of V8 (.heapsnapshot)

Go's other profiles are not available: kproxy is no Go program.
`;

let profiling = false;

/** By path. */
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
    return notAvailable(
      "CPU profile",
      "the runtime opens its inspector only to programs with --allow-sys without a list; run kproxy from source with it",
    );
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
  return new Response(body, {
    headers: {
      "content-type": "application/octet-stream",
      "x-content-type-options": "nosniff",
      "content-disposition": `attachment; filename="${file}"`,
    },
  });
}

function notAvailable(what: string, why: string): Response {
  return textAnswer(`${what}: not available: ${why}\n`, { status: 501 });
}
