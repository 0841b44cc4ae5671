import { assertEquals } from "@std/assert";
import { FakeTime } from "@std/testing/time";
import { nftablesProxier } from "../../tests/support/nftables_rig.ts";
import { FakeNft } from "../../tests/support/fake_nft.ts";
import { NODE_A, testService, testSlice, testSliceEndpoint } from "../../tests/support/model_objects.ts";
import { ChangeTracker } from "../model/change_tracker.ts";
import type { ApiObject } from "../model/objects.ts";
import { silentLogger } from "../observe/log.ts";
import { FamilyRunner } from "./family_runner.ts";
import { EventHandlers } from "./event_handlers.ts";

const SERVICE = testService();

/** The Service's slice with an endpoint of this number. */
function sliceWith(endpoint: number): ApiObject {
  return testSlice({ endpoints: [testSliceEndpoint(`10.244.1.${endpoint}`, { nodeName: "node-b" })] });
}

/** A family in mode nftables over a fake kernel, with the default minimum sync period. */
class Family implements AsyncDisposable {
  readonly time = new FakeTime();
  readonly fake = new FakeNft();
  readonly problems: string[] = [];
  readonly #handlers: EventHandlers;
  readonly #runner: FamilyRunner;

  constructor() {
    this.#runner = new FamilyRunner({
      tracker: new ChangeTracker({ family: "IPv4", node: NODE_A }),
      proxier: nftablesProxier(this.fake),
      periods: { syncPeriod: 30_000, minSyncPeriod: 1_000 },
      observer: { synced: () => {}, failed: ({ error }) => this.problems.push(error.message) },
      log: silentLogger,
      onQueued: () => {},
      random: () => 0,
    });
    this.#handlers = new EventHandlers({
      runners: [this.#runner],
      nodeName: NODE_A.name,
      onNode: () => {},
      onRejected: ({ message }) => this.problems.push(message),
    });
    this.#handlers.openGate();
  }

  /** First lists without an object, and the time after them. */
  async start(): Promise<void> {
    this.#runner.start();
    this.#handlers.events([{ type: "synced", kind: "services" }, { type: "synced", kind: "endpointslices" }]);
    await this.after(5_000);
  }

  /** The table in the kernel after so much time. */
  async after(ms: number): Promise<string> {
    await this.time.tickAsync(ms);
    await this.time.runMicrotasks();
    assertEquals(this.problems, []);
    return this.fake.listed("ip kproxy");
  }

  add(object: ApiObject): void {
    this.#handlers.events([{ type: "add", object }]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const stopped = this.#runner.stop();
    await this.time.tickAsync(1_000);
    await stopped;
    this.time.restore();
  }
}

Deno.test("a Service whose slice comes first is served at once: nothing was written for the slice", async () => {
  await using family = new Family();
  await family.start();
  family.add(sliceWith(1));
  assertEquals((await family.after(5)).includes("10.244.1.1"), false);
  family.add(SERVICE);
  assertEquals((await family.after(0)).includes("10.244.1.1"), true);
});

Deno.test("of two changes that write something the second waits for the minimum sync period", async () => {
  await using family = new Family();
  await family.start();
  family.add(SERVICE);
  family.add(sliceWith(1));
  await family.after(1);
  family.add(sliceWith(2));
  assertEquals((await family.after(990)).includes("10.244.1.2"), false);
  assertEquals((await family.after(10)).includes("10.244.1.2"), true);
});
