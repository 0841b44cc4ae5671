/**
 * A source with a snapshot file, from start to end, for tests.
 *
 * @module
 */
import { putWeb, quickKubeSource } from "./kube_fixture.ts";
import { ListWatchServer } from "./list_watch_server.ts";
import { rawService, rawSlice } from "./raw_objects.ts";
import { type RunningSource, runSource } from "./source_recorder.ts";
import { SnapshotSource, type SnapshotSourceOptions } from "../../lib/source/snapshot/snapshot_source.ts";
import type { ResourceEventHandler, RestoredState } from "../../lib/source/source.ts";

/** Time of all snapshots, by the sources' clock. */
export const SAVED_AT_MS = Date.UTC(2026, 10, 21, 17);
/** Limits of the wait for the server: short, or longer than a test. */
export const PATIENCE = { silentMs: 50, answeringMs: 50 };
export const LONG = { silentMs: 60_000, answeringMs: 60_000 };

/** A folder for the snapshot, used by sources one after the other. */
export class SnapshotRig implements AsyncDisposable {
  readonly restored: (RestoredState | null)[] = [];
  readonly saved: number[] = [];
  failures = 0;
  private constructor(readonly folder: string) {}

  /** Creates a rig with an empty folder, which is removed at the end. */
  static async create(): Promise<SnapshotRig> {
    return new SnapshotRig(await Deno.makeTempDir());
  }

  get path(): string {
    return `${this.folder}/snapshot`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Deno.remove(this.folder, { recursive: true });
  }

  /** Starts a source for this server. */
  start(server: string, options: Partial<SnapshotSourceOptions> = {}): RunningSource {
    return runSource((log) => {
      let hasAnswered = false;
      const source = new SnapshotSource({
        hasAnswered: () => hasAnswered,
        source: quickKubeSource(server, log, {
          onRequest: ({ code }) => {
            hasAnswered ||= code === "200";
          },
        }),
        path: this.path,
        maxAgeMs: 0,
        node: "n1",
        log,
        epochMs: () => SAVED_AT_MS,
        observer: { saved: ({ bytes }) => this.saved.push(bytes), saveFailed: () => this.failures++ },
        patience: LONG,
        ...options,
      });
      return {
        name: source.name,
        run: (handler, signal) => source.run(this.#noting(handler), signal),
        objects: () => source.objects(),
      };
    });
  }

  /** Runs a source until everything has been received, then ends it, which leaves a snapshot. */
  async remember(server: ListWatchServer): Promise<void> {
    await using source = this.start(server.url);
    await source.recorder.untilSynced();
  }

  #noting(handler: ResourceEventHandler): ResourceEventHandler {
    return {
      events: (batch) => handler.events(batch),
      rejected: (rejection) => handler.rejected(rejection),
      restored: (state) => void this.restored.push(state),
    };
  }
}

/** Creates a snapshot of two Services. @returns the server's address; nothing listens there any more */
export async function rememberedAndGone(rig: SnapshotRig): Promise<string> {
  await using server = new ListWatchServer();
  putWeb(server);
  server.put(rawService("api"));
  server.put(rawSlice("api", ["10.1.0.3"]));
  await rig.remember(server);
  return server.url;
}

/** Objects in the snapshot of {@linkcode rememberedAndGone}, the Node included. */
export const ALL = [
  "EndpointSlice default/api-x",
  "EndpointSlice default/web-x",
  "Node n1",
  "Service default/api",
  "Service default/web",
];
