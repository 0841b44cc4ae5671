import { testService } from "../../../tests/support/model_objects.ts";
import { startWork } from "../../../tests/support/spent.ts";
import { serving } from "../../../tests/support/status_server.ts";
import { eventually } from "../../../tests/support/until.ts";
import { defaultConfig } from "../../config/defaults.ts";
import type { KubeProxyConfiguration } from "../../config/types.ts";
import { openOwnSocket } from "../../kernel/own_socket.ts";
import {
  askRunning,
  NotRunningError,
  type NotRunningReason,
  RunningKproxy,
  runningSettings,
} from "./running.ts";
import { assert, assertEquals, assertRejects, assertStringIncludes, assertThrows } from "@std/assert";

/** What a program sends after each request; null: it hangs up. */
type Program = (path: string, connection: Deno.UnixConn) => string | null | Promise<string | null>;

/** Runs `work` with another program on a socket of this user. */
async function withProgram(program: Program, work: (address: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-socket-" });
  const { listener } = openOwnSocket(`${folder}/kproxy.sock`);
  const open: Deno.UnixConn[] = [];
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
        // The client may have closed the connection.
        if (!(error instanceof Deno.errors.BrokenPipe || error instanceof Deno.errors.ConnectionReset)) {
          throw error;
        }
      }
    }
  })();
  try {
    await work(`${folder}/kproxy.sock`);
  } finally {
    listener.close();
    await served;
    for (const connection of open) closeIfOpen(connection);
    await Deno.remove(folder, { recursive: true });
  }
}

function closeIfOpen(connection: Deno.UnixConn): void {
  try {
    connection.close();
  } catch (error) {
    if (!(error instanceof Deno.errors.BadResource)) throw error;
  }
}

/** Message about a program that takes longer than 200 ms. */
const SILENT = "within 0.2 s";

const answer = (body: string, status = "200 OK"): string =>
  `HTTP/1.0 ${status}\r\nContent-Type: text/plain\r\n\r\n${body}`;
const document = (value: unknown): string => answer(JSON.stringify(value));

/** Programs that are no usable kproxy: what each answers, and what is reported of it. */
const OTHERS: readonly [who: string, program: Program, reason: NotRunningReason, words: string][] = [
  ["a web server", () => answer("<html>", "403 Forbidden"), "another program", "status 403"],
  [
    "a kproxy that does not tell",
    () => answer("404 page not found\n", "404 Not Found"),
    "not told",
    "kproxy.statusApi: false",
  ],
  [
    "a document of 200,000 levels",
    () =>
      answer(`{"kind":"Status","apiVersion":"kproxy/v1","x":${"[".repeat(200_000)}${"]".repeat(200_000)}}`),
    "another version",
    "nested more than 100 deep",
  ],
  [
    // A parser that restarts at each quote takes a minute.
    "a text that does not end",
    () => answer(`{"kind":"Status","apiVersion":"kproxy/v1","x":${'\\"'.repeat(20_000)}`),
    "another program",
    "another program",
  ],
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

Deno.test("whatever is at the address is reported by name", async () => {
  for (const [who, program, reason, words] of OTHERS) {
    await withProgram(program, async (address) => {
      // Only a silent program is detected by the limit.
      const limitMs = words === SILENT ? 200 : 60_000;
      const spentMs = startWork();
      const status = new RunningKproxy(address, { limitMs }).status();
      const error = await assertRejects(() => status, NotRunningError);
      assert(spentMs() < 2_000, `${who}: ${spentMs()} ms`);
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
    // Their total limit is five times that of one piece, which a stalled machine may reach first.
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

Deno.test("where nothing listens, or kproxy cannot be asked, that is what is reported", async () => {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-socket-" });
  try {
    const path = `${folder}/kproxy.sock`;
    const asked = (): Promise<unknown> => new RunningKproxy(path).status();
    const missing = await assertRejects(asked, NotRunningError);
    assertEquals([missing.reason, missing.message], [
      "nothing",
      `no kproxy runs here, or one of an older release: ${path} is not there`,
    ]);
    openOwnSocket(path).listener.close();
    const ended = await assertRejects(asked, NotRunningError);
    assertEquals(ended.reason, "nothing");
    assertStringIncludes(ended.message, `no kproxy answers on ${path}: Connection refused`);
    Deno.chmodSync(folder, 0o777);
    const unsafe = await assertRejects(asked, NotRunningError);
    assertEquals([unsafe.reason, unsafe.message], [
      "unsafe",
      `kproxy is not asked on ${path}: others may write in ${folder}`,
    ]);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
  const error = assertThrows(() => new RunningKproxy(""), NotRunningError, "has no socket");
  assertEquals(error.reason, "no address");
});

function at(socket: string): KubeProxyConfiguration {
  const config = defaultConfig();
  return { ...config, kproxy: { ...config.kproxy, socket } };
}

Deno.test("a running kproxy tells its objects, and those that it refuses as they are now", async () => {
  const refusals = [{ where: "/m/web.yaml:7 (document 1)", object: "Service shop/web", message: "spec: no" }];
  await serving(async ({ socket }) => {
    const answer = await askRunning(at(socket), {}, () => {});
    if (typeof answer === "string") throw new Error(answer);
    assertEquals([answer.mode, answer.objects.length, answer.rejected], ["nftables", 1, refusals]);
  }, { objects: [testService()], refusals });
});

Deno.test("a kproxy that cannot be asked is reported, and what answers instead", async () => {
  const reports: string[] = [];
  const ask = async (socket: string): Promise<string> => {
    const answer = await askRunning(
      at(socket),
      {},
      (one) => reports.push(one),
    );
    return typeof answer === "string" ? answer : "answers";
  };
  assertStringIncludes(await ask("/run/nowhere/kproxy.sock"), "/run/nowhere/kproxy.sock is not there");
  assertStringIncludes(await ask(""), "has no socket");
  assertEquals(reports, []);
  await serving(async ({ socket }) => {
    assertStringIncludes(await ask(socket), socket);
  }, { statusApi: false });
  assertEquals(reports.length, 1);
  assertStringIncludes(reports[0] ?? "", "objects are not taken from it");
});

Deno.test("a running kproxy tells its configuration, with the mode that is in use and its Node's name", async () => {
  await serving(async ({ socket }) => {
    const found = await runningSettings(at(socket));
    assertEquals([
      found?.where,
      found?.isTrusted,
      found?.master,
      found?.config.mode,
      found?.config.clusterCIDR,
      found?.nodeName,
    ], [
      `kproxy on ${socket}`,
      true,
      "https://10.0.0.1:6443",
      "nftables",
      "10.244.0.0/16",
      "node-7",
    ]);
  }, { mode: "nftables", config: { mode: "auto", clusterCIDR: "10.244.0.0/16" }, node: "node-7" });
});

Deno.test("where none runs, or none that tells, there are no settings", async () => {
  assertEquals(await runningSettings(at("")), null);
  assertEquals(await runningSettings(at("/run/nowhere/kproxy.sock")), null);
  await serving(async ({ socket }) => {
    assertEquals(await runningSettings(at(socket)), null);
  }, { statusApi: false });
});
