import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { assert, assertEquals, assertMatch } from "@std/assert";
import { settled } from "../../tests/support/until.ts";
import { ConnectionPool, type ConnectionPoolOptions } from "../kernel/connection_pool.ts";
import { type Handler, listen } from "./http_listener.ts";

const HOST = "HTTP/1.1\r\nHost: x\r\n";
const encoder = new TextEncoder();

/** Errors that handlers threw, and connections that the pool closed. */
interface Complaints {
  readonly errors: unknown[];
  readonly closed: string[];
}

/** Serves on loopback while `work` runs. */
async function serving(
  handler: Handler,
  work: (port: number, complaints: Complaints) => Promise<void>,
  pool: ConnectionPoolOptions = {},
): Promise<void> {
  const complaints: Complaints = { errors: [], closed: [] };
  const observer = {
    open: () => {},
    closed: (_server: string, reason: string) => complaints.closed.push(reason),
    failed: () => {},
  };
  const listener = listen({
    host: "127.0.0.1",
    port: 0,
    handler,
    onError: (error) => complaints.errors.push(error),
    onAcceptFailure: (error) => complaints.errors.push(error),
    pool: new ConnectionPool({ observer, ...pool }),
    lane: { server: "test", most: 8 },
  });
  try {
    await work(listener.port, complaints);
  } finally {
    await listener.close();
  }
}

const echo: Handler = async (request) => {
  const { pathname } = new URL(request.url);
  return new Response(`${request.method} ${pathname} ${await request.text()}`);
};

/** Everything a client gets that sends this and then ends its side, without the date. */
async function exchange(port: number, sent: string): Promise<string> {
  using client = await Deno.connect({ hostname: "127.0.0.1", port });
  await client.write(encoder.encode(sent));
  await client.closeWrite();
  return (await new Response(client.readable).text()).replaceAll(/Date: .*\r\n/g, "");
}

Deno.test("a body that no page reads is no fault of ours, however the method is written", async () => {
  await serving(echo, async (port, { errors }) => {
    for (const method of ["GET", "get", "Head", "hEAD"]) {
      const answer = await exchange(port, `${method} /a ${HOST}Content-Length: 2\r\n\r\nhi`);
      assertMatch(answer, /^HTTP\/1\.1 200 OK\r\n/, method);
    }
    assertEquals(errors, []);
  });
});

Deno.test("answers have a length, come in the order of their requests, and end with the client", async () => {
  await serving(echo, async (port, { errors }) => {
    const put = `PUT /b ${HOST}Content-Length: 2\r\n\r\nhi`;
    const text = "Content-Type: text/plain;charset=UTF-8\r\n";
    assertEquals(
      await exchange(port, `GET /a ${HOST}\r\n${put}HEAD /c ${HOST}\r\nGET /d HTTP/1.0\r\n\r\n`),
      `HTTP/1.1 200 OK\r\n${text}Content-Length: 7\r\n\r\nGET /a ` +
        `HTTP/1.1 200 OK\r\n${text}Content-Length: 9\r\n\r\nPUT /b hi` +
        `HTTP/1.1 200 OK\r\n${text}Content-Length: 8\r\n\r\n` +
        `HTTP/1.1 200 OK\r\n${text}Content-Length: 7\r\nConnection: close\r\n\r\nGET /d `,
    );
    assertEquals(errors, []);
  });
});

Deno.test("a request that is none gets its status, and no error is logged", async () => {
  await serving(echo, async (port, { errors }) => {
    for (
      const [sent, status] of [
        ["GET / HTTP/1.1\r\nHost: foo bar\r\n\r\n", 400],
        ["GET / HTTP/1.1\r\n\r\n", 400],
        ["\x16\x03\x01\r\n\r\n", 400],
        ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505],
        [`TRACE / ${HOST}\r\n`, 405],
        // Most of it is still on its way when the answer is.
        [`GET / ${HOST}${"A: b\r\n".repeat(30_000)}\r\n`, 431],
        [`PUT / ${HOST}Content-Length: 200000\r\n\r\n${"x".repeat(200_000)}`, 413],
      ] as const
    ) {
      const answer = await exchange(port, sent);
      assertMatch(
        answer,
        new RegExp(`^HTTP/1.1 ${status} .*\\r\\n.*Connection: close\\r\\n\\r\\n`, "s"),
        sent.slice(0, 50),
      );
    }
    assertEquals(
      await exchange(port, `GET //[ ${HOST}Connection: close\r\n\r\n`).then((text) => text.slice(0, 12)),
      "HTTP/1.1 200",
    );
    assertEquals(errors, []);
  });
});

