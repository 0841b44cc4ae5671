import { assert, assertEquals } from "@std/assert";
import { createSocket, type Socket } from "node:dgram";
import { relayContext, RelayRecord } from "../../../../tests/support/relay_record.ts";
import { until } from "../../../../tests/support/until.ts";
import { openPortal } from "./open_portal.ts";
import type { OpenPortal, RelayContext } from "./relay.ts";

const HOST = "127.0.0.1";
const IDLE_MS = 100;

/** The clock that ends sessions: time passes only as a test says, because a busy machine delays packets for long. */
class Time {
  nowMs = 0;

  context(record: RelayRecord): RelayContext {
    return { ...relayContext(record), nowMs: () => this.nowMs, udpIdleMs: IDLE_MS };
  }
}

/** A socket and what it has heard; `answer` makes it a server. */
class Peer implements AsyncDisposable {
  readonly heard: string[] = [];
  readonly from: string[] = [];
  readonly #socket: Socket;

  private constructor(socket: Socket, answer?: (text: string) => string) {
    this.#socket = socket;
    socket.on("message", (packet: Uint8Array, from: { port: number }) => {
      const text = new TextDecoder().decode(packet);
      this.heard.push(text);
      this.from.push(`${from.port}`);
      if (answer !== undefined) socket.send(answer(text), from.port, HOST);
    });
  }

  static async bound(answer?: (text: string) => string): Promise<Peer> {
    const socket = createSocket("udp4");
    await new Promise<void>((resolve) => socket.bind(0, HOST, resolve));
    return new Peer(socket, answer);
  }

