import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { assert, assertEquals, assertMatch, assertRejects } from "@std/assert";
import {
  API_PAIR,
  LOCAL_PAIR,
  NODE_PAIR,
  OTHER_CA,
  TEST_CA,
  type TestPair,
} from "../../../tests/support/test_certificates.ts";
import { settled, until } from "../../../tests/support/until.ts";
import { ConnectionPool, type ConnectionPoolOptions } from "../../kernel/connection_pool.ts";
import { type Handler, listen } from "../http_listener.ts";
import { tlsSocket } from "./tls_socket.ts";

const HOST = "HTTP/1.1\r\nHost: x\r\n";
const LARGE = 20_000_000;
const encoder = new TextEncoder();

/** Errors that handlers threw, connections that the pool closed, and how many never came as far as TLS. */
interface Complaints {
  readonly errors: unknown[];
  readonly closed: string[];
  refused: number;
}

const echo: Handler = async (request) => {
  const { pathname } = new URL(request.url);
  if (pathname === "/large") return new Response(new Uint8Array(LARGE).fill(65));
  return new Response(`${request.method} ${pathname} ${await request.text()}`);
};

/** Serves on loopback, as the server of the tests' authority, while `work` runs. */
async function serving(
  ca: string | null,
  work: (port: number, complaints: Complaints) => Promise<void>,
  pool: ConnectionPoolOptions = {},
): Promise<void> {
  const complaints: Complaints = { errors: [], closed: [], refused: 0 };
  const observer = {
    open: () => {},
    closed: (_server: string, reason: string) => complaints.closed.push(reason),
    failed: () => {},
  };
  const onRefused = (): void => {
    complaints.refused++;
  };
  const listener = listen({
    host: "127.0.0.1",
    port: 0,
    handler: echo,
    onError: (error) => complaints.errors.push(error),
    onAcceptFailure: (error) => complaints.errors.push(error),
    pool: new ConnectionPool({ observer, ...pool }),
    lane: { server: "test", most: 8 },
    secure: (socket) => tlsSocket(socket, { ...LOCAL_PAIR, ca, minVersion: "VersionTLS12", onRefused }),
  });
  try {
    await work(listener.port, complaints);
  } finally {
    await listener.close();
  }
}

function connectTls(port: number, pair?: TestPair): Promise<Deno.TlsConn> {
  return Deno.connectTls({ hostname: "127.0.0.1", port, caCerts: [TEST_CA], ...pair });
}

async function send(connection: Deno.Conn, text: string): Promise<void> {
  const bytes = encoder.encode(text);
  for (let at = 0; at < bytes.length;) at += await connection.write(bytes.subarray(at));
}

async function textOf(connection: Deno.Conn): Promise<string> {
  return (await new Response(connection.readable).text()).replaceAll(/Date: .*\r\n/g, "");
}

Deno.test("over TLS requests are answered in their order, large answers whole, and the client ends it", async () => {
  await serving(null, async (port, complaints) => {
    const client = await connectTls(port);
    const put = `PUT /b ${HOST}Content-Length: 2\r\n\r\nhi`;
    await send(client, `GET /a ${HOST}\r\n${put}GET /large ${HOST}Connection: close\r\n\r\n`);
    const text = await textOf(client);
    const type = "Content-Type: text/plain;charset=UTF-8\r\n";
    const begin = `HTTP/1.1 200 OK\r\n${type}Content-Length: 7\r\n\r\nGET /a ` +
      `HTTP/1.1 200 OK\r\n${type}Content-Length: 9\r\n\r\nPUT /b hi` +
      `HTTP/1.1 200 OK\r\nContent-Length: ${LARGE}\r\nConnection: close\r\n\r\n`;
    assertEquals(text.slice(0, begin.length), begin);
    assertEquals(text.length, begin.length + LARGE);
    assertEquals(complaints, { errors: [], closed: [], refused: 0 });
  });
});

Deno.test("no certificate, one of another authority, and one that another server has: nothing is answered", async () => {
  for (
    const [ca, pair, isLetIn] of [
      [TEST_CA, NODE_PAIR, true],
      [TEST_CA, undefined, false],
      [OTHER_CA, NODE_PAIR, false],
      // A server's certificate proves no client.
      [TEST_CA, API_PAIR, false],
      [null, undefined, true],
    ] as const
  ) {
    await serving(ca, async (port, complaints) => {
      const ask = async (): Promise<string> => {
        const client = await connectTls(port, pair);
        await send(client, `GET /a ${HOST}Connection: close\r\n\r\n`);
        return await textOf(client);
      };
      if (isLetIn) assertMatch(await ask(), /GET \/a $/);
      else {
        await assertRejects(ask);
        await until(() => complaints.refused === 1);
      }
      assertEquals(complaints.errors, []);
    });
  }
});

