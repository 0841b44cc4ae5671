/**
 * A file source that runs on a folder of its own, for tests.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import type { ApiObject } from "../../lib/model/objects.ts";
import type { Logger, LogValues } from "../../lib/observe/log.ts";
import {
  identityOf,
  type Rejection,
  type ResourceEventHandler,
  type SourceEvent,
} from "../../lib/source/source.ts";
import { assertHolds } from "./source_recorder.ts";
import { FileSource, type FileSourceOptions } from "../../lib/source/files/file_source.ts";

/** How long anything may take that a test waits for. */
const DEADLINE_MS = 300_000;

/** Keeps log lines. */
export class RecordedLog implements Logger {
  readonly lines: string[] = [];
  enabled(): boolean {
    return true;
  }
  info(message: string, values?: LogValues): void {
    this.lines.push(`I ${message} ${JSON.stringify(values)}`);
  }
  warn(message: string, values?: LogValues): void {
    this.lines.push(`W ${message} ${JSON.stringify(values)}`);
  }
  error(message: string, error: unknown): void {
    this.lines.push(`E ${message}: ${error}`);
  }
}

/** Replays events, checks that they fit together, and lets a test wait for a state. */
export class RecordingHandler implements ResourceEventHandler {
  readonly objects = new Map<string, ApiObject>();
  readonly synced: string[] = [];
  readonly rejections: Rejection[] = [];
  batches = 0;
  #changed: PromiseWithResolvers<void> = Promise.withResolvers();

  events(batch: readonly SourceEvent[]): void {
    assert(batch.length > 0, "an empty batch");
    this.batches++;
    for (const event of batch) {
      if (event.type === "synced") {
        this.synced.push(event.kind);
        continue;
      }
      const old = event.type === "add" ? undefined : event.old;
      const object = event.type === "delete" ? undefined : event.object;
      const identity = identityOf((object ?? old) as ApiObject);
      assertEquals(this.objects.get(identity), old, `${event.type} of ${identity} does not fit`);
      if (object === undefined) this.objects.delete(identity);
      else this.objects.set(identity, object);
    }
    this.#wake();
  }

  rejected(rejection: Rejection): void {
    this.rejections.push(rejection);
    this.#wake();
  }

  #wake(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
  }

  async until(what: string, condition: () => boolean): Promise<void> {
    const late = Promise.withResolvers<"late">();
    const timer = setTimeout(() => late.resolve("late"), DEADLINE_MS);
    try {
      while (!condition()) {
        if (await Promise.race([this.#changed.promise, late.promise]) === "late") {
          throw new Error(`Waited in vain until ${what}; have ${this.ports().join(" ")}`);
        }
      }
    } finally {
      clearTimeout(timer);
    }
  }

  /** Waits until the Services are exactly these, written `name:port`. */
  async untilPorts(...wanted: string[]): Promise<void> {
    const text = wanted.sort().join(" ");
    await this.until(`there is ${text}`, () => this.ports().join(" ") === text);
  }

  async untilRejected(text: string): Promise<Rejection> {
    const find = (): Rejection | undefined =>
      this.rejections.find(({ where, object, message }) => `${where}: ${object}: ${message}`.includes(text));
    await this.until(`rejected: ${text}`, () => find() !== undefined);
    return find() as Rejection;
  }

  ports(): string[] {
    return [...this.objects.values()].flatMap((object) =>
      object.kind === "Service" ? [`${object.name}:${object.ports[0]?.port}`] : []
    ).sort();
  }
}

/** One document: a Service with this port, or whatever stands in its place. */
export function service(name: string, port: number | string, more = ""): string {
  return `---\napiVersion: v1\nkind: Service\nmetadata:\n  name: ${name}\n${more}spec:\n  clusterIP: 10.96.0.1\n` +
    `  ports:\n    - port: ${port}\n`;
}

/** A source that has delivered its first lists. */
export interface Running {
  readonly folder: string;
  readonly handler: RecordingHandler;
  readonly log: RecordedLog;
  write(name: string, text: string): Promise<void>;
  /** What the source refuses now: `Service shop/web`. */
  refused(): readonly string[];
}

/** Runs a source on a new folder, filled by `prepare`; `paths` are relative to it. */
export async function withSource(
  prepare: Record<string, string>,
  test: (running: Running) => Promise<void>,
  options: Partial<FileSourceOptions> = {},
  paths: readonly string[] = ["."],
): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-files-" });
  const write = (name: string, text: string): Promise<void> => Deno.writeTextFile(`${folder}/${name}`, text);
  const abort = new AbortController();
  const [handler, log] = [new RecordingHandler(), new RecordedLog()];
  try {
    for (const [name, text] of Object.entries(prepare)) await write(name, text);
    const source = new FileSource({
      paths: paths.map((path) => path === "-" ? path : path === "." ? folder : `${folder}/${path}`),
      log,
      pollMs: 60_000,
      ...options,
    });
    const running = source.run(handler, abort.signal);
    try {
      await Promise.race([handler.until("synced", () => handler.synced.length === 3), running]);
      await test({
        folder,
        handler,
        log,
        write,
        refused: () => [...source.refusals()].map(({ object }) => object),
      });
      assertHolds(source, handler.objects);
    } finally {
      abort.abort();
      await running;
    }
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}