  get endpoint(): { ip: string; port: number } {
    return { ip: HOST, port: this.#socket.address().port };
  }

  send(text: string, port: number): void {
    this.#socket.send(text, port, HOST);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await new Promise<void>((resolve) => this.#socket.close(() => resolve()));
  }
}

async function open(context: RelayContext): Promise<OpenPortal & AsyncDisposable> {
  const portal = await openPortal(
    { family: "IPv4", protocol: "UDP", ip: HOST, requested: null, range: null },
    context,
  );
  return Object.assign(portal, { [Symbol.asyncDispose]: () => portal.close() });
}

Deno.test("packets of a client go to one endpoint and back, until it has been silent for long enough", async () => {
  const [record, time] = [new RelayRecord(), new Time()];
  await using one = await Peer.bound((text) => `one ${text}`);
  await using two = await Peer.bound((text) => `two ${text}`);
  await using client = await Peer.bound();
  await using portal = await open(time.context(record));
  portal.update([one.endpoint, two.endpoint], 0);
  for (const text of ["a", "b"]) client.send(text, portal.port);
  await until(() => client.heard.length === 2);
  assertEquals(client.heard.toSorted(), ["one a", "one b"]);
  assertEquals(new Set(client.from), new Set([`${portal.port}`]), "answers come from where packets went to");
  time.nowMs += IDLE_MS;
  await until(() => record.open.UDP === 0);
  client.send("c", portal.port);
  await until(() => client.heard.length === 3);
  assertEquals(client.heard[2], "two c", "a new session has its turn");
  time.nowMs += IDLE_MS;
  await until(() => record.open.UDP === 0);
  assertEquals(record.bytes, { in: 3, out: 15 });
});

Deno.test("what a stranger sends to a session does not reach its client", async () => {
  const record = new RelayRecord();
  await using server = await Peer.bound((text) => `server ${text}`);
  await using stranger = await Peer.bound();
  await using client = await Peer.bound();
  await using portal = await open({ ...relayContext(record), udpIdleMs: 60_000 });
  portal.update([server.endpoint], 0);
  client.send("a", portal.port);
  await until(() => client.heard.length === 1);
  stranger.send("poison", Number(server.from[0]));
  client.send("b", portal.port);
  await until(() => client.heard.length >= 2);
  assertEquals(client.heard, ["server a", "server b"]);
});

Deno.test("who is led elsewhere hears what the former endpoint still answers, for as long as a session may be silent", async () => {
  const [record, time] = [new RelayRecord(), new Time()];
  await using slow = await Peer.bound();
  await using two = await Peer.bound((text) => `two ${text}`);
  await using client = await Peer.bound();
  const portal = await open(time.context(record));
  portal.update([slow.endpoint], 0);
  client.send("a", portal.port);
  await until(() => slow.heard.length === 1);
  const answer = (text: string): void => slow.send(text, Number(slow.from[0]));
  portal.update([two.endpoint], 0);
  client.send("b", portal.port);
  await until(() => client.heard.length === 1);
  answer("late");
  await until(() => client.heard.length === 2);
  assertEquals(client.heard, ["two b", "late"]);
  assertEquals(slow.heard, ["a"], "nothing is sent to it");
  // However much it sends, it goes.
  time.nowMs += IDLE_MS;
  const chatter = setInterval(() => answer("more"), 5);
  await until(() => record.open.UDP === 0);
  clearInterval(chatter);
  await portal.close();
  assertEquals(record.problems, []);
});

Deno.test("sessions end with the portal", async () => {
  const record = new RelayRecord();
  await using one = await Peer.bound((text) => `one ${text}`);
  await using two = await Peer.bound((text) => `two ${text}`);
  await using client = await Peer.bound();
  const portal = await open({ ...relayContext(record), udpIdleMs: 60_000 });
  portal.update([one.endpoint], 0);
  client.send("a", portal.port);
  await until(() => client.heard.length === 1);
  portal.update([two.endpoint], 0);
  client.send("b", portal.port);
  await until(() => client.heard.length === 2);
  assertEquals(client.heard, ["one a", "two b"]);
  assertEquals(record.open.UDP, 2);
  await portal.close();
  assertEquals(record.open.UDP, 0);
  assertEquals(record.problems, []);
});

Deno.test("clients that find no endpoint, or no room, are counted, and cost the others nothing", async () => {
  const record = new RelayRecord({ most: 1 });
  await using server = await Peer.bound((text) => text);
  await using client = await Peer.bound();
  await using late = await Peer.bound();
  await using portal = await open({ ...relayContext(record), udpIdleMs: 60_000 });
  client.send("early", portal.port);
  await until(() => record.refusals.length === 1);
  portal.update([server.endpoint], 0);
  client.send("a", portal.port);
  await until(() => client.heard.length === 1);
  late.send("b", portal.port);
  await until(() => record.refusals.length === 2);
  assertEquals(record.refusals, ["no endpoint", "limit"]);
  client.send("c", portal.port);
  await until(() => client.heard.length === 2);
  assertEquals(late.heard, []);
  assert(record.open.UDP === 1);
});

Deno.test("however many sessions end at the same time, others have their turn in between", async () => {
  const record = new RelayRecord();
  let [inTurn, most, lastMs] = [0, 0, 0];
  const { UDP: sessions } = record.sessions;
  const leave = sessions.leave.bind(sessions);
  sessions.leave = (session) => {
    leave(session);
    const ms = performance.now();
    // A turn begins at least 10 ms after the former one has ended, however busy the machine is.
    if (ms - lastMs > 5) inTurn = 0;
    lastMs = ms;
    most = Math.max(most, ++inTurn);
  };
  await using server = await Peer.bound();
  const clients = await Promise.all(Array.from({ length: 100 }, () => Peer.bound()));
  const time = new Time();
  const context = time.context(record);
  const crowd = async (portal: OpenPortal): Promise<void> => {
    portal.update([server.endpoint], 0);
    for (const client of clients) client.send("a", portal.port);
    await until(() => record.open.UDP === 100);
  };
  {
    await using idle = await open(context);
    await crowd(idle);
    time.nowMs += IDLE_MS;
    await until(() => record.open.UDP === 0);
    assert(most <= 32, `${most} idle ones ended at once`);
  }
  const ending = await open(context);
  await crowd(ending);
  most = 0;
  await ending.close();
  assertEquals(record.open.UDP, 0);
  assert(most <= 32, `${most} ended at once with the portal`);
  await Promise.all(clients.map((client) => client[Symbol.asyncDispose]()));
});
