import { assertEquals } from "@std/assert";
import { FakeTime } from "@std/testing/time";
import { DescriptorAllowance } from "./descriptors.ts";
import { type ConnectionPhase, ConnectionPool, type Lane, type PooledConnection } from "./connection_pool.ts";

const HEALTH: Lane = { server: "healthz", most: 3 };
const METRICS: Lane = { server: "metrics", most: 3 };
const MB = 1024 * 1024;

/** A pool of at most 4 connections on a clock of its own, and a record of what becomes of them. */
class Bench {
  nowMs = 0;
  /** Events since the last query. */
  #events: string[] = [];
  readonly pool: ConnectionPool;

  constructor(spare = 1_000, least = 0) {
    this.pool = new ConnectionPool({
      most: 4,
      least,
      nowMs: () => this.nowMs,
      allowance: new DescriptorAllowance({
        count: (atMost) => Math.min(atMost, spare),
        nowMs: () => this.nowMs,
      }),
      observer: {
        open: () => {},
        closed: (server, reason) => this.#events.push(`${server} ${reason}`),
        failed: () => {},
      },
    });
  }

  get events(): string[] {
    const events = this.#events;
    this.#events = [];
    return events;
  }

  /** A new connection each millisecond; its name begins with its client's. */
  open(
    name: string,
    lane: Lane,
    phase: ConnectionPhase = "waiting",
    more: Partial<PooledConnection> = {},
  ): Fake {
    this.nowMs++;
    const connection: Fake = {
      client: name.charAt(0),
      phase,
      sinceMs: this.nowMs,
      deadlineMs: Number.POSITIVE_INFINITY,
      unsentBytes: 0,
      close: () => this.#events.push(`${name} closed`),
      ...more,
    };
    this.pool.admit(connection, lane);
    return connection;
  }

  end(...connections: readonly Fake[]): void {
    for (const connection of connections) this.pool.leave(connection);
  }
}

type Fake = PooledConnection;

Deno.test("a full listener gives the place of the client that has waited longest to a new one", () => {
  const bench = new Bench();
  const open = ["a1", "b1", "c1"].map((name) => bench.open(name, HEALTH));
  assertEquals(bench.events, []);
  open.push(bench.open("d1", HEALTH));
  assertEquals(bench.events, ["a1 closed", "healthz evicted"]);
  bench.end(...open);
});

Deno.test("the client with the most connections goes before a client with one, however long that has waited", () => {
  const bench = new Bench();
  const open = ["a1", "b1", "b2"].map((name) => bench.open(name, HEALTH));
  open.push(bench.open("b3", HEALTH), bench.open("b4", HEALTH));
  assertEquals(bench.events, ["b1 closed", "healthz evicted", "b2 closed", "healthz evicted"]);
  bench.end(...open);
});

Deno.test("a client with many places never takes that of a client with fewer, which may be about to ask", () => {
  const bench = new Bench();
  const open = [bench.open("a1", HEALTH, "answering"), bench.open("a2", HEALTH, "answering")];
  open.push(bench.open("b1", HEALTH), bench.open("a3", HEALTH));
  assertEquals(bench.events, ["a3 closed", "healthz refused"]);
  bench.end(...open);
});

Deno.test("all listeners share one number", () => {
  const bench = new Bench();
  const open = [bench.open("a1", HEALTH), bench.open("b1", HEALTH), bench.open("c1", METRICS)];
  open.push(bench.open("d1", METRICS));
  assertEquals(bench.events, []);
  open.push(bench.open("e1", METRICS));
  assertEquals(bench.events, ["a1 closed", "healthz evicted"]);
  bench.end(...open);
});

Deno.test("who is being answered stays, and where all are, the next one is refused", () => {
  const bench = new Bench();
  const open = ["a1", "b1", "c1"].map((name) => bench.open(name, HEALTH, "answering"));
  open.push(bench.open("d1", HEALTH));
  assertEquals(bench.events, ["d1 closed", "healthz refused"]);
  bench.end(...open);
});

