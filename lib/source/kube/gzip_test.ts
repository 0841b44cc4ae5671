/** Compressed answers, and which requests ask for them. */
import { assertEquals, assertRejects } from "@std/assert";
import { LOCAL_PAIR } from "../../../tests/support/test_certificates.ts";
import { systemClock } from "../../kernel/clock.ts";
import { KubeClient } from "./kube_client.ts";
import { masterAccess } from "./api_access.ts";
import { AnswerError, unpacked } from "./response.ts";
import type { ClusterAccess } from "./kubeconfig.ts";

type Bytes = Uint8Array<ArrayBuffer>;

async function packed(text: string): Promise<Bytes> {
  const stream = new Blob([text]).stream().pipeThrough(new CompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

const streamOf = (bytes: Bytes): ReadableStream<Bytes> => ReadableStream.from([bytes]);
const readAll = (body: ReadableStream<Bytes>): Promise<string> => new Response(body).text();

/** Lines as long as objects, each different: packed to about a tenth. */
const TEXT = Array.from({ length: 50_000 }, (_, i) => `{"name":"service-${i}","uid":"${i * 7919}"}`).join(
  "\n",
);

Deno.test("what is packed by gzip is unpacked, whatever the header's case; what is not, is left alone", async () => {
  for (const way of ["gzip", "GZIP", " x-gzip"]) {
    assertEquals(await readAll(unpacked(streamOf(await packed(TEXT)), way)), TEXT);
  }
  for (const way of ["", "identity"]) {
    assertEquals(await readAll(unpacked(streamOf(new TextEncoder().encode(TEXT)), way)), TEXT);
  }
});

Deno.test("what is packed in another way or is broken is no answer", async () => {
  const whole = await packed(TEXT);
  const reads = (bytes: Bytes, way: string) => () => readAll(unpacked(streamOf(bytes), way));
  await assertRejects(reads(whole, "br"), AnswerError, "packed by br");
  await assertRejects(reads(new TextEncoder().encode(TEXT), "gzip"));
  await assertRejects(reads(whole.slice(0, 5_000), "gzip"));
});

/** `Accept-Encoding` of one GET, and the body it reads; the server packs only if it may, or `always`. */
async function asked(
  access: Partial<ClusterAccess>,
  { always = false, tls = false, text = TEXT } = {},
): Promise<readonly [string | null, string]> {
  let seen: string | null = null;
  const answer = async (request: Request): Promise<Response> => {
    seen = request.headers.get("accept-encoding");
    if (!always && !/gzip/.test(seen ?? "")) return new Response(text);
    return new Response(await packed(text), { headers: { "content-encoding": "gzip" } });
  };
  const listen = { hostname: "127.0.0.1", port: 0, onListen: () => {} };
  await using server = tls ? Deno.serve({ ...listen, ...LOCAL_PAIR }, answer) : Deno.serve(listen, answer);
  const url = `${tls ? "https" : "http"}://127.0.0.1:${server.addr.port}`;
  const client = new KubeClient({
    access: { ...masterAccess(url), ...access },
    qps: -1,
    burst: 1,
    userAgent: "test",
    clock: systemClock,
  });
  try {
    const { body } = await client.get("/api/v1/services", new AbortController().signal);
    return [seen, await readAll(body as ReadableStream<Bytes>)];
  } finally {
    client.close();
  }
}

Deno.test("nothing is asked for packed unless the kubeconfig says so", async () => {
  assertEquals(await asked({}), ["identity", TEXT]);
  assertEquals(await asked({ asksForCompression: true }), ["gzip", TEXT]);
  assertEquals(await asked({ insecureSkipTlsVerify: true }, { tls: true }), ["identity", TEXT]);
  assertEquals(await asked({ insecureSkipTlsVerify: true, asksForCompression: true }, { tls: true }), [
    "gzip",
    TEXT,
  ]);
});

Deno.test("a server that packs answers without being asked is understood, in both directions", async () => {
  assertEquals(await asked({}, { always: true }), ["identity", TEXT]);
  assertEquals(await asked({ insecureSkipTlsVerify: true }, { always: true, tls: true }), ["identity", TEXT]);
});

Deno.test("a body that becomes a hundred times as long is no answer, in either direction", async () => {
  const bomb = { always: true, text: "\0".repeat(20_000_000) };
  for (const asksForCompression of [false, true]) {
    for (const tls of [false, true]) {
      const access = { asksForCompression, insecureSkipTlsVerify: tls };
      await assertRejects(() => asked(access, { ...bomb, tls }), AnswerError, "100 times as long");
    }
  }
});
