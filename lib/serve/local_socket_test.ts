import { assertEquals, assertStringIncludes } from "@std/assert";
import { recordingLog } from "../../tests/support/recording_log.ts";
import { serving } from "../../tests/support/status_server.ts";
import { eventually } from "../../tests/support/until.ts";
import { RunningKproxy } from "../inspect/running/running.ts";
import { openOwnSocket } from "../kernel/own_socket.ts";
import { httpGet, NoConnectionError, StrangeAnswerError, textOf } from "./http_get.ts";
import { textAnswer } from "./http_answer.ts";
import { ConnectionPool } from "../kernel/connection_pool.ts";
import { LocalSocket } from "./local_socket.ts";

/** Runs `work` beside a server that looks after its socket every 50 ms; yields what it has logged. */
async function withServer(
  prepare: (folder: string) => void,
  work: (path: string) => Promise<void>,
): Promise<readonly string[]> {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-socket-" });
  const { log, lines } = recordingLog();
  try {
    prepare(folder);
    const path = `${folder}/run/kproxy.sock`;
    const handler = () => textAnswer("first");
    const server = new LocalSocket({ path, handler, log, pool: new ConnectionPool(), lookMs: 50 });
    server.start();
    try {
      await work(path);
    } finally {
      await server.stop();
    }
    return lines;
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** The answer; `none` if there is none. */
async function ask(socket: string): Promise<string> {
  try {
    return await httpGet({ socket, path: "/", limitMs: 5_000, wholeMs: 5_000, maxBytes: 1_000 }, textOf);
  } catch (error) {
    if (!(error instanceof NoConnectionError || error instanceof StrangeAnswerError)) throw error;
    return "none";
  }
}

Deno.test("where there cannot be a socket that is said once, and once there can it is there", async () => {
  const lines = await withServer((folder) => {
    Deno.mkdirSync(`${folder}/run`);
    Deno.writeTextFileSync(`${folder}/run/of-another`, "");
    Deno.chmodSync(`${folder}/run`, 0o777);
  }, async (path) => {
    await new Promise((resolve) => setTimeout(resolve, 300));
    Deno.chmodSync(path.replace("/kproxy.sock", ""), 0o700);
    await eventually(async () => assertEquals(await ask(path), "first"));
  });
  assertEquals(lines.length, 2, lines.join("\n"));
  assertStringIncludes(lines[0] ?? "", "is open to others (mode 777)");
  assertStringIncludes(lines[1] ?? "", 'I "Listening" server="socket"');
});

Deno.test("a socket that was removed comes back; one that another kproxy has taken comes back once that one has ended", async () => {
  await withServer(() => {}, async (path) => {
    assertEquals(await ask(path), "first");
    await Deno.remove(path);
    await eventually(async () => assertEquals(await ask(path), "first"));
    const folder = path.replace("/kproxy.sock", "");
    await Deno.remove(folder, { recursive: true });
    await Deno.writeTextFile(folder, "no folder");
    await new Promise((resolve) => setTimeout(resolve, 200));
    await Deno.remove(folder);
    await eventually(async () => assertEquals(await ask(path), "first"));
    const other = openOwnSocket(path);
    const taking = (async () => {
      for await (const connection of other.listener) connection.close();
    })();
    await new Promise((resolve) => setTimeout(resolve, 300));
    assertEquals(other.isInPlace(), true);
    other.listener.close();
    await taking;
    await eventually(async () => assertEquals(await ask(path), "first"));
  });
});

Deno.test("what a command has done to the node stands in the log, cut where it is long", async () => {
  const { log, lines } = recordingLog();
  await serving(async ({ socket }) => {
    await new RunningKproxy(socket).recordAudit({
      action: "repair",
      uid: "0",
      what: `mode="nftables" ${"x".repeat(5_000)}`,
    });
    await new RunningKproxy(socket).recordAudit({ action: "cleanup", uid: "0", what: "2 tables\nE fake" });
  }, { log });
  const audited = lines.filter((line) => line.startsWith('I "Audit"'));
  assertEquals(audited.length, 2, lines.join("\n"));
  assertStringIncludes(audited[0] ?? "", 'I "Audit" action="repair" uid="0" what="mode=\\"nftables\\" xxx');
  assertEquals((audited[0] ?? "").length < 1_200, true);
  assertStringIncludes(audited[1] ?? "", 'what="2 tables\\nE fake"');
});