Deno.test("a client that speaks plain HTTP learns what is wrong", async () => {
  await serving(TEST_CA, async (port, complaints) => {
    using client = await Deno.connect({ hostname: "127.0.0.1", port });
    await send(client, `GET / ${HOST}\r\n`);
    const answer = "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
    assertEquals(await textOf(client), answer);
    await until(() => complaints.refused === 1);
    assertEquals(complaints.errors, []);
  });
});

Deno.test("over TLS, too, who does not go on is closed: in the handshake, with a request, and with an answer", async () => {
  const clock = { nowMs: 0 };
  await serving(null, async (port, { closed, errors }) => {
    for (
      const [open, sent, limitMs] of [
        [() => Deno.connect({ hostname: "127.0.0.1", port }), "", 10_000],
        [() => Deno.connect({ hostname: "127.0.0.1", port }), "\x16\x03\x01\x02", 10_000],
        [() => connectTls(port), "GET / HTTP/1.1\r\nHo", 10_000],
        [() => connectTls(port), `GET /large ${HOST}\r\n`, 15_000],
      ] as const
    ) {
      using client: Deno.Conn = await open();
      await send(client, sent);
      await settled();
      clock.nowMs += limitMs - 1;
      await new Promise((resolve) => setTimeout(resolve, 600));
      assertEquals(closed, [], JSON.stringify(sent));
      clock.nowMs += 1;
      await until(() => closed.length > 0);
      assertEquals(closed.splice(0), ["timeout"], JSON.stringify(sent));
    }
    assertEquals(errors, []);
  }, { nowMs: () => clock.nowMs });
});

Deno.test("what a client does not take is not kept: its answer waits, piece by piece", async () => {
  await serving(null, async (port) => {
    using client = await connectTls(port);
    await send(client, `GET /large ${HOST}\r\n`.repeat(30));
    await client.read(new Uint8Array(1));
    await settled();
    const before = Deno.memoryUsage();
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    const after = Deno.memoryUsage();
    const grown = after.external + after.heapUsed - before.external - before.heapUsed;
    assert(grown < 2 * LARGE, `${grown} bytes more`);
  });
});

Deno.test("garbage ends its connection, and nothing else", async () => {
  await serving(TEST_CA, async (port, complaints) => {
    const garbage = [
      "\x16",
      "\x16\x03\x01\xff\xff" + "x".repeat(70_000),
      "\x00".repeat(100),
      "\x80\x2e\x01\x03\x01",
    ];
    for (const sent of garbage) {
      const client = await Deno.connect({ hostname: "127.0.0.1", port });
      await client.write(Uint8Array.from(sent, (letter) => letter.charCodeAt(0))).catch(() => 0);
      client.close();
    }
    await until(() => complaints.refused === garbage.length);
    using client = await connectTls(port, NODE_PAIR);
    await send(client, `GET /a ${HOST}Connection: close\r\n\r\n`);
    assertMatch(await textOf(client), /GET \/a $/);
    assertEquals(complaints.errors, []);
  });
});

Deno.test("who is refused again and again leaves nothing behind", async () => {
  setFlagsFromString("--expose-gc");
  const collectGarbage: () => void = runInNewContext("gc");
  const kept = (): number => {
    collectGarbage();
    const { heapUsed, external } = Deno.memoryUsage();
    return heapUsed + external;
  };
  await serving(TEST_CA, async (port, complaints) => {
    const refused = async (times: number): Promise<void> => {
      const wanted = complaints.refused + times;
      for (let time = 0; time < times; time++) {
        await connectTls(port).then(async (client) => {
          await send(client, `GET / ${HOST}\r\n`);
          await textOf(client);
        }).catch(() => undefined);
      }
      await until(() => complaints.refused >= wanted);
      // So long the runtime keeps each of them.
      await new Promise((resolve) => setTimeout(resolve, 6_000));
    };
    await refused(50);
    const before = kept();
    await refused(400);
    const grown = kept() - before;
    assert(grown < 3_000_000, `${grown} bytes more`);
  });
});
