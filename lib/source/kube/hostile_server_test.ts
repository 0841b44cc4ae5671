/** Answers that want to harm: slow, endless, huge, packed, cut, or leading elsewhere. */
import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { startWork } from "../../../tests/support/spent.ts";
import {
  listsOf,
  putWeb,
  QUICK_TIMES,
  startKubeSource,
  watching,
} from "../../../tests/support/kube_fixture.ts";
import { ListWatchServer } from "../../../tests/support/list_watch_server.ts";
import { rawService } from "../../../tests/support/raw_objects.ts";
import { until } from "../../../tests/support/until.ts";
import { AnswerError, readRefusal, readText } from "./response.ts";
import { JsonEventReader } from "./serializers.ts";
import { DecodeError } from "../decode/decode_values.ts";

const READING = { signal: new AbortController().signal, note: () => {} };
const encoder = new TextEncoder();

/** A stream of the same piece without end, with the number of pieces taken. */
function endless(piece: string): { readonly stream: ReadableStream<Uint8Array>; taken: number } {
  const counted = { taken: 0, stream: new ReadableStream<Uint8Array>() };
  counted.stream = new ReadableStream({
    pull(controller) {
      counted.taken++;
      controller.enqueue(encoder.encode(piece));
    },
  });
  return counted;
}

Deno.test("lines and texts are what was sent, whatever the pieces", async () => {
  const text = `{"type":"äöü","object":{}}\n\n{"type":"b","object":{"c":2}}\n{"half":`;
  const bytes = encoder.encode(text);
  for (const length of [1, 2, 5, bytes.length]) {
    const pieces = function* () {
      for (let at = 0; at < bytes.length; at += length) yield bytes.slice(at, at + length);
    };
    const events = new JsonEventReader();
    const read = [...pieces()].flatMap((piece) => events.push(piece, 100)).map((read) => read());
    assertEquals(read, [{ type: "äöü", object: {} }, { type: "b", object: { c: 2 } }]);
    assertEquals(await readText({ body: ReadableStream.from(pieces()) }, READING), text);
  }
});

Deno.test("an endless answer, an endless line and an endless refusal are given up at their limit", async () => {
  const list = endless("x".repeat(1000));
  await assertRejects(
    () => readText({ body: list.stream }, READING, 50_000),
    AnswerError,
    "larger than 50000 bytes",
  );
  let pieces = 0;
  assertThrows(
    () => {
      for (const events = new JsonEventReader();; pieces++) events.push(encoder.encode("x"), 3_000);
    },
    DecodeError,
    "a line of more than 3000 bytes",
  );
  const refusal = endless("no ".repeat(100));
  assertEquals((await readRefusal({ body: refusal.stream }, READING)).length, 64 * 1024);
  assert(list.taken < 60 && pieces === 3_000 && refusal.taken < 230);
  // Short lines without an end are what a watch is.
  let lines = 0;
  const events = new JsonEventReader();
  for (let i = 0; i < 1000; i++) lines += events.push(encoder.encode("0123456789\n"), 20).length;
  assertEquals(lines, 1000);
});

Deno.test("200,000 pieces of one byte take no more time than their number", () => {
  const spentMs = startWork();
  const events = new JsonEventReader();
  const bytes = new Uint8Array(1).fill(120);
  for (let i = 0; i < 200_000; i++) assertEquals(events.push(bytes, 1_000_000), []);
  assertEquals(events.push(encoder.encode("\n"), 1_000_000).length, 1);
  assert(spentMs() < 20_000);
});

Deno.test("an answer packed a thousandfold is left before it fills the memory", async () => {
  const zeros = ReadableStream.from<BufferSource>(Array(300).fill(new Uint8Array(1024 * 1024)));
  const bomb = await new Response(zeros.pipeThrough(new CompressionStream("gzip"))).arrayBuffer();
  assert(bomb.byteLength < 400_000, `${bomb.byteLength}`);
  await using server = new ListWatchServer();
  putWeb(server);
  const bytes = new Uint8Array(bomb);
  for (const isWatch of [false, true]) {
    server.plan(({ path, watch }) => path.endsWith("/services") && watch === isWatch, {
      status: 200,
      bytes,
      encoding: "gzip",
    });
  }
  // Of this file's own heap: the process has those of other files, too.
  const kept = (): number => {
    const { heapUsed, external } = Deno.memoryUsage();
    return heapUsed + external;
  };
  const before = kept();
  let most = before;
  const looking = setInterval(() => most = Math.max(most, kept()), 1);
  await using source = startKubeSource(server);
  await source.recorder.untilSynced();
  await watching(server);
  clearInterval(looking);
  assertEquals(source.recorder.names("Service"), ["Service default/web"]);
  assert(most - before < 150 * 1024 * 1024, `${most - before} bytes more`);
  assert(source.lines.some((line) => line.includes("as long as it was packed")), source.lines.join(""));
});

