import { assert, assertEquals, assertRejects } from "@std/assert";
import fc from "../../tests/support/fast_check.ts";
import { assertHolds, SourceRecorder } from "../../tests/support/source_recorder.ts";
import type { ApiObject } from "../model/objects.ts";
import { CombinedSource } from "./combined_source.ts";
import { decodeService } from "./decode/decode.ts";
import type { ResourceEventHandler, Source, SourceEvent } from "./source.ts";

/** A source driven by its test. */
class ScriptedSource implements Source {
  readonly name: string;
  handler: ResourceEventHandler | undefined;
  readonly failure: PromiseWithResolvers<void> = Promise.withResolvers();
  ended = false;

  constructor(name: string) {
    this.name = name;
  }

  async run(handler: ResourceEventHandler, signal: AbortSignal): Promise<void> {
    this.handler = handler;
    const aborted = Promise.withResolvers<void>();
    signal.addEventListener("abort", () => aborted.resolve());
    await Promise.race([aborted.promise, this.failure.promise]);
    this.ended = true;
  }
}

interface Setup {
  readonly files: ScriptedSource;
  readonly api: ScriptedSource;
  readonly combined: CombinedSource;
  readonly handler: SourceRecorder;
  readonly reports: string[];
  readonly running: Promise<void>;
  readonly abort: AbortController;
}

function start(): Setup {
  const [files, api] = [new ScriptedSource("files /m"), new ScriptedSource("https://api")];
  const [handler, reports, abort] = [new SourceRecorder(false), [] as string[], new AbortController()];
  const combined = new CombinedSource(files, api, (message) => reports.push(message));
  assertEquals(combined.name, "files /m before https://api");
  return { files, api, combined, handler, reports, running: combined.run(handler, abort.signal), abort };
}

function service(port: number): ApiObject {
  return decodeService({
    metadata: { namespace: "shop", name: "web" },
    spec: { clusterIP: "10.0.0.1", ports: [{ port }] },
  });
}

function adds(...objects: ApiObject[]): SourceEvent[] {
  return objects.map((object) => ({ type: "add", object }));
}

Deno.test("the first source wins per object, says so once, and gives way when its object goes", {
  permissions: "none",
}, async () => {
  const { files, api, handler, reports, running, abort } = start();
  api.handler?.events(adds(service(1)));
  files.handler?.events(adds(service(2)));
  api.handler?.events([{ type: "update", old: service(1), object: service(3) }]);
  assertEquals(handler.objects.get("Service shop/web"), service(2));
  files.handler?.events([{ type: "update", old: service(2), object: service(4) }]);
  files.handler?.events([{ type: "delete", old: service(4) }]);
  assertEquals(handler.objects.get("Service shop/web"), service(3));
  assertEquals(handler.story(), [
    "add Service shop/web",
    "update Service shop/web",
    "update Service shop/web",
    "update Service shop/web",
  ]);
  assertEquals(reports, ["Service shop/web of https://api is not used: files /m has it too"]);
  abort.abort();
  await running;
});

Deno.test("a kind is synced once it is in both", { permissions: "none" }, async () => {
  const { files, api, handler, running, abort } = start();
  files.handler?.events([{ type: "synced", kind: "services" }]);
  assertEquals(handler.batches, []);
  api.handler?.events([...adds(service(1)), { type: "synced", kind: "services" }]);
  assertEquals([handler.batches.length, handler.story()], [1, ["add Service shop/web", "synced services"]]);
  abort.abort();
  await running;
});

Deno.test("rejections of both pass", { permissions: "none" }, async () => {
  const { files, api, handler, running, abort } = start();
  files.handler?.rejected({ where: "a", object: "b", message: "one" });
  api.handler?.rejected({ where: "a", object: "b", message: "two" });
  assertEquals(handler.rejections.map(({ message }) => message), ["one", "two"]);
  abort.abort();
  await running;
});

Deno.test("if one source gives up, the other is ended and the reason is passed on", {
  permissions: "none",
}, async () => {
  const { files, api, running } = start();
  api.failure.reject(new Deno.errors.NotFound("no such kubeconfig"));
  await assertRejects(() => running, Deno.errors.NotFound, "no such kubeconfig");
  assert(files.ended);
});

Deno.test("in any order of events the outcome is the first source's object, else the second's", {
  permissions: "none",
}, () => {
  const step = fc.record({ side: fc.constantFrom(0, 1), port: fc.option(fc.integer({ min: 1, max: 3 })) });
  fc.assert(fc.property(fc.array(step), (steps) => {
    const { files, api, combined, handler } = start();
    const held: (ApiObject | undefined)[] = [undefined, undefined];
    for (const { side, port } of steps) {
      const old = held[side];
      const object = port === null ? undefined : service(port);
      if (old === undefined && object === undefined) continue;
      const event: SourceEvent = object === undefined
        ? { type: "delete", old: old as ApiObject }
        : old === undefined
        ? { type: "add", object }
        : { type: "update", old, object };
      (side === 0 ? files : api).handler?.events([event]);
      held[side] = object;
      assertEquals(handler.objects.get("Service shop/web"), held[0] ?? held[1]);
      assertHolds(combined, handler.objects);
    }
  }));
});
