/**
 * The API server source at work on a {@linkcode ListWatchServer}, for its tests.
 *
 * @module
 */
import type { Logger } from "../../lib/observe/log.ts";
import { KubeSource, type KubeSourceOptions } from "../../lib/source/kube/kube_source.ts";
import { masterAccess } from "../../lib/source/kube/api_access.ts";
import type { ReflectorTimes } from "../../lib/source/kube/reflector.ts";
import { type ApiRequest, ListWatchServer } from "./list_watch_server.ts";
import { rawNode, rawService, rawSlice } from "./raw_objects.ts";
import { type RunningSource, runSource, type SourceRecorder } from "./source_recorder.ts";
import { until } from "./until.ts";

/** Reflector times that are short enough for a test. */
export const QUICK_TIMES: ReflectorTimes = {
  backoffInitialMs: 20,
  backoffMaxMs: 200,
  optionalMs: 200,
  silenceMs: 30_000,
  watchMs: 60_000,
  answerMs: 30_000,
  pageMs: 60_000,
  streamMs: 30_000,
  shortWatchMs: 0,
  steadyMs: 0,
  calmMs: 60_000,
};

/** A source for the server at this address, with the shortest times. */
export function quickKubeSource(
  server: string,
  log: Logger,
  options: Partial<KubeSourceOptions> = {},
): KubeSource {
  return new KubeSource({
    access: masterAccess(server),
    nodeName: "n1",
    qps: -1,
    burst: 10,
    log,
    times: QUICK_TIMES,
    ...options,
  });
}

/** Runs the source against `server` until disposed. */
export function startKubeSource(
  server: ListWatchServer,
  options: Partial<KubeSourceOptions> = {},
  recorder?: SourceRecorder,
): RunningSource {
  return runSource((log) => quickKubeSource(server.url, log, options), recorder);
}

/** A source that is synced and watches a server with {@linkcode putWeb}'s objects. */
export async function watchedSource(
  options: Partial<KubeSourceOptions> = {},
  server: ListWatchServer = new ListWatchServer(),
) {
  await using parts = new AsyncDisposableStack();
  parts.use(server);
  putWeb(server);
  const source = parts.use(startKubeSource(server, options));
  await source.recorder.untilSynced();
  await watching(server);
  const kept = parts.move();
  return { server, source, recorder: source.recorder, [Symbol.asyncDispose]: () => kept.disposeAsync() };
}

/** A server with {@linkcode putWeb}'s objects, with or without these two abilities. */
export function serverOf(hasProtobuf: boolean, streamsLists: boolean): ListWatchServer {
  const server = new ListWatchServer();
  Object.assign(server, { hasProtobuf, streamsLists });
  putWeb(server);
  return server;
}

/** Makes the server drop the history of open watches, and ends them. */
export function expire(server: ListWatchServer): void {
  server.put(rawNode("other"));
  server.compact();
  server.endWatches("broken");
}

/** True for a request for Services. */
export function ofServices({ path }: ApiRequest): boolean {
  return path.endsWith("/services");
}

/** True for a watch that begins with the list. */
export function isStream({ query }: ApiRequest): boolean {
  return query.has("sendInitialEvents");
}

/** Puts a Node, a Service and its slice. */
export function putWeb(server: ListWatchServer): void {
  server.put(rawNode("n1"));
  server.put(rawService("web"));
  server.put(rawSlice("web", ["10.1.0.1", "10.1.0.2"]));
}

/** Resolves when the three watches are open. */
export function watching(server: ListWatchServer): Promise<void> {
  return until(() => server.watches() >= 3, "three watches");
}

/** Number of requests for lists, or pages of lists. */
export function listsOf(server: ListWatchServer, plural: string): number {
  return server.requests.filter(({ path, watch }) => path.endsWith(`/${plural}`) && !watch).length;
}