Deno.test("where all are being answered, a client with many places gives one to a client with none", () => {
  const bench = new Bench();
  const open = [bench.open("a1", HEALTH, "writing"), bench.open("a2", HEALTH, "answering")];
  open.push(bench.open("b1", HEALTH, "answering"), bench.open("c1", HEALTH));
  assertEquals(bench.events, ["a1 closed", "healthz evicted"]);
  // It has no more than one more than the others now.
  open.push(bench.open("b2", METRICS), bench.open("a3", HEALTH));
  assertEquals(bench.events, ["c1 closed", "healthz evicted"]);
  bench.end(...open);
});

Deno.test("who does not take an answer goes after a while, but after those who only wait", () => {
  const bench = new Bench();
  const open = [
    bench.open("a1", HEALTH, "writing"),
    bench.open("b1", HEALTH),
    bench.open("c1", HEALTH, "writing"),
  ];
  open.push(bench.open("d1", HEALTH, "answering"));
  assertEquals(bench.events, ["b1 closed", "healthz evicted"]);
  open.push(bench.open("e1", HEALTH));
  assertEquals(bench.events, ["e1 closed", "healthz refused"]);
  bench.nowMs += 2_000;
  open.push(bench.open("f1", HEALTH));
  assertEquals(bench.events, ["a1 closed", "healthz evicted"]);
  bench.end(...open);
});

Deno.test("too few descriptors for the tools count as a full pool", () => {
  // 96 stay free.
  const bench = new Bench(98);
  const open = ["a1", "b1"].map((name) => bench.open(name, HEALTH));
  assertEquals(bench.events, []);
  open.push(bench.open("c1", METRICS));
  assertEquals(bench.events, []);
  bench.end(...open);
  const none = new Bench(96);
  none.open("a1", HEALTH);
  assertEquals(none.events, ["a1 closed", "healthz refused"]);
});

Deno.test("however few descriptors there are, some connections are open", () => {
  const bench = new Bench(0, 2);
  const open = ["a1", "b1"].map((name) => bench.open(name, HEALTH));
  assertEquals(bench.events, []);
  for (const name of ["c1", "d1", "e1"]) open.push(bench.open(name, METRICS));
  assertEquals(bench.events.filter((event) => event.endsWith("closed")), [
    "a1 closed",
    "b1 closed",
    "c1 closed",
  ]);
  bench.end(...open);
});

Deno.test("when the system has no descriptor left, half of those who wait go at once", () => {
  const bench = new Bench();
  const open = [bench.open("a1", HEALTH), bench.open("b1", HEALTH, "answering"), bench.open("c1", HEALTH)];
  bench.pool.exhausted();
  assertEquals(bench.events, ["a1 closed", "healthz evicted"]);
  bench.end(...open);
});

Deno.test("what is kept for clients that do not read is bounded", () => {
  const bench = new Bench();
  const answer = (name: string): Fake => bench.open(name, METRICS, "writing", { unsentBytes: 40 * MB });
  const first = answer("a1");
  assertEquals(bench.pool.mayWrite(first), true);
  const second = answer("b1");
  assertEquals([bench.pool.mayWrite(second), bench.events], [false, ["b1 closed", "metrics refused"]]);
  bench.nowMs += 2_000;
  const third = answer("c1");
  assertEquals([bench.pool.mayWrite(third), bench.events], [true, ["a1 closed", "metrics evicted"]]);
  bench.end(first, second, third);
});

Deno.test("an overdue connection is closed, and no timer runs where there is none", () => {
  using time = new FakeTime();
  const bench = new Bench();
  bench.open("a1", HEALTH, "waiting", { deadlineMs: 10_000 });
  const other = bench.open("b1", HEALTH, "waiting", { deadlineMs: 20_000 });
  bench.nowMs = 9_999;
  time.tick(1_000);
  assertEquals(bench.events, []);
  bench.nowMs = 10_000;
  time.tick(1_000);
  assertEquals(bench.events, ["a1 closed", "healthz timeout"]);
  bench.end(other);
});
