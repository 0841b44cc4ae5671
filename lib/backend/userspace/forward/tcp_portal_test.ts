import { assert, assertEquals, assertRejects } from "@std/assert";
import { connect as connectSocket, type Socket } from "node:net";
import { relayContext, RelayRecord } from "../../../../tests/support/relay_record.ts";
import { until } from "../../../../tests/support/until.ts";
import { DescriptorAllowance } from "../../../kernel/descriptors.ts";
import { openPortal } from "./open_portal.ts";
import type { OpenPortal, RelayContext } from "./relay.ts";

const HOST = "127.0.0.1";

/** A server on a free port; the test handles each connection. */
function serve(
  handle: (socket: Deno.TcpConn) => Promise<void>,
): Disposable & { endpoint: { ip: string; port: number } } {
  const listener = Deno.listen({ hostname: HOST, port: 0 });
  const done = (async () => {
    for await (const socket of listener) {
      void handle(socket).catch(() => "the test ends it").finally(() => close(socket));
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

function close(socket: Deno.TcpConn): void {
  try {
    socket.close();
  } catch (error) {
    if (!(error instanceof Deno.errors.BadResource)) throw error;
  }
}

async function open(context: RelayContext): Promise<OpenPortal & AsyncDisposable> {
  const portal = await openPortal(
    { family: "IPv4", protocol: "TCP", ip: HOST, requested: null, range: null },
    context,
  );
  return Object.assign(portal, { [Symbol.asyncDispose]: () => portal.close() });
}

/** A port without a listener. */
function deadEndpoint(): { ip: string; port: number } {
  using listener = Deno.listen({ hostname: HOST, port: 0 });
  return { ip: HOST, port: listener.addr.port };
}

async function readAll(socket: Deno.TcpConn): Promise<string> {
  return await new Response(socket.readable).text();
}

const echoAtTheEnd = async (socket: Deno.TcpConn): Promise<void> => {
  const bytes: number[] = [];
  const buffer = new Uint8Array(4096);
  for (let count = await socket.read(buffer); count !== null; count = await socket.read(buffer)) {
    bytes.push(...buffer.subarray(0, count));
  }
  await socket.write(new TextEncoder().encode(`got ${bytes.length} bytes`));
};

Deno.test("bytes go both ways, and who has said all is heard out: a closed half is passed on", async () => {
  const record = new RelayRecord();
  using server = serve(echoAtTheEnd);
  await using portal = await open(relayContext(record));
  portal.update([server.endpoint], 0);
  const client = await Deno.connect({ hostname: HOST, port: portal.port });
  for (const count of [1, 700, 70_000]) {
    const bytes = new Uint8Array(count);
    for (let at = 0; at < count;) at += await client.write(bytes.subarray(at));
  }
  await client.closeWrite();
  assertEquals(await readAll(client), "got 70701 bytes");
  await until(() => record.open.TCP === 0);
  assertEquals(record.bytes, { in: 70_701, out: 15 });
});

Deno.test("an endpoint that takes no connection gives way to the next, and the client notices nothing", async () => {
  const record = new RelayRecord();
  using server = serve(async (socket) => void await socket.write(new TextEncoder().encode("hello")));
  await using portal = await open(relayContext(record));
  portal.update([deadEndpoint(), server.endpoint], 0);
  for (let tries = 0; tries < 4; tries++) {
    const client = await Deno.connect({ hostname: HOST, port: portal.port });
    assertEquals(await readAll(client), "hello");
  }
  assert(record.dialFailures > 0);
  assertEquals(record.refusals, []);
  await until(() => record.open.TCP === 0);
});

Deno.test("without an endpoint, or with none that answers, a client is closed, and that is counted", async () => {
  const record = new RelayRecord();
  await using portal = await open(relayContext(record));
  const ask = async (): Promise<string> =>
    await readAll(await Deno.connect({ hostname: HOST, port: portal.port }));
  assertEquals(await ask(), "");
  portal.update([deadEndpoint()], 0);
  assertEquals(await ask(), "");
  assertEquals(record.refusals, ["no endpoint", "no answer"]);
  assertEquals(record.dialFailures, 4, "each timeout of kube-proxy's was one try");
  await until(() => record.open.TCP === 0);
});

Deno.test("a client that comes when all sessions or descriptors are taken is refused, the others go on", async () => {
  using server = serve(async (socket) => {
    const buffer = new Uint8Array(10);
    const count = await socket.read(buffer);
    await socket.write(buffer.subarray(0, count ?? 0));
  });
  let spare = 200;
  const allowance = new DescriptorAllowance({ count: () => spare, reserved: 100 });
  const record = new RelayRecord({ allowance, most: 2 });
  await using portal = await open(relayContext(record));
  portal.update([server.endpoint], 0);
  const connect = (): Promise<Deno.TcpConn> => Deno.connect({ hostname: HOST, port: portal.port });
  const [first, second] = [await connect(), await connect()];
  await until(() => record.open.TCP === 2);
  assertEquals(await readAll(await connect()), "");
  assertEquals(record.refusals, ["limit"]);
  await first.write(new Uint8Array([65]));
  assertEquals(await readAll(first), "A");
  await until(() => record.open.TCP === 1);
  spare = 100;
  record.sessions.TCP.exhausted();
  assertEquals(await readAll(await connect()), "");
  assertEquals(record.refusals, ["limit", "descriptors"]);
  await second.write(new Uint8Array([66]));
  assertEquals(await readAll(second), "B");
  await until(() => record.open.TCP === 0);
});

Deno.test("one client cannot take all sessions: another one gets the place that was silent for longest", async () => {
  using server = serve(async (socket) => await socket.readable.pipeTo(socket.writable));
  const greed: string[] = [];
  const record = new RelayRecord({ onGreed: (message) => void greed.push(message), most: 4 });
  await using portal = await open(relayContext(record));
  portal.update([server.endpoint], 0);
  const connect = async (localAddress?: string): Promise<{ socket: Socket; say: () => Promise<string> }> => {
    const options = { host: HOST, port: portal.port, ...localAddress === undefined ? {} : { localAddress } };
    const socket = connectSocket(options);
    socket.on("error", () => {});
    let heard: (text: string) => void = () => {};
    const ended = new Promise<void>((resolve) => socket.once("close", () => resolve()));
    socket.on("data", (bytes: Uint8Array) => heard(new TextDecoder().decode(bytes)));
    await new Promise<void>((resolve) => socket.once("connect", () => resolve()));
    const say = (): Promise<string> => {
      const answer = new Promise<string>((resolve) => heard = resolve);
      socket.write("A");
      return Promise.race([answer, ended.then(() => "closed")]);
    };
    return { socket, say };
  };
  const greedy = [await connect(), await connect(), await connect(), await connect()];
  await until(() => record.open.TCP === 4);
  for (const at of [1, 2, 0, 3]) assertEquals(await greedy[at]!.say(), "A");
  const fifth = await connect();
  assertEquals(await fifth.say(), "closed", "it is refused, and none of its own has to go");
  assertEquals(record.refusals, ["limit"]);
  const other = await connect("127.0.0.2");
  assertEquals(await other.say(), "A");
  assertEquals(await greedy[1]!.say(), "closed");
  for (const at of [0, 2, 3]) assertEquals(await greedy[at]!.say(), "A");
  const second = await connect("127.0.0.2");
  assertEquals(await second.say(), "A");
  assertEquals(await (await connect("127.0.0.2")).say(), "closed", "as many as the first client has");
  assertEquals(record.evictions, 2);
  assertEquals(greed, ["127.0.0.1 has 4 of 4"], "it is told once");
  for (const { socket } of [...greedy, other, second]) socket.destroy();
  await until(() => record.open.TCP === 0);
});

Deno.test("an IPv6 socket of rules refuses IPv4 clients, which no rule leads there", async () => {
  const record = new RelayRecord();
  using server = serve(echoAtTheEnd);
  for (const [isOfOneFamily, heard] of [[true, ""], [false, "got 0 bytes"]] as const) {
    const place = { family: "IPv6", protocol: "TCP", ip: "::", requested: null, range: null } as const;
    const portal = await openPortal({ ...place, isOfOneFamily }, relayContext(record));
    portal.update([server.endpoint], 0);
    const client = await Deno.connect({ hostname: HOST, port: portal.port });
    await client.closeWrite();
    assertEquals(await readAll(client), heard);
    await portal.close();
  }
  assertEquals(record.refusals, ["not redirected"]);
  await until(() => record.open.TCP === 0);
});

Deno.test("a reader that does not read stops the writer, and costs no memory", async () => {
  const record = new RelayRecord();
  let isStopped = false;
  using server = serve(async (socket) => {
    const bytes = new Uint8Array(64 * 1024);
    while (!isStopped) await socket.write(bytes);
  });
  await using portal = await open(relayContext(record));
  portal.update([server.endpoint], 0);
  const client = await Deno.connect({ hostname: HOST, port: portal.port });
  let before = -1;
  // What sockets hold goes through; then nothing does.
  const isStill = (): boolean => {
    const last = before;
    before = record.bytes.out;
    return before === last && before > 0;
  };
  await until(isStill, "nothing goes through", { everyMs: 200 });
  assert(record.bytes.out < 32 * 1024 * 1024, `${record.bytes.out} bytes`);
  isStopped = true;
  client.close();
  await until(() => record.open.TCP === 0);
});

Deno.test("beginning and rest of a message that came together go on together", async () => {
  const record = new RelayRecord();
  // Says how long each piece was that it read.
  using server = serve(async (socket) => {
    const buffer = new Uint8Array(100_000);
    for (let count = await socket.read(buffer); count !== null; count = await socket.read(buffer)) {
      await socket.write(new TextEncoder().encode(`${count} `));
    }
  });
  await using portal = await open(relayContext(record));
  portal.update([server.endpoint], 0);
  const client = await Deno.connect({ hostname: HOST, port: portal.port });
  const answer = new Uint8Array(100);
  for (const count of [1, 127, 128, 129, 1_000, 128, 1_400]) {
    await client.write(new Uint8Array(count));
    const length = await client.read(answer) ?? 0;
    assertEquals(new TextDecoder().decode(answer.subarray(0, length)), `${count} `);
  }
  client.close();
  await until(() => record.open.TCP === 0);
});

Deno.test("clients that are silent hold next to no buffers, whatever they have said, and none once they are gone", async () => {
  const record = new RelayRecord();
  using server = serve(async (socket) => {
    await socket.readable.pipeTo(socket.writable);
  });
  const context = relayContext(record);
  await using portal = await open(context);
  portal.update([server.endpoint], 0);
  const message = new Uint8Array(20_000).fill(7);
  const clients: Deno.TcpConn[] = [];
  for (let count = 0; count < 200; count++) {
    const client = await Deno.connect({ hostname: HOST, port: portal.port });
    clients.push(client);
    await client.write(message);
    const answer = new Uint8Array(message.length);
    for (let at = 0; at < answer.length;) at += await client.read(answer.subarray(at)) ?? Infinity;
    assertEquals(answer, message);
  }
  // 200 of them with a large buffer for each direction were 26 MB.
  const { bytesInUse } = context.buffers;
  assert(bytesInUse > 0 && bytesInUse < 9 * 1024 * 1024, `${bytesInUse} bytes`);
  for (const client of clients) client.close();
  await until(() => record.open.TCP === 0);
  assertEquals(context.buffers.bytesInUse, 0);
});

Deno.test("a portal that is closed takes no client, and serves those that are there to the end", async () => {
  const record = new RelayRecord();
  using server = serve(echoAtTheEnd);
  const portal = await open(relayContext(record));
  portal.update([server.endpoint], 0);
  const client = await Deno.connect({ hostname: HOST, port: portal.port });
  await until(() => record.open.TCP === 1);
  await portal.close();
  await portal.close();
  await assertRejects(
    () => Deno.connect({ hostname: HOST, port: portal.port }),
    Deno.errors.ConnectionRefused,
  );
  await client.write(new Uint8Array(3));
  await client.closeWrite();
  assertEquals(await readAll(client), "got 3 bytes");
  await until(() => record.open.TCP === 0);
});

Deno.test("an endpoint that answers while this thread has no processor is not taken for a dead one", async () => {
  const record = new RelayRecord();
  using server = serve(echoAtTheEnd);
  await using portal = await open(relayContext(record));
  portal.update([server.endpoint], 0);
  const connect = Deno.connect;
  using _restored = { [Symbol.dispose]: () => void (Deno.connect = connect) };
  Deno.connect = ((options: Deno.ConnectOptions) => {
    const connecting = connect(options);
    // Longer than the first try may take.
    const endMs = performance.now() + 300;
    while (performance.now() < endMs);
    return connecting;
  }) as typeof Deno.connect;
  const client = await connect({ hostname: HOST, port: portal.port });
  await client.write(new Uint8Array(3));
  await client.closeWrite();
  assertEquals(await readAll(client), "got 3 bytes");
  assertEquals(record.dialFailures, 0);
});
