import { assertEquals } from "@std/assert";
import { ask, KeptConnection, REQUEST } from "./lab_client.ts";
import type { ProbeResult } from "./lab_probe.ts";
import { LabServers } from "./lab_servers.ts";
import { Socket } from "./lab_sockets.ts";

/** An address that no other test serves at. */
const AT = { ip: "127.83.0.1", port: 8080 };
const encoder = new TextEncoder();
const decoder = new TextDecoder();

function wait(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Calls `use` while there is a server. */
async function withServer(port: number, use: (to: typeof AT) => Promise<void>): Promise<void> {
  const servers = new LabServers("pod");
  servers.serve({ protocol: "tcp", ip: AT.ip, port });
  try {
    await use({ ...AT, port });
  } finally {
    await servers.end();
    await servers.connectionsClosed();
  }
}

function serverOf(result: ProbeResult): string {
  return result.kind === "answer" ? result.answer.server : JSON.stringify(result);
}

Deno.test("a server waits for as long as its client: six seconds on a busy machine are no cut connection", () =>
  withServer(8080, async (to) => {
    using socket = Socket.of("tcp", to.ip);
    await socket.connect(to, 60_000);
    await wait(6_000);
    socket.send(encoder.encode(REQUEST));
    assertEquals(decoder.decode((await socket.receive(60_000))?.bytes).split("\r\n")[0], "HTTP/1.0 200 OK");
    assertEquals((await socket.receive(60_000))?.bytes.length, 0, "it closes after its answer");
  }));

Deno.test("a connection that is kept carries several requests, until it is dropped", () =>
  withServer(8081, async (to) => {
    using kept = new KeptConnection();
    const ports: number[] = [];
    for (let i = 0; i < 3; i++) {
      const result = await kept.ask({ to, timeoutMs: 60_000 });
      assertEquals(serverOf(result), "pod");
      if (result.kind === "answer") ports.push(result.from.port);
    }
    assertEquals(new Set(ports).size, 1);
    kept[Symbol.dispose]();
    const next = await kept.ask({ to, timeoutMs: 60_000 });
    assertEquals(next.kind === "answer" && next.from.port !== ports[0], true);
  }));

Deno.test("a request's limit is told by its clock: time without a CPU is nobody's fault", async () => {
  const to = { ...AT, port: 8082 };
  using slow = Deno.listen({ hostname: to.ip, port: to.port });
  const gaveUp = Promise.withResolvers<void>();
  const served = (async () => {
    for (const pause of [() => gaveUp.promise, () => wait(500)]) {
      using connection = await slow.accept();
      await connection.read(new Uint8Array(100));
      await pause();
      // The one that is not patient has gone.
      await connection.write(encoder.encode('{"server":"slow"}')).catch(String);
    }
  })();
  const request = { protocol: "tcp", to, timeoutMs: 100 } as const;
  assertEquals((await ask(request)).kind, "silence");
  gaveUp.resolve();
  assertEquals(serverOf(await ask(request, () => 0)), "slow");
  await served;
});
