import { assertEquals, assertRejects, assertStringIncludes, assertThrows } from "@std/assert";
import { eventually } from "../../../tests/support/until.ts";
import { NotRunningError, type NotRunningReason, RunningKproxy } from "./running.ts";

/** What a program sends after each request that it reads; null: it hangs up. */
type Program = (path: string, connection: Deno.TcpConn) => string | null | Promise<string | null>;

/** Another program at an address. */
async function withProgram(program: Program, work: (address: string) => Promise<void>): Promise<void> {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const open: Deno.TcpConn[] = [];
  const served = (async () => {
    for await (const connection of listener) {
      open.push(connection);
      const buffer = new Uint8Array(2_000);
      const count = await connection.read(buffer) ?? 0;
      const path = new TextDecoder().decode(buffer.subarray(0, count)).split(" ")[1] ?? "";
      const text = await program(path, connection);
      try {
        if (text !== null) await connection.write(new TextEncoder().encode(text));
        if (text !== "") connection.close();
      } catch (error) {
        // The client has gone, as it may.
        if (!(error instanceof Deno.errors.BrokenPipe || error instanceof Deno.errors.ConnectionReset)) {
          throw error;
        }
      }
    }
  })();
  try {
    await work(`127.0.0.1:${(listener.addr as Deno.NetAddr).port}`);
  } finally {
    listener.close();
    await served;
    for (const connection of open) closeIfOpen(connection);
  }
}

function closeIfOpen(connection: Deno.TcpConn): void {
  try {
    connection.close();
  } catch (error) {
    if (!(error instanceof Deno.errors.BadResource)) throw error;
  }
}

/** What is told of who takes longer than 200 ms. */
const SILENT = "within 0.2 s";

const answer = (body: string, status = "200 OK"): string =>
  `HTTP/1.0 ${status}\r\nContent-Type: text/plain\r\n\r\n${body}`;
const document = (value: unknown): string => answer(JSON.stringify(value));

/** Programs that are no kproxy to be asked: how each answers, and what is told of it. */
const OTHERS: readonly [who: string, program: Program, reason: NotRunningReason, words: string][] = [
  [
    "kube-proxy",
    (path) => path === "/proxyMode" ? answer("ipvs") : answer("404 page not found\n", "404 Not Found"),
    "another proxy",
    "a service proxy in mode ipvs answers on",
  ],
  ["a web server", () => answer("<html>", "404 Not Found"), "another program", "status 404"],
  ["a web server with a page for everything", () => answer("<html>"), "another program", "another program"],
  [
    "other JSON",
    () => document({ kind: "Status", apiVersion: "v1" }),
    "another program",
    "another program",
  ],
  ["JSON null", () => document(null), "another program", "another program"],
  [
    "a newer kproxy",
    () => document({ kind: "Status", apiVersion: "kproxy/v2" }),
    "another version",
    "kproxy/v2",
  ],
  [
    "a document of another shape",
    () => document({ kind: "Status", apiVersion: "kproxy/v1", time: 7 }),
    "another version",
    "another shape at time",
  ],
  [
    "a kproxy that refuses",
    () => answer("403 forbidden: ask from the node itself\n", "403 Forbidden"),
    "refused",
    "does not answer: ask from the node itself",
  ],
  [
    "a server of another protocol",
    () => "SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "another program",
    "does not speak HTTP",
  ],
  ["who says nothing", () => null, "another program", "does not answer"],
  ["who is silent", () => "", "silent", SILENT],
  [
    "a head without end",
    () => "HTTP/1.0 200 OK\r\nX: ".padEnd(100_000, "y"),
    "another program",
    "does not speak HTTP",
  ],
  [
    "a document that is cut off",
    () => answer('{"kind":"Status","apiVersion":"kproxy/v1",'),
    "another program",
    "",
  ],
];

Deno.test("whatever is at the address is told by name", async () => {
  for (const [who, program, reason, words] of OTHERS) {
    await withProgram(program, async (address) => {
      // Only of one that is silent the limit is what tells.
      const limitMs = words === SILENT ? 200 : 60_000;
      const status = new RunningKproxy(address, { limitMs }).status();
      const error = await assertRejects(() => status, NotRunningError);
      assertEquals(error.reason, reason, who);
      assertStringIncludes(error.message, words, who);
      assertStringIncludes(error.message, address, who);
    });
  }
});

Deno.test("an answer without end is not read to it", async () => {
  const endless: Program = async (_path, connection) => {
    const piece = new Uint8Array(1024 * 1024).fill(32);
    try {
      await connection.write(new TextEncoder().encode("HTTP/1.0 200 OK\r\n\r\n"));
      for (;;) await connection.write(piece);
    } catch (error) {
      if (!(error instanceof Deno.errors.BrokenPipe || error instanceof Deno.errors.ConnectionReset)) {
        throw error;
      }
    }
    return null;
  };
  await withProgram(endless, async (address) => {
    await assertRejects(() => new RunningKproxy(address).status(), NotRunningError, "too long");
  });
});

Deno.test("an answer that comes in ever further pieces is given up", async () => {
  const trickling: Program = async (_path, connection) => {
    try {
      await connection.write(new TextEncoder().encode("HTTP/1.0 200 OK\r\n\r\n"));
      for (;;) {
        await connection.write(new Uint8Array([32]));
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
    } catch (error) {
      if (!(error instanceof Deno.errors.BrokenPipe || error instanceof Deno.errors.ConnectionReset)) {
        throw error;
      }
    }
    return null;
  };
  await withProgram(trickling, async (address) => {
    // All of them have five times the limit of one, which one may reach before where the machine stands still.
    let limitMs = 300;
    await eventually(async () => {
      const status = new RunningKproxy(address, { limitMs: limitMs *= 2 }).status();
      await assertRejects(() => status, NotRunningError, `within ${5 * limitMs / 1000} s`);
    }, { limitMs: 60_000 });
  });
});

Deno.test("objects that are damaged or cut off on the way are no objects", async () => {
  const header = '{"kproxySnapshot":1,"savedAt":"2026-11-22T18:00:00.000Z","node":"n","server":"s"}\n';
  for (
    const [body, words] of [
      [header, "its end is missing"],
      [`${header}{"sha256":"00"}\n`, "its checksum is wrong"],
      ["no snapshot\n", "is no snapshot of kproxy"],
    ] as const
  ) {
    await withProgram(() => answer(body), async (address) => {
      await assertRejects(() => new RunningKproxy(address).objects(), NotRunningError, words);
    });
  }
});

Deno.test("where nothing listens, or nobody can be asked, that is what is told", async () => {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const address = `127.0.0.1:${(listener.addr as Deno.NetAddr).port}`;
  listener.close();
  const error = await assertRejects(() => new RunningKproxy(address).status(), NotRunningError);
  assertEquals(error.reason, "nothing");
  assertStringIncludes(error.message, `no kproxy answers on ${address}`);
  for (
    const [configured, words] of [
      ["", "has no metrics server"],
      ["192.0.2.1:10249", "listens on 192.0.2.1:10249"],
    ] as const
  ) {
    const error = assertThrows(() => new RunningKproxy(configured), NotRunningError, words);
    assertEquals(error.reason, "no address");
  }
  assertEquals(new RunningKproxy("0.0.0.0:10249").address, "127.0.0.1:10249");
  assertEquals(new RunningKproxy("[::]:10249").address, "[::1]:10249");
});
