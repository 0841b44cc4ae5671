import { assertEquals } from "@std/assert";
import { addressHolder } from "./http_get.ts";

type Conversation = (request: string, connection: Deno.TcpConn) => Promise<void> | void;

/** Asks a server that takes its part in the conversation in this way. */
async function holderThat(converse: Conversation, host = "127.0.0.1", limitMs = 60_000): Promise<string> {
  const listener = Deno.listen({ hostname: host, port: 0 });
  const open: Deno.TcpConn[] = [];
  const served = (async () => {
    for await (const connection of listener) {
      open.push(connection);
      const bytes = new Uint8Array(1_000);
      const length = await connection.read(bytes) ?? 0;
      await converse(new TextDecoder().decode(bytes.subarray(0, length)), connection);
    }
  })();
  const { port } = listener.addr as Deno.NetAddr;
  const told = await addressHolder({ host, port, signal: new AbortController().signal, limitMs });
  listener.close();
  await served;
  for (const connection of open) {
    try {
      connection.close();
    } catch (error) {
      if (!(error instanceof Deno.errors.BadResource)) throw error;
    }
  }
  return told;
}

/** Answers by path. */
function pages(answers: Readonly<Record<string, string>>, head = "", status = "200 OK"): Conversation {
  return async (request, connection) => {
    const path = request.split(" ")[1] ?? "";
    const body = answers[path];
    const line = body === undefined ? "404 Not Found" : status;
    await connection.write(
      new TextEncoder().encode(`HTTP/1.1 ${line}\r\n${head}\r\n${body ?? "404 page not found\n"}`),
    );
    connection.close();
  };
}

const HEALTH =
  '{"lastUpdated": "2026-11-22 08:00:00 +0000 UTC","currentTime": "2026-11-22 08:00:01 +0000 UTC"}';

Deno.test("a proxy is known by its mode or its health", async () => {
  assertEquals(
    await holderThat(pages({ "/proxyMode": "iptables" })),
    "another proxy answers there: mode iptables",
  );
  assertEquals(
    await holderThat(pages({ "/proxyMode": "ipvs" }), "0.0.0.0"),
    "another proxy answers there: mode ipvs",
  );
  assertEquals(await holderThat(pages({ "/healthz": HEALTH })), "another proxy answers there");
  const ill = pages({ "/healthz": HEALTH }, "Content-Type: application/json\r\n", "503 Service Unavailable");
  assertEquals(await holderThat(ill), "another proxy answers there");
});

Deno.test("another server is reported as one, by the name it gives itself", async () => {
  assertEquals(await holderThat(pages({ "/healthz": "ok" })), "another HTTP server answers there");
  assertEquals(
    await holderThat(
      pages({ "/proxyMode": "a page about proxies" }, `server: nginx/1.25 ${"x".repeat(500)}\r\n`),
    ),
    `another HTTP server answers there: ${`nginx/1.25 ${"x".repeat(500)}`.slice(0, 60)}`,
  );
  const forged = pages({}, "Server: a\u001b[31m\u0007b\r\n");
  assertEquals(await holderThat(forged), "another HTTP server answers there: a");
});

Deno.test("one that is silent, slow, endless or speaks otherwise is not named, after a short time", async () => {
  const silent: Conversation = () => {};
  const drop: Conversation = (_, connection) => connection.close();
  const ssh: Conversation = async (_, connection) => {
    await connection.write(new TextEncoder().encode("SSH-2.0-OpenSSH_9.2p1\r\n"));
    connection.close();
  };
  const endless: Conversation = async (_, connection) => {
    await connection.write(new TextEncoder().encode(`HTTP/1.1 200 OK\r\nX: ${"y".repeat(100_000)}`));
  };
  assertEquals(await holderThat(silent, "127.0.0.1", 50), "");
  for (const conversation of [drop, ssh, endless]) assertEquals(await holderThat(conversation), "");
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const { port } = listener.addr as Deno.NetAddr;
  listener.close();
  assertEquals(await addressHolder({ host: "127.0.0.1", port, signal: AbortSignal.abort() }), "");
  assertEquals(await addressHolder({ host: "127.0.0.1", port, signal: new AbortController().signal }), "");
});
