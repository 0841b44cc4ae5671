/**
 * A source that is asked before anybody can take what it delivers: an API server answers while the node is looked at.
 *
 * @module
 */
import type { ApiObject } from "../model/objects.ts";
import type { Rejection, ResourceKind, Source, SourceEvent, SourceSink } from "./source.ts";

/** How a source begins ahead. */
export interface AheadStart {
  /** Whether the sink that comes later will want ServiceCIDRs, as far as anybody knows. */
  readonly wantsServiceCidrs: boolean;
  /** Nothing begins if it is aborted already. */
  readonly signal: AbortSignal;
}

/**
 * Another source, which may begin before it is run: what it delivers until then is kept, and handed over in order by the run. Why it
 * gave up is told by the run, too. Without {@linkcode AheadSource.begin} it is the other source.
 */
export class AheadSource implements Source {
  readonly name: string;
  readonly #source: Source;
  readonly #end = new AbortController();
  #ahead: { readonly sink: KeepingSink; readonly running: Promise<void> } | null = null;

  constructor(source: Source) {
    this.name = source.name;
    this.#source = source;
  }

  /** Begins. To be followed by {@linkcode AheadSource.run}, or by {@linkcode AheadSource.end}. */
  begin({ wantsServiceCidrs, signal }: AheadStart): void {
    if (signal.aborted || this.#ahead !== null) return;
    const sink = new KeepingSink(wantsServiceCidrs);
    const running = this.#source.run(sink, this.#end.signal);
    // Told by the run, which may come later.
    running.catch(() => undefined);
    this.#ahead = { sink, running };
  }

  /**
   * @throws whatever the source throws, or threw since it began
   * @throws {TypeError} if the sink wants ServiceCIDRs and it was said that none does
   */
  async run(sink: SourceSink, signal: AbortSignal): Promise<void> {
    if (this.#ahead === null) return await this.#source.run(sink, signal);
    const end = (): void => this.#end.abort(signal.reason);
    signal.addEventListener("abort", end, { once: true });
    if (signal.aborted) end();
    try {
      this.#ahead.sink.handOver(sink);
      await this.#ahead.running;
    } finally {
      signal.removeEventListener("abort", end);
    }
  }

  /** Ends what began ahead and was not run; resolves when nothing of it is left. Else does nothing. */
  async end(): Promise<void> {
    this.#end.abort();
    await this.#ahead?.running.catch(() => undefined);
  }

  objects(): Iterable<ApiObject> {
    return this.#source.objects?.() ?? [];
  }

  refusals(): Iterable<Rejection> {
    return this.#source.refusals?.() ?? [];
  }
}

/** What is said to a sink, for the one that comes later. */
class KeepingSink implements SourceSink {
  readonly wantsServiceCidrs: boolean;
  readonly #unwanted = new AbortController();
  #kept: ((sink: SourceSink) => void)[] = [];
  #sink: SourceSink | null = null;

  constructor(wantsServiceCidrs: boolean) {
    this.wantsServiceCidrs = wantsServiceCidrs;
  }

  get serviceCidrsUnwanted(): AbortSignal {
    return this.#unwanted.signal;
  }

  /** @throws {TypeError} see {@linkcode AheadSource.run} */
  handOver(sink: SourceSink): void {
    const isWanted = sink.wantsServiceCidrs === true;
    if (isWanted && !this.wantsServiceCidrs) {
      throw new TypeError("The source began ahead without ServiceCIDRs, which are wanted now");
    }
    if (!isWanted) this.#unwanted.abort();
    this.#sink = sink;
    const kept = this.#kept;
    this.#kept = [];
    for (const say of kept) say(sink);
  }

  events(batch: readonly SourceEvent[]): void {
    this.#say((sink) => {
      const wanted = this.#unwanted.signal.aborted ? batch.filter(isNotOfServiceCidrs) : batch;
      if (wanted.length > 0) sink.events(wanted);
    });
  }

  rejected(rejection: Rejection): void {
    this.#say((sink) => sink.rejected(rejection));
  }

  heard(kind: ResourceKind): void {
    this.#sayOf(kind, (sink) => sink.heard?.(kind));
  }

  failed(kind: ResourceKind, reason: string): void {
    this.#sayOf(kind, (sink) => sink.failed?.(kind, reason));
  }

  refused(kind: ResourceKind, reason: string): void {
    this.#sayOf(kind, (sink) => sink.refused?.(kind, reason));
  }

  restored(...[state]: Parameters<NonNullable<SourceSink["restored"]>>): void {
    this.#say((sink) => sink.restored?.(state));
  }

  #sayOf(kind: ResourceKind, say: (sink: SourceSink) => void): void {
    this.#say((sink) => {
      if (kind !== "servicecidrs" || !this.#unwanted.signal.aborted) say(sink);
    });
  }

  #say(say: (sink: SourceSink) => void): void {
    if (this.#sink === null) this.#kept.push(say);
    else say(this.#sink);
  }
}

function isNotOfServiceCidrs(event: SourceEvent): boolean {
  if (event.type === "synced") return event.kind !== "servicecidrs";
  return (event.type === "delete" ? event.old : event.object).kind !== "ServiceCIDR";
}
