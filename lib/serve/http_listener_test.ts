import { assert, assertEquals, assertThrows } from "@std/assert";
import { ConnectionPool } from "../kernel/connection_pool.ts";
import { joinHostPort } from "../model/ip.ts";
import {
  type Handler,
  listen,
  type Listener,
  type Peer,
  serveSocket,
  type Serving,
} from "./http_listener.ts";

function peerText({ family, address, isLoopback }: Peer): Response {
  return new Response(`${family} ${address} ${isLoopback}`);
}

/** Options for a listener; only the handler matters here. */
function serving(handler: Handler, more: Partial<Serving> = {}): Serving {
  const ignore = (): void => {};
  const lane = { server: "test", most: 8 };
  return { handler, onError: ignore, onAcceptFailure: ignore, pool: new ConnectionPool(), lane, ...more };
}

function open(host: string, port = 0, more: { ipv4Only?: boolean } = {}): Listener {
  return listen({ host, port, ...serving((_request, peer) => peerText(peer)), ...more });
}

async function ask(url: string): Promise<string> {
  const response = await fetch(url);
  return await response.text();
}

/** True if something accepts connections there. */
async function isOpen(hostname: string, port: number): Promise<boolean> {
  try {
    (await Deno.connect({ hostname, port })).close();
    return true;
  } catch (error) {
    if (error instanceof Deno.errors.ConnectionRefused) return false;
    throw error;
  }
}

Deno.test("a wildcard of either family answers both and tells them apart", async () => {
  for (const host of ["0.0.0.0", "::"]) {
    const listener = open(host);
    try {
      assertEquals(listener.addresses, [`[::]:${listener.port}`]);
      assertEquals(await ask(`http://127.0.0.1:${listener.port}/`), "IPv4 127.0.0.1 true");
      assertEquals(await ask(`http://[::1]:${listener.port}/`), "IPv6 ::1 true");
    } finally {
      await listener.close();
    }
  }
});

Deno.test("an address is listened on alone", async () => {
  const listener = open("127.0.0.1");
  try {
    assertEquals(listener.addresses, [`127.0.0.1:${listener.port}`]);
    assertEquals(await ask(`http://127.0.0.1:${listener.port}/`), "IPv4 127.0.0.1 true");
    assertEquals(await isOpen("127.0.0.2", listener.port), false);
    assertEquals(await isOpen("::1", listener.port), false);
  } finally {
    await listener.close();
  }
});

Deno.test("a wildcard can be of IPv4 alone", async () => {
  const listener = open("0.0.0.0", 0, { ipv4Only: true });
  try {
    assertEquals(listener.addresses, [`0.0.0.0:${listener.port}`]);
    assertEquals(await isOpen("127.0.0.1", listener.port), true);
    assertEquals(await isOpen("::1", listener.port), false);
  } finally {
    await listener.close();
  }
});

Deno.test("a taken port is an error, whichever address has it", async () => {
  const first = open("127.0.0.1");
  try {
    for (const host of ["127.0.0.1", "0.0.0.0", "::"]) {
      assertThrows(() => open(host, first.port), Deno.errors.AddrInUse);
    }
  } finally {
    await first.close();
  }
});

Deno.test("without IPv6 in the kernel a wildcard is IPv4's", async () => {
  const bound: string[] = [];
  const bind: typeof serveSocket = (hostname, port, served): Listener => {
    bound.push(hostname);
    if (hostname === "::") throw new Error("Address family not supported by protocol (os error 97)");
    return serveSocket(hostname, port, served);
  };
  const listener = listen({ host: "::", port: 0, ...serving(() => new Response()), bind });
  try {
    assertEquals(bound, ["::", "0.0.0.0"]);
    assertEquals(listener.addresses, [`0.0.0.0:${listener.port}`]);
    assertEquals(await isOpen("127.0.0.1", listener.port), true);
  } finally {
    await listener.close();
  }
});

Deno.test("where the kernel keeps the families apart, a wildcard is two sockets that close together", async () => {
  const closed: string[] = [];
  const bind = (hostname: string, port: number): Listener => ({
    port: port || 4711,
    addresses: [joinHostPort(hostname, port || 4711)],
    finished: Promise.resolve(),
    close: () => {
      closed.push(`${hostname} ${port}`);
      return Promise.resolve();
    },
  });
  const listener = listen({ host: "0.0.0.0", port: 0, ...serving(() => new Response()), bind });
  assertEquals(listener.addresses, ["[::]:4711", "0.0.0.0:4711"]);
  await listener.close();
  assertEquals(closed, [":: 0", "0.0.0.0 4711"]);
});

Deno.test("if the second socket fails for another reason, the first is closed and the reason reported", () => {
  const closed: string[] = [];
  const bind = (hostname: string): Listener => {
    if (hostname === "0.0.0.0") throw new Error("no");
    return {
      port: 1,
      addresses: ["[::]:1"],
      finished: Promise.resolve(),
      close: () => {
        closed.push(hostname);
        return Promise.resolve();
      },
    };
  };
  assertThrows(
    () => listen({ host: "::", port: 1, ...serving(() => new Response()), bind }),
    Error,
    "no",
  );
  assertEquals(closed, ["::"]);
});

