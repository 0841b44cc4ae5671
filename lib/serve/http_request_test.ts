import { assertEquals, assertThrows } from "@std/assert";
import fc from "../../tests/support/fast_check.ts";
import { BadRequest, RequestReader } from "./http_request.ts";

const PURE = { permissions: "none" } as const;
const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** Text of a request: `METHOD target body`, then its other properties of interest. */
function shown(reader: RequestReader): string | null {
  const request = reader.next();
  if (request === null) return null;
  const { method, target, body, isHttp10, keepAlive } = request;
  const words = [method, target, JSON.stringify(decoder.decode(body))];
  return [...words, ...(isHttp10 ? ["1.0"] : []), ...(keepAlive ? [] : ["close"])].join(" ");
}

/** All requests that are in the bytes, read in pieces that end at these places. */
function readAll(bytes: Uint8Array, ends: readonly number[] = []): string[] {
  const reader = new RequestReader();
  const requests: string[] = [];
  let from = 0;
  for (const end of [...ends, bytes.length].sort((a, b) => a - b)) {
    reader.push(bytes.subarray(from, end));
    from = end;
    for (let request = shown(reader); request !== null; request = shown(reader)) requests.push(request);
  }
  return requests;
}

/** `STATUS message` of what is refused. */
function refusal(text: string): string {
  const error = assertThrows(() => readAll(encoder.encode(text)), BadRequest);
  return `${error.status} ${error.message}`;
}

const GOOD: readonly (readonly [text: string, ...requests: string[]])[] = [
  ["GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", 'GET /healthz ""'],
  ["GET /healthz HTTP/1.1\nHost: a\n\n", 'GET /healthz ""'],
  ["\r\n\r\nGET / HTTP/1.1\r\nHost:\r\n\r\n", 'GET / ""'],
  ["GET / HTTP/1.0\r\n\r\n", 'GET / "" 1.0 close'],
  ["GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 'GET / "" 1.0'],
  ["GET / HTTP/1.1\r\nHost: a\r\nConnection: foo, Close\r\n\r\n", 'GET / "" close'],
  ["GET http://x:1/z?q HTTP/1.1\r\nHost: a\r\n\r\n", 'GET /z?q ""'],
  ["GET http://x?q HTTP/1.1\r\nHost: a\r\n\r\n", 'GET /?q ""'],
  ["OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 'OPTIONS /* ""'],
  ["GET //[ HTTP/1.1\r\nHost: [::1]:10256\r\n\r\n", 'GET //[ ""'],
  ["GET /é HTTP/1.1\r\nHost: a\r\nX: é\r\n\r\n", `GET /${String.fromCharCode(195, 169)} ""`],
  [
    "PUT /v HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n10GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    'PUT /v "10"',
    'GET / ""',
  ],
  ["PUT /v HTTP/1.1\r\nHost: a\r\nContent-Length: 2, 2\r\n\r\n10", 'PUT /v "10"'],
];

Deno.test("requests are read as they are meant, one after the other", PURE, () => {
  for (const [text, ...requests] of GOOD) {
    assertEquals(readAll(encoder.encode(text)), requests, text);
  }
});

Deno.test("where the network cuts them does not matter", PURE, () => {
  const texts = GOOD.map(([text]) => encoder.encode(text));
  const cut = fc.record({
    text: fc.constantFrom(...texts),
    ends: fc.array(fc.nat({ max: 200 }), { maxLength: 12 }),
  });
  fc.assert(fc.property(cut, ({ text, ends }) => {
    const inside = ends.filter((end) => end <= text.length);
    assertEquals(readAll(text, inside), readAll(text));
  }));
  for (const text of texts) assertEquals(readAll(text, [...text.keys()]), readAll(text));
});

Deno.test("what is no request is refused, in the words of Go's server", PURE, () => {
  const host = "HTTP/1.1\r\nHost: a\r\n";
  for (
    const [text, expected] of [
      ["GET / HTTP/1.1\r\n\r\n", "400 400 Bad Request: missing required Host header"],
      ["GET / HTTP/1.1\r\nHost: foo bar\r\n\r\n", "400 400 Bad Request: malformed Host header"],
      ["GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400 400 Bad Request: malformed Host header"],
      ["GET / HTTP/2.0\r\n\r\n", "505 505 HTTP Version Not Supported: unsupported protocol version"],
      ["GET /\r\n\r\n", "400 400 Bad Request"],
      ["\x16\x03\x01\x02\n\n", "400 400 Bad Request"],
      ["GET http://x y/z HTTP/1.1\r\nHost: a\r\n\r\n", "400 400 Bad Request"],
      ["GET healthz HTTP/1.1\r\nHost: a\r\n\r\n", "400 400 Bad Request"],
      ["CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", "400 400 Bad Request"],
      [`GET / ${host}A : b\r\n\r\n`, "400 400 Bad Request"],
      [`GET / ${host}A: b\r\n c\r\n\r\n`, "400 400 Bad Request"],
      [`GET / ${host}A: b\rc\r\n\r\n`, "400 400 Bad Request"],
      [`GET / ${host}Content-Length: -1\r\n\r\n`, "400 400 Bad Request"],
      [`GET / ${host}Content-Length: 1\r\nContent-Length: 2\r\n\r\n`, "400 400 Bad Request"],
      [`GET / ${host}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n`, "411 411 Length Required"],
      [`PUT / ${host}Transfer-Encoding: gzip\r\n\r\n`, "411 411 Length Required"],
    ] as const
  ) assertEquals(refusal(text), expected, text);
});

Deno.test("no client can make it keep more than a little", PURE, () => {
  const host = "HTTP/1.1\r\nHost: a\r\n";
  for (
    const [text, status] of [
      ["A".repeat(40_000), 431],
      [`GET / ${host}${"A: b\r\n".repeat(10_000)}`, 431],
      [`GET / ${host}Content-Length: 65537\r\n\r\n`, 413],
    ] as const
  ) assertEquals(refusal(text).slice(0, 3), String(status), text.slice(0, 60));
});

Deno.test("a client that waits for a word before its body is reported once", PURE, () => {
  const reader = new RequestReader();
  reader.push(
    encoder.encode("PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n"),
  );
  assertEquals([reader.next(), reader.takeContinueDue(), reader.takeContinueDue()], [null, true, false]);
  reader.push(encoder.encode("1"));
  assertEquals([shown(reader), reader.takeContinueDue()], ['PUT / "1"', false]);
});
