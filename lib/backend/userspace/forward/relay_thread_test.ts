import { assert, assertEquals, assertRejects } from "@std/assert";
import { until } from "../../../../tests/support/until.ts";
import { RelayThread } from "./relay_thread.ts";

const HOST = "127.0.0.1";
const PLACE = { family: "IPv4", protocol: "TCP", ip: HOST, wished: null, range: null } as const;

/** Says hello to whoever comes. */
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

/** Keeps this thread busy. */
function holdThread(ms: number): void {
  const endMs = performance.now() + ms;
  while (performance.now() < endMs);
}

Deno.test("a thread of its own forwards: what keeps this one busy keeps no client waiting", async () => {
  const problems: string[] = [];
  const thread = new RelayThread((problem, message) => void problems.push(`${problem}: ${message}`));
  using server = helloServer();
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
        `const ms = performance.now();
        for (let i = 0; i < 20; i++) (await Deno.connect({ hostname: "${HOST}", port: ${portal.port} })).close();
        console.log(performance.now() - ms);`,
      ],
      stdout: "piped",
    }).spawn();
    holdThread(2_000);
    const { stdout } = await client.output();
    assert(Number(new TextDecoder().decode(stdout)) < 1_500, "clients waited for this thread");
    await until(() => thread.counts.TCP.opened === 21);
    await portal.close();
    await portal.close();
    await assertRejects(() => ask(portal.port), Deno.errors.ConnectionRefused);
    assertEquals(problems, []);
  } finally {
    thread.end();
  }
});

Deno.test("what a thread cannot open is told, and drained means that no session is left", async () => {
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