Deno.test("what is no IP address is refused", () => {
  assertThrows(() => open("localhost"), TypeError, 'Cannot listen on "localhost": not an IP address');
});

Deno.test("a handler that throws is reported and answers 500", async () => {
  const errors: unknown[] = [];
  const handler: Handler = () => {
    throw new Error("bug");
  };
  const listener = listen({
    host: "127.0.0.1",
    port: 0,
    ...serving(handler, { onError: (error) => errors.push(error) }),
  });
  try {
    const response = await fetch(`http://127.0.0.1:${listener.port}/`);
    assertEquals([response.status, await response.text()], [500, "500 internal error\n"]);
    assert(errors[0] instanceof Error);
    assertEquals(errors[0].message, "bug");
  } finally {
    await listener.close();
  }
});

Deno.test("clients that reset their connections before these are accepted hold up no other client", async () => {
  const failures: unknown[] = [];
  const listener = listen({
    host: "127.0.0.1",
    port: 0,
    ...serving(() => new Response("here"), { onAcceptFailure: (error) => failures.push(error) }),
  });
  try {
    // Closing without any time to linger is a reset, which the runtime's own sockets cannot ask for.
    const text = "use Socket; my $to = sockaddr_in($ARGV[0], inet_aton('127.0.0.1'));" +
      "for (1..100) { socket(my $client, PF_INET, SOCK_STREAM, 0); connect($client, $to) or exit 1;" +
      "setsockopt($client, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0)); close($client); }";
    const clients = () => new Deno.Command("perl", { args: ["-e", text, `${listener.port}`] }).outputSync();
    // While this runs nothing is accepted.
    assertEquals(clients().code, 0);
    const startMs = performance.now();
    assertEquals(await ask(`http://127.0.0.1:${listener.port}/`), "here");
    // A pause after each of them would be a minute and more.
    assert(performance.now() - startMs < 30_000, "it took long");
    assertEquals(failures, []);
  } finally {
    await listener.close();
  }
});

Deno.test("closing frees the port at once, whatever clients do, and may be done twice", async () => {
  const encoder = new TextEncoder();
  for (const sent of ["", "GET / HTTP/1.1\r\nHo", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"]) {
    const handler: Handler = () => new Promise<Response>(() => {});
    const listener = listen({ host: "127.0.0.1", port: 0, ...serving(handler) });
    const client = await Deno.connect({ hostname: "127.0.0.1", port: listener.port });
    try {
      await client.write(encoder.encode(sent));
      const startMs = performance.now();
      await listener.close();
      await listener.close();
      assert(performance.now() - startMs < 60_000);
      assertEquals(await isOpen("127.0.0.1", listener.port), false);
      const again = open("127.0.0.1", listener.port);
      await again.close();
    } finally {
      client.close();
    }
  }
});

Deno.test("who sends thousands of requests at once waits as others do, not they for them", async () => {
  const asked = { flood: 0, atOther: 0 };
  const handler: Handler = (request) => {
    if (request.url.endsWith("/flood")) asked.flood++;
    else asked.atOther = asked.flood;
    return new Response("ok");
  };
  const requests = 5_000;
  const listener = listen({ host: "127.0.0.1", port: 0, ...serving(handler) });
  const address = { hostname: "127.0.0.1", port: listener.port };
  const other = await Deno.connect(address);
  const flood = await Deno.connect(address);
  try {
    const sent = sendAll(flood, "GET /flood HTTP/1.1\r\nHost: x\r\n\r\n".repeat(requests));
    const answered = drain(flood);
    while (asked.flood === 0) await new Promise((resolve) => setTimeout(resolve));
    await sendAll(other, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    await other.read(new Uint8Array(1_000));
    assert(asked.atOther < requests / 50, `answered after ${asked.atOther} of another client's requests`);
    await sent;
    while (asked.flood < requests) await new Promise((resolve) => setTimeout(resolve));
    await listener.close();
    assert(await answered > requests * 10);
  } finally {
    other.close();
    flood.close();
    await listener.close();
  }
});

async function sendAll(connection: Deno.Conn, text: string): Promise<void> {
  const bytes = new TextEncoder().encode(text);
  for (let at = 0; at < bytes.length;) at += await connection.write(bytes.subarray(at));
}

/** Reads to the end, of whichever side; the number of bytes. */
async function drain(connection: Deno.Conn): Promise<number> {
  const buffer = new Uint8Array(64 * 1024);
  let total = 0;
  try {
    for (let count = await connection.read(buffer); count !== null; count = await connection.read(buffer)) {
      total += count;
    }
  } catch (error) {
    if (!(error instanceof Deno.errors.BadResource)) throw error;
  }
  return total;
}
