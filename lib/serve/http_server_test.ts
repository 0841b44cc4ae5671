import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { listenSteadily } from "../../tests/support/steady_ports.ts";
import { until } from "../../tests/support/until.ts";
import { createLogger, type Logger } from "../observe/log.ts";
import { ConnectionPool } from "../kernel/connection_pool.ts";
import { splitHostPort } from "../model/ip.ts";
import { HttpServer } from "./http_server.ts";

function recordingLog(): { log: Logger; messages: string[] } {
  const messages: string[] = [];
  const log = createLogger({
    format: "json",
    verbosity: 0,
    write: (line) => messages.push(JSON.parse(line).msg),
    nowMs: () => 0,
    pid: 1,
  });
  return { log, messages };
}

const handler = (): Response => new Response("here");
const COMMON = { name: "test", handler, hardFail: false, pool: new ConnectionPool(), most: 8 };

/** A port that something else has. */
function takenPort(): Deno.Listener {
  return listenSteadily();
}

Deno.test("addresses are taken apart as they are written in a configuration", { permissions: "none" }, () => {
  for (
    const [text, host, port] of [
      ["0.0.0.0:10256", "0.0.0.0", 10256],
      ["[::]:10256", "::", 10256],
      ["[fd00::1]:1", "fd00::1", 1],
      ["010.0.0.1:65535", "10.0.0.1", 65535],
    ] as const
  ) assertEquals(splitHostPort(text), [host, port]);
  for (const text of ["10.0.0.1", "localhost:1", ":1", "10.0.0.1:", "10.0.0.1:65536", "::1:80", "[::1:80"]) {
    assertThrows(() => splitHostPort(text), TypeError, `"${text}" is not IP:port`);
  }
});

Deno.test("it serves until it is stopped", async () => {
  const { log, messages } = recordingLog();
  const server = new HttpServer({ ...COMMON, address: "127.0.0.1:0", log });
  await server.start();
  const { port } = server;
  assertEquals(server.addresses, [`127.0.0.1:${port}`]);
  const response = await fetch(`http://127.0.0.1:${port}/`);
  assertEquals(await response.text(), "here");
  await server.stop();
  assertEquals([server.addresses, server.port, messages], [[], 0, ["Listening"]]);
});

Deno.test("a blank address means no server", async () => {
  const { log, messages } = recordingLog();
  const server = new HttpServer({ ...COMMON, address: "", hardFail: true, log });
  await server.start();
  await server.stop();
  assertEquals([server.addresses, messages], [[], []]);
});

Deno.test("an address that is taken is tried again until it is free, and reported once", async () => {
  const { log, messages } = recordingLog();
  const taken = takenPort();
  const { port } = taken.addr as Deno.NetAddr;
  const address = `127.0.0.1:${port}`;
  const failures: string[] = [];
  const server = new HttpServer({
    ...{ ...COMMON, address, log, retryMs: 20 },
    onListenFailure: (problem) => failures.push(problem),
  });
  await server.start();
  await new Promise((resolve) => setTimeout(resolve, 100));
  assertEquals(messages, ["Cannot listen, will try again"]);
  taken.close();
  await until(() => server.port === port && failures.length > 0);
  assertEquals(failures.map((problem) => problem.split(": ")[0]), [`cannot listen on ${address}`]);
  assertEquals(messages, ["Cannot listen, will try again", "Listening"]);
  await server.stop();
});

Deno.test("the program that has the address is named, if it says what it is", async () => {
  const { log, messages } = recordingLog();
  const holder = new HttpServer({
    ...{ ...COMMON, address: "127.0.0.1:0", log: recordingLog().log },
    handler: (request) => new Response(request.url.endsWith("/proxyMode") ? "iptables" : "here"),
  });
  await holder.start();
  const address = `127.0.0.1:${holder.port}`;
  const failures: string[] = [];
  const server = new HttpServer({
    ...{ ...COMMON, address, log, retryMs: 60_000 },
    onListenFailure: (problem) => failures.push(problem),
  });
  await server.start();
  await until(() => failures.length > 0);
  await server.stop();
  await holder.stop();
  assertEquals(messages, ["Cannot listen, will try again", "Another program has the address"]);
  assertEquals(failures.map((problem) => problem.replace(/\(.*?\)/, "")), [
    `cannot listen on ${address}: Address already in use ; another proxy answers there: mode iptables`,
  ]);
});

Deno.test("stopping ends the tries", async () => {
  const taken = takenPort();
  const { port } = taken.addr as Deno.NetAddr;
  const { log, messages } = recordingLog();
  const server = new HttpServer({ ...COMMON, address: `127.0.0.1:${port}`, log, retryMs: 5 });
  await server.start();
  await server.stop();
  taken.close();
  // Time for tries, if there were any: one of them would have the address now.
  await new Promise((resolve) => setTimeout(resolve, 50));
  Deno.listen({ hostname: "127.0.0.1", port }).close();
  assert(!messages.includes("Listening"), messages.join());
});

Deno.test("with bindAddressHardFail a taken address is an error that names it, and the program that has it", async () => {
  const { log, messages } = recordingLog();
  const holder = new HttpServer({
    ...{ ...COMMON, address: "127.0.0.1:0", log },
    handler: (request) => new Response(request.url.endsWith("/proxyMode") ? "iptables" : "here"),
  });
  await holder.start();
  const address = `127.0.0.1:${holder.port}`;
  messages.length = 0;
  const server = new HttpServer({ ...COMMON, name: "healthz", address, hardFail: true, log });
  const error = await assertRejects(() => server.start(), Error, `Cannot listen on ${address} for healthz: `);
  await holder.stop();
  assert(error.message.endsWith("; another proxy answers there: mode iptables"), error.message);
  assertEquals(messages, []);
});
