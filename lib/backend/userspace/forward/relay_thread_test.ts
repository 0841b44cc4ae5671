import { assert, assertEquals, assertRejects } from "@std/assert";
import { until } from "../../../../tests/support/until.ts";
import { RelayThread } from "./relay_thread.ts";

const HOST = "127.0.0.1";
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
  const thread = new RelayThread((problem, message) => void problems.push(`${problem}: ${message}`));
  using server = helloServer();
  const folder = await Deno.makeTempDir({ prefix: "kproxy-relay-" });
  try {
    const portal = await thread.open(PLACE, 250);
    portal.update([server.endpoint], 0);
    assertEquals(await ask(portal.port), "hello");
    await until(() => thread.counts.TCP.opened === 1 && thread.counts.TCP.open === 0);
    assertEquals(thread.counts.TCP.bytes.out, 5);
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
    await until(() => thread.counts.TCP.opened === 21);
    await portal.close();
    await portal.close();
    await assertRejects(() => ask(portal.port), Deno.errors.ConnectionRefused);
    assertEquals(problems, []);
  } finally {
    thread.end();
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("what a thread cannot open is reported, and drained means that no session is left", async () => {
  const thread = new RelayThread(() => {});
  try {
    const first = await thread.open(PLACE, 250);
    const range = { first: first.port, last: first.port };
    await assertRejects(() => thread.open({ ...PLACE, range }, 250), Error, "can be had");
    await thread.drained();
    const listener = Deno.listen({ hostname: HOST, port: 0 });
    first.update([{ ip: HOST, port: listener.addr.port }], 0);
    const client = await Deno.connect({ hostname: HOST, port: first.port });
    const server = await listener.accept();
    let isDrained = false;
    const drained = thread.drained().then(() => isDrained = true);
    await client.write(new Uint8Array([1]));
    assertEquals(await server.read(new Uint8Array(1)), 1);
    assertEquals(isDrained, false);
    client.close();
    server.close();
    await drained;
    listener.close();
  } finally {
    thread.end();
  }
});
