/**
 * A file source on a temporary folder, for tests.
 *
 * @module
 */
import type { Logger, LogValues } from "../../lib/observe/log.ts";
import type { Rejection } from "../../lib/source/source.ts";
import { assertHolds, SourceRecorder } from "./source_recorder.ts";
import { FileSource, type FileSourceOptions } from "../../lib/source/files/file_source.ts";

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

/** Checks that events are consistent, and waits for Services. */
export class RecordingHandler extends SourceRecorder {
  constructor() {
    // A changed file yields new objects, even if they are equal.
    super(false);
  }

  /** Waits until the Services are exactly these, written `name:port`. */
  async untilPorts(...wanted: string[]): Promise<void> {
    const text = wanted.sort().join(" ");
    await this.until(() => this.ports().join(" ") === text, `there is ${text}`);
  }

  async untilRejected(text: string): Promise<Rejection> {
    const find = (): Rejection | undefined =>
      this.rejections.find(({ where, object, message }) => `${where}: ${object}: ${message}`.includes(text));
    await this.until(() => find() !== undefined, `rejected: ${text}`);
    return find() as Rejection;
  }

  ports(): string[] {
    return [...this.objects.values()].flatMap((object) =>
      object.kind === "Service" ? [`${object.name}:${object.ports[0]?.port}`] : []
    ).sort();
  }
}

/** One document: a Service with this port, or any value in its place. */
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
  /** Objects that are refused now: `Service shop/web`. */
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
      await Promise.race([handler.untilSynced(), running]);
      await test({
        folder,
        handler,
        log,
        write,
        refused: () => [...source.refusals()].map(({ object }) => object),
      });
      handler.assertSound();
      assertHolds(source, handler.objects);
    } finally {
      abort.abort();
      await running;
    }
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}