Deno.test("a redirect is a refusal: nothing is asked for elsewhere", async () => {
  await using elsewhere = new ListWatchServer();
  elsewhere.put(rawService("stolen"));
  await using server = new ListWatchServer();
  putWeb(server);
  for (const status of [301, 302, 307, 308]) {
    const location = `${elsewhere.url}/api/v1/services`;
    server.plan(({ path }) => path.endsWith("/services"), { status, text: "", location });
  }
  await using source = startKubeSource(server);
  await source.recorder.untilSynced();
  assertEquals(source.recorder.names("Service"), ["Service default/web"]);
  assertEquals(elsewhere.requests, []);
  assertEquals(listsOf(server, "services"), 5);
});

Deno.test("a list that goes from page to page without an end is given up", async () => {
  await using server = new ListWatchServer();
  putWeb(server);
  const page = JSON.stringify({
    kind: "ServiceList",
    apiVersion: "v1",
    metadata: { resourceVersion: "100", continue: "again" },
    items: [rawService("web")],
  });
  let isTrap = true;
  const trap = (): void =>
    server.plan(({ path, watch }) => {
      if (!isTrap || watch || !path.endsWith("/services")) return false;
      trap();
      return true;
    }, { status: 200, text: page });
  trap();
  await using source = startKubeSource(server);
  await until(() => source.lines.some((line) => line.includes("the list does not end")), "an error");
  isTrap = false;
  await source.recorder.untilSynced();
});

Deno.test("events of other kinds of objects break the watch, and nothing of them is taken", async () => {
  await using server = new ListWatchServer();
  putWeb(server);
  await using source = startKubeSource(server);
  await source.recorder.untilSynced();
  const others = [
    { type: "DELETED", object: { kind: "Pod", metadata: { name: "web", namespace: "default" } } },
    { type: "MODIFIED", object: { kind: "Status", metadata: {}, code: 200 } },
    { type: "ADDED", object: { ...rawService("x"), kind: "ServiceList" } },
  ];
  for (const [index, event] of others.entries()) {
    await watching(server);
    server.send(`${JSON.stringify(event)}\n`, "services");
    server.put(rawService(`after-${index}`));
    await source.recorder.untilThere(`Service default/after-${index}`);
  }
  assertEquals(source.recorder.story().filter((line) => line.startsWith("delete")), []);
  assertEquals(source.recorder.objects.has("Service default/x"), false);
});

Deno.test("a malformed object is reported once, not again with each event and each list, and anew when it changes", async () => {
  await using server = new ListWatchServer();
  putWeb(server);
  const bad = (port: unknown) => ({
    ...rawService("bad"),
    spec: { clusterIP: "10.96.0.9", ports: [{ port }] },
  });
  server.put(bad("eighty"));
  await using source = startKubeSource(server, { times: { ...QUICK_TIMES, silenceMs: 60_000 } });
  const { recorder } = source;
  await recorder.untilSynced();
  await watching(server);
  for (let round = 0; round < 3; round++) {
    server.put(bad("eighty"));
    server.put(rawService(`after-${round}`));
    await recorder.untilThere(`Service default/after-${round}`);
    server.send(
      `${JSON.stringify({ type: "ERROR", object: { code: 410, message: "too old" } })}\n`,
      "services",
    );
    await until(() => listsOf(server, "services") === round + 2, "a list");
    await watching(server);
  }
  assertEquals(recorder.rejections.length, 1);
  assertEquals(source.refused(), ["Service default/bad"]);
  server.put(bad("ninety"));
  await recorder.until(() => recorder.rejections.length === 2, "another reason");
  server.put(rawService("bad"));
  await recorder.untilThere("Service default/bad");
  assertEquals(source.refused(), []);
  server.put(bad("ninety"));
  await recorder.until(() => recorder.rejections.length === 3, "bad again");
});
