import { assert, assertEquals, assertRejects } from "@std/assert";
import { FakeTime } from "@std/testing/time";
import { until } from "../../../../tests/support/until.ts";
import { SharedPortals } from "./shared_portals.ts";

const HOST = "127.0.0.1";
const { signal } = new AbortController();
const PLACE = { family: "IPv4", protocol: "TCP", ip: HOST, requested: null, range: null } as const;

/** Says hello to each client. */
function helloServer(): Disposable & { readonly endpoint: { ip: string; port: number } } {
  const listener = Deno.listen({ hostname: HOST, port: 0 });
  const done = (async () => {
    for await (const socket of listener) {
      await socket.write(new TextEncoder().encode("hello"));
      socket.close();
    }
  })();
  return {
    endpoint: { ip: HOST, port: listener.addr.port },
    [Symbol.dispose]: () => {
      listener.close();
      void done;
    },
  };
}

async function ask(port: number): Promise<string> {
  const socket = await Deno.connect({ hostname: HOST, port });
  return await new Response(socket.readable).text();
}

/** Keeps this thread busy until the file is there; false if it never is. */
function holdThreadUntil(path: string): boolean {
  for (const startMs = performance.now(); performance.now() - startMs < 120_000;) {
    try {
      Deno.statSync(path);
      return true;
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
    }
  }
  return false;
}

Deno.test("a thread of its own forwards: what keeps this one busy keeps no client waiting", async () => {
  const problems: string[] = [];
  const shared = new SharedPortals();
  shared.begun(250, (problem, message) => void problems.push(`${problem}: ${message}`));
  using server = helloServer();
  const folder = await Deno.makeTempDir({ prefix: "kproxy-relay-" });
  try {
    const portal = await shared.open(PLACE);
    await portal.update([server.endpoint], 0);
    assertEquals(await ask(portal.port), "hello");
    await until(() => shared.counts.TCP.opened === 1 && shared.counts.TCP.open === 0);
    assertEquals(shared.counts.TCP.bytes.out, 5);
    // A client in a process of its own, because this one does nothing meanwhile, nor does its server: it dials until it is connected.
    const client = new Deno.Command(Deno.execPath(), {
      args: [
        "eval",
        `for (let i = 0; i < 20; i++) (await Deno.connect({ hostname: "${HOST}", port: ${portal.port} })).close();
        Deno.writeTextFileSync("${folder}/done", "");`,
      ],
    }).spawn();
    assert(holdThreadUntil(`${folder}/done`), "clients waited for this thread");
    assert((await client.status).success);
    await until(() => shared.counts.TCP.opened === 21);
    await portal.close();
    await portal.close();
    await assertRejects(() => ask(portal.port), Deno.errors.ConnectionRefused);
    assertEquals(problems, []);
  } finally {
    await shared.end(signal);
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("what a thread cannot open is reported, and it ends once no session is left", async () => {
  const shared = new SharedPortals();
  try {
    const first = await shared.open(PLACE);
    const range = { first: first.port, last: first.port };
    await assertRejects(() => shared.open({ ...PLACE, range }), Error, "can be had");
    const listener = Deno.listen({ hostname: HOST, port: 0 });
    await first.update([{ ip: HOST, port: listener.addr.port }], 0);
    const client = await Deno.connect({ hostname: HOST, port: first.port });
    const server = await listener.accept();
    let isDrained = false;
    const drained = shared.end(signal).then(() => isDrained = true);
    await client.write(new Uint8Array([1]));
    assertEquals(await server.read(new Uint8Array(1)), 1);
    assertEquals(isDrained, false);
    client.close();
    server.close();
    await drained;
    listener.close();
  } finally {
    await shared.end(signal);
  }
});

Deno.test("portals of a former proxy server serve until the next one's rules are in force, and some seconds more", async () => {
  using time = new FakeTime();
  let closed = 0;
  const portal = { port: 1, update: () => {}, close: () => Promise.resolve(void closed++) };
  const shared = new SharedPortals(() => Promise.resolve(portal));
  (await shared.open(PLACE))
    .leave();
  shared.left();
  // An API server may be away for that long.
  await time.tickAsync(3_600_000);
  assertEquals(closed, 0);
  shared.inForce();
  await time.tickAsync(4_900);
  // A proxy server that ends as fast leaves the same rules.
  shared.left();
  await time.tickAsync(3_600_000);
  assertEquals(closed, 0);
  shared.inForce();
  await time.tickAsync(5_000);
  assertEquals(closed, 1);
  await shared.end(signal);
});
