import { assertEquals, assertRejects, assertStrictEquals } from "@std/assert";
import { AheadSource } from "./ahead.ts";
import type { ApiObject } from "../model/objects.ts";
import type { Source, SourceEvent, SourceSink } from "./source.ts";

const NODE = { kind: "Node", name: "n1" } as ApiObject;
const CIDR = { kind: "ServiceCIDR", name: "kubernetes" } as ApiObject;
const NODES: readonly SourceEvent[] = [{ type: "add", object: NODE }, { type: "synced", kind: "nodes" }];
const CIDRS: readonly SourceEvent[] = [{ type: "add", object: CIDR }, {
  type: "synced",
  kind: "servicecidrs",
}];

/** A source that a test lets speak. */
class SpokenSource implements Source {
  readonly name = "spoken";
  sink: SourceSink | undefined;
  hasEnded = false;
  readonly #failure = Promise.withResolvers<void>();

  async run(sink: SourceSink, signal: AbortSignal): Promise<void> {
    this.sink = sink;
    const over = new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
    await Promise.race([over, this.#failure.promise]).finally(() => this.hasEnded = true);
  }

  fail(error: Error): void {
    this.#failure.reject(error);
  }

  objects(): Iterable<ApiObject> {
    return [NODE];
  }
}

/** What a sink was told, in order. */
function listener(wantsServiceCidrs: boolean): SourceSink & { readonly told: unknown[] } {
  const told: unknown[] = [];
  return {
    told,
    wantsServiceCidrs,
    events: (batch) => told.push(...batch),
    rejected: ({ object }) => told.push(`rejected ${object}`),
    heard: (kind) => told.push(`heard ${kind}`),
    failed: (kind, reason) => told.push(`failed ${kind}: ${reason}`),
    refused: (kind, reason) => told.push(`refused ${kind}: ${reason}`),
    restored: (state) => told.push(`restored ${state?.savedAtMs}`),
  };
}

function begun(wantsServiceCidrs = true): { origin: SpokenSource; ahead: AheadSource } {
  const origin = new SpokenSource();
  const ahead = new AheadSource(origin);
  ahead.begin({ wantsServiceCidrs, signal: new AbortController().signal });
  return { origin, ahead };
}

Deno.test("what came before the run is handed over in order, then everything at once", {
  permissions: "none",
}, async () => {
  const { origin, ahead } = begun();
  origin.sink?.failed?.("nodes", "no connection");
  origin.sink?.heard?.("nodes");
  origin.sink?.events(NODES);
  origin.sink?.rejected({ where: "there", object: "Service a/b", message: "wrong" });
  origin.sink?.refused?.("nodes", "forbidden");
  origin.sink?.restored?.(null);
  const stop = new AbortController();
  const sink = listener(true);
  const running = ahead.run(sink, stop.signal);
  const kept = [
    "failed nodes: no connection",
    "heard nodes",
    ...NODES,
    "rejected Service a/b",
    "refused nodes: forbidden",
    "restored undefined",
  ];
  assertEquals(sink.told, kept);
  origin.sink?.events(CIDRS);
  assertEquals(sink.told, [...kept, ...CIDRS]);
  assertEquals([...ahead.objects()], [NODE]);
  stop.abort();
  await running;
  assertEquals(origin.hasEnded, true);
});

Deno.test("what does not begin ahead is the source itself", { permissions: "none" }, async () => {
  const origin = new SpokenSource();
  const ahead = new AheadSource(origin);
  ahead.begin({ wantsServiceCidrs: true, signal: AbortSignal.abort() });
  await ahead.end();
  assertEquals(origin.sink, undefined);
  const sink = listener(false);
  const stop = new AbortController();
  const running = ahead.run(sink, stop.signal);
  assertStrictEquals(origin.sink, sink);
  stop.abort();
  await running;
});

Deno.test("why a source gave up before the run is told by the run, after what it had delivered", {
  permissions: "none",
}, async () => {
  const { origin, ahead } = begun();
  origin.sink?.events(NODES);
  origin.fail(new Error("the credentials cannot be read"));
  await new Promise((resolve) => setTimeout(resolve, 0));
  const sink = listener(true);
  const signal = new AbortController().signal;
  await assertRejects(() => ahead.run(sink, signal), Error, "the credentials cannot be read");
  assertEquals(sink.told, [...NODES]);
  // Its failure is told already.
  await ahead.end();
});

Deno.test(
  "the end of a start ends what began, and a run after that is over at once",
  { permissions: "none" },
  async () => {
    const { origin, ahead } = begun();
    await ahead.end();
    assertEquals(origin.hasEnded, true);
    await ahead.run(listener(true), new AbortController().signal);
    const { origin: late, ahead: stopped } = begun();
    await stopped.run(listener(true), AbortSignal.abort());
    assertEquals(late.hasEnded, true);
  },
);

Deno.test("ServiceCIDRs that turn out to be of no use are asked for no longer, and not told", {
  permissions: "none",
}, async () => {
  const { origin, ahead } = begun();
  assertEquals(origin.sink?.wantsServiceCidrs, true);
  assertEquals(origin.sink?.serviceCidrsUnwanted?.aborted, false);
  origin.sink?.heard?.("servicecidrs");
  origin.sink?.events([...NODES, ...CIDRS]);
  origin.sink?.events(CIDRS);
  const sink = listener(false);
  const stop = new AbortController();
  const running = ahead.run(sink, stop.signal);
  origin.sink?.failed?.("servicecidrs", "gone");
  assertEquals(origin.sink?.serviceCidrsUnwanted?.aborted, true);
  assertEquals(sink.told, [...NODES]);
  stop.abort();
  await running;
});

Deno.test("ServiceCIDRs that nobody asked for cannot be wanted later", { permissions: "none" }, async () => {
  const { origin, ahead } = begun(false);
  assertEquals(origin.sink?.wantsServiceCidrs, false);
  await assertRejects(
    () => ahead.run(listener(true), new AbortController().signal),
    TypeError,
    "ServiceCIDRs",
  );
  await ahead.end();
});
