import { assertEquals } from "@std/assert";
import { FakeTime } from "@std/testing/time";
import { syncOutcome } from "../../tests/support/sync_outcome.ts";
import { systemClock } from "../kernel/clock.ts";
import { SyncError } from "../errors.ts";
import type { IpFamily } from "../model/objects.ts";
import { collectInQuiet } from "./quiet_garbage.ts";

/** A node of two families whose collections take `pauseMs`. */
class Node {
  readonly #time = new FakeTime();
  readonly #end = new AbortController();
  readonly #startMs = this.#time.now;
  readonly #observer;
  /** When garbage was collected, in seconds. */
  readonly collections: number[] = [];

  constructor(pauseMs: number) {
    // Time as it passes while nothing else can happen.
    let busyMs = 0;
    const clock = {
      ...systemClock,
      nowMs: () => this.#time.now - this.#startMs + busyMs,
    };
    this.#observer = collectInQuiet(["IPv4", "IPv6"], this.#end.signal, clock, () => {
      this.collections.push(Math.round(clock.nowMs() / 100) / 10);
      busyMs += pauseMs;
    });
  }

  begin(family: IpFamily): void {
    this.#observer.begun?.({ family });
  }

  fail(family: IpFamily): void {
    const error = new SyncError("nftables", "apply", "no");
    this.#observer.failed({ family, full: false, error, durationMs: 1 });
  }

  end(family: IpFamily): void {
    this.#observer.synced(syncOutcome(family));
  }

  sync(family: IpFamily): void {
    this.begin(family);
    this.end(family);
  }

  /** The first syncs, and what is collected after them. */
  async start(): Promise<this> {
    this.sync("IPv4");
    this.sync("IPv6");
    await this.pass(1);
    return this;
  }

  async pass(seconds: number): Promise<void> {
    for (let second = 0; second < seconds; second++) await this.#time.tickAsync(1_000);
  }

  stop(): void {
    this.#end.abort();
  }

  [Symbol.dispose](): void {
    this.#time.restore();
  }
}

function test(name: string, run: () => Promise<void>): void {
  Deno.test(name, { permissions: "none" }, run);
}

test("garbage is collected a second after the first sync of every family, and not again without a sync", async () => {
  using node = new Node(0);
  node.sync("IPv6");
  node.sync("IPv6");
  await node.pass(5);
  assertEquals(node.collections, []);
  node.sync("IPv4");
  assertEquals(node.collections, []);
  await node.pass(600);
  assertEquals(node.collections, [6]);
});

test("an end comes before it, at the start", async () => {
  using node = new Node(0);
  node.sync("IPv6");
  node.sync("IPv4");
  node.stop();
  await node.pass(60);
  assertEquals(node.collections, []);
});

test("an end comes before it, after changes", async () => {
  using node = await new Node(0).start();
  await node.pass(30);
  node.sync("IPv4");
  await node.pass(1);
  node.stop();
  await node.pass(60);
  assertEquals(node.collections, [1]);
});

test("after changes it is collected once, when three seconds have passed without one", async () => {
  using node = await new Node(0).start();
  await node.pass(29);
  for (let change = 0; change < 40; change++) {
    node.sync(change % 2 === 0 ? "IPv4" : "IPv6");
    await node.pass(2);
  }
  assertEquals(node.collections, [1]);
  await node.pass(600);
  // The last change came at 108.
  assertEquals(node.collections, [1, 111]);
  node.sync("IPv6");
  await node.pass(600);
  assertEquals(node.collections, [1, 111, 713]);
});

test("nothing is collected while a sync is under way, or one that failed is to be tried again", async () => {
  using node = await new Node(0).start();
  await node.pass(29);
  node.sync("IPv4");
  await node.pass(2);
  node.begin("IPv6");
  await node.pass(20);
  node.fail("IPv6");
  await node.pass(20);
  node.sync("IPv4");
  await node.pass(20);
  assertEquals(node.collections, [1]);
  node.begin("IPv6");
  await node.pass(1);
  node.end("IPv6");
  await node.pass(4);
  assertEquals(node.collections, [1, 96]);
});

test("the longer it took, the longer it is not done again: a thousandth of the time, but within limits", async () => {
  for (const [pauseMs, seconds] of [[5, 10], [25, 25], [200, 200], [2_000, 300]] as const) {
    using node = await new Node(pauseMs).start();
    // Changes with quiet times between them, for longer than any rest.
    for (let change = 0; change < 100; change++) {
      node.sync("IPv4");
      await node.pass(4);
    }
    const [, ...rests] = node.collections.map((at, index) => at - (node.collections[index - 1] ?? 0));
    for (const rest of rests) {
      // It comes in the next quiet time.
      const isInTime = rest >= seconds && rest <= seconds + 5 + pauseMs / 1_000;
      assertEquals(isInTime, true, `${pauseMs} ms: ${node.collections}`);
    }
    assertEquals(
      rests.length >= Math.max(1, Math.floor(400 / (seconds + 5)) - 1),
      true,
      `${pauseMs} ms: ${rests}`,
    );
  }
});