Deno.test("a body of several pieces is sent in chunks, or to the end for who knows none", async () => {
  const pieces = ["a".repeat(200_000), "", "b"];
  const handler: Handler = () =>
    new Response(ReadableStream.from(pieces.map((piece) => encoder.encode(piece))), { status: 503 });
  await serving(handler, async (port) => {
    const response = await fetch(`http://127.0.0.1:${port}/`);
    assertEquals([response.status, await response.text()], [503, pieces.join("")]);
    const plain = await exchange(port, "GET / HTTP/1.0\r\n\r\n");
    assertEquals(plain, `HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n\r\n${pieces.join("")}`);
  });
});

Deno.test("a connection that breaks is its client's affair; a body that breaks is reported", async () => {
  const handler: Handler = (request) =>
    request.url.endsWith("/large") ? new Response(new Uint8Array(20_000_000)) : new Response(
      new ReadableStream({
        pull: () => {
          throw new Error("bug");
        },
      }),
    );
  await serving(handler, async (port, { errors }) => {
    const client = await Deno.connect({ hostname: "127.0.0.1", port });
    await client.write(encoder.encode(`GET /large ${HOST}\r\n`));
    await client.read(new Uint8Array(10));
    client.close();
    assertEquals(await exchange(port, `GET /broken ${HOST}\r\n`), "");
    assertEquals(errors.map(String), ["Error: bug"]);
  });
});

/** Moves the pool's clock past `ms` and waits until it has closed a connection. */
async function pass(ms: number, clock: { nowMs: number }, closed: readonly string[]): Promise<void> {
  clock.nowMs += ms;
  const before = closed.length;
  const deadline = performance.now() + 300_000;
  while (closed.length === before) {
    if (performance.now() > deadline) throw new Error("No connection was closed");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

Deno.test("an answer that was sent is forgotten, though its connection goes on", async () => {
  setFlagsFromString("--expose-gc");
  const collectGarbage: () => void = runInNewContext("gc");
  const answers: WeakRef<Response>[] = [];
  const answer: Handler = () => {
    const response = new Response("here");
    answers.push(new WeakRef(response));
    return response;
  };
  await serving(answer, async (port) => {
    using client = await Deno.connect({ hostname: "127.0.0.1", port });
    const buffer = new Uint8Array(1000);
    for (let request = 0; request < 20; request++) {
      await client.write(encoder.encode(`GET / ${HOST}\r\n`));
      await client.read(buffer);
    }
    await settled(3);
    collectGarbage();
    assert(answers.filter((kept) => kept.deref() !== undefined).length <= 2, "answers are kept");
  });
});

Deno.test("who does not go on is closed: with a request, between two, and with an answer", async () => {
  const clock = { nowMs: 0 };
  const answer: Handler = (request) =>
    new Response(new Uint8Array(request.url.endsWith("/large") ? 20_000_000 : 1));
  await serving(answer, async (port, { closed, errors }) => {
    for (
      const [sent, reads, limitMs] of [
        ["", false, 10_000],
        ["GET / HTTP/1.1\r\nHo", false, 10_000],
        [`GET / ${HOST}\r\nGET`, true, 10_000],
        [`GET / ${HOST}\r\n`, true, 180_000],
        [`GET /large ${HOST}\r\n`, true, 15_000],
      ] as const
    ) {
      using client = await Deno.connect({ hostname: "127.0.0.1", port });
      await client.write(encoder.encode(sent));
      if (reads) await client.read(new Uint8Array(100));
      // What it sent, and what it can be sent, must be on its way before the clock moves.
      await settled();
      clock.nowMs += limitMs - 1;
      await new Promise((resolve) => setTimeout(resolve, 600));
      assertEquals(closed, [], sent);
      await pass(1, clock, closed);
      assertEquals(closed.splice(0), ["timeout"], sent);
    }
    assertEquals(errors, []);
  }, { nowMs: () => clock.nowMs });
});

Deno.test("who comes is answered while all places are taken by clients that say nothing", async () => {
  await serving(echo, async (port, { closed }) => {
    const silent = await Promise.all(
      Array.from({ length: 30 }, () => Deno.connect({ hostname: "127.0.0.1", port })),
    );
    const response = await fetch(`http://127.0.0.1:${port}/healthz`);
    assertEquals(await response.text(), "GET /healthz ");
    assert(closed.length >= 23, `${closed.length} were closed`);
    for (const client of silent) client.close();
  });
});
