import { assert, assertEquals } from "@std/assert";
import { FakeTime } from "@std/testing/time";
import { FakeConntrack } from "../../tests/support/fake_conntrack.ts";
import { recordingLog } from "../../tests/support/recording_log.ts";
import { ExecError } from "../errors.ts";
import { Conntrack } from "../kernel/conntrack.ts";
import { ChangeTracker } from "../model/change_tracker.ts";
import type { Service } from "../model/objects.ts";
import {
  NODE_A,
  testPort,
  testService,
  testSlice,
  testSliceEndpoint,
  testSlicePort,
} from "../../tests/support/model_objects.ts";
import { type FlowReconciliation, StaleFlowReconciler } from "./stale_flows.ts";

const [A, B] = ["10.244.1.3", "10.244.1.4"];
const CLIENT = "10.0.0.5:4000";
const VIP = "10.96.0.10:53";
const DNS = testService({ ports: [testPort({ protocol: "UDP", port: 53 })] });

/** A tracker, a conntrack table and the reconciler between them; `sync()` acts as a sync that succeeds. */
class Setup {
  readonly table = new FakeConntrack();
  readonly lines: readonly string[];
  readonly seen: FlowReconciliation[] = [];
  readonly tracker = new ChangeTracker({ family: "IPv4", node: NODE_A });
  readonly reconciler: StaleFlowReconciler;
  nodePortIps = ["192.0.2.10"];
  /** How long a run of the program takes. */
  runMs = 0;
  requests = 0;
  #service: Service | undefined;
  #first = true;
  #nowMs = 0;

  constructor() {
    const real = this.table.run.bind(this.table);
    this.table.run = (...args) => {
      this.#nowMs += this.runMs;
      return real(...args);
    };
    const { log, lines } = recordingLog(1);
    this.lines = lines;
    this.reconciler = new StaleFlowReconciler({
      family: "IPv4",
      conntrack: new Conntrack(this.table),
      nodePortIps: () => this.nodePortIps,
      log,
      observe: (reconciliation) => this.seen.push(reconciliation),
      requestSync: () => this.requests++,
      nowMs: () => this.#nowMs,
      random: () => 0,
    });
  }

  /** A setup with a Service of one endpoint. */
  static serving(): Setup {
    const setup = new Setup();
    setup.service(DNS);
    setup.endpoints(A);
    return setup;
  }

  service(service: Service | undefined): void {
    this.tracker.updateService(this.#service, service);
    this.#service = service;
  }

  endpoints(...ips: string[]): void {
    const ports = [testSlicePort({ protocol: "UDP", port: 5353 })];
    this.tracker.updateEndpointSlice(
      testSlice({ ports, endpoints: ips.map((ip) => testSliceEndpoint(ip)) }),
      false,
    );
  }

  async sync(full = this.#first): Promise<void> {
    const { state, updatedServices, triggerTimesMs, ...udp } = this.tracker.checkout();
    this.#first = false;
    await this.reconciler.afterSync({
      family: "IPv4",
      full,
      report: { commands: 1, bytes: 0, written: {}, total: {} },
      durationMs: 1,
      services: [...updatedServices],
      triggerTimesMs,
      state,
      ...udp,
    });
  }
}

Deno.test("the first sync removes what an earlier process left, and moves no live flow", async () => {
  const setup = new Setup();
  setup.table.add(CLIENT, VIP, `${A}:5353`);
  setup.table.add("10.0.0.5:4001", VIP, `${B}:5353`);
  setup.table.add("10.0.0.5:4002", VIP);
  setup.table.add("10.0.0.5:4003", "198.51.100.1:53");
  setup.service(DNS);
  setup.endpoints(A);
  await setup.sync();
  assertEquals(setup.table.flows, [
    `${CLIENT} > ${VIP} < ${A}:5353`,
    "10.0.0.5:4003 > 198.51.100.1:53 < 198.51.100.1:53",
  ]);
  assertEquals(setup.seen, [{ family: "IPv4", deleted: 2, durationMs: 0 }]);
  assertEquals(setup.lines, ['I "Deleted stale UDP flows" family="IPv4" flows=2 found=2 took="0ms"']);
});

Deno.test("flows follow their endpoints: replaced, gone, back", async () => {
  const setup = Setup.serving();
  await setup.sync();
  setup.table.add(CLIENT, VIP, `${A}:5353`);
  setup.endpoints(B);
  await setup.sync();
  assertEquals(setup.table.flows, [], "replaced");

  setup.table.add(CLIENT, VIP, `${B}:5353`);
  setup.endpoints();
  await setup.sync();
  assertEquals(setup.table.flows, [], "gone");

  setup.table.add(CLIENT, VIP);
  setup.endpoints(B);
  await setup.sync();
  assertEquals(setup.table.flows, [], "back");
});

Deno.test("flows follow their Service: addresses added and removed, deleted", async () => {
  const setup = Setup.serving();
  await setup.sync();
  // The client was there before the address.
  setup.table.add(CLIENT, "203.0.113.7:53");
  setup.table.add(CLIENT, "192.0.2.10:30053");
  setup.table.add(CLIENT, "192.0.2.11:30053");
  const ports = [testPort({ protocol: "UDP", port: 53, nodePort: 30053 })];
  setup.service({ ...DNS, type: "NodePort", externalIPs: ["203.0.113.7"], ports });
  await setup.sync();
  assertEquals(setup.table.flows, [`${CLIENT} > 192.0.2.11:30053 < 192.0.2.11:30053`]);

  setup.table.add(CLIENT, "203.0.113.7:53", `${A}:5353`);
  setup.table.add(CLIENT, VIP, `${A}:5353`);
  setup.service(DNS);
  await setup.sync();
  assertEquals(setup.table.flows, [
    `${CLIENT} > ${VIP} < ${A}:5353`,
    `${CLIENT} > 192.0.2.11:30053 < 192.0.2.11:30053`,
  ]);

  setup.service(undefined);
  await setup.sync();
  assertEquals(setup.table.flows, [`${CLIENT} > 192.0.2.11:30053 < 192.0.2.11:30053`]);
});

Deno.test("the table is read only when UDP may have changed, and when everything was written", async () => {
  const setup = new Setup();
  await setup.sync();
  assertEquals(setup.table.runs, [], "there is no UDP Service");
  setup.service(DNS);
  setup.endpoints(A);
  await setup.sync();
  assertEquals(setup.table.runs, ["conntrack -L -p udp -f ipv4"]);

  setup.tracker.updateService(undefined, testService({ name: "tcp", clusterIP: "10.96.0.20" }));
  await setup.sync();
  assertEquals(setup.table.runs.length, 1, "only TCP changed");
  await setup.sync(true);
  assertEquals(setup.table.runs.length, 2, "a full sync");
  setup.service({ ...DNS, externalIPs: ["203.0.113.7"] });
  await setup.sync();
  assertEquals(setup.table.runs.length, 3, "only the Service changed");
  await setup.sync();
  assertEquals(setup.table.runs.length, 3, "nothing changed");
});

const REFUSED = { code: 1, stderr: "Operation failed: Operation not permitted" };

Deno.test("a failure is made up for, also for what was a frontend meanwhile, and reported once", async () => {
  using time = new FakeTime();
  const setup = Setup.serving();
  setup.table.planned.push(REFUSED);
  await setup.sync();
  setup.table.add(CLIENT, VIP, `${A}:5353`);
  setup.service(undefined);
  setup.table.planned.push(REFUSED);
  await setup.sync();
  setup.service({ ...DNS, clusterIP: "10.96.0.11", clusterIPs: ["10.96.0.11"] });
  setup.table.planned.push(REFUSED);
  await setup.sync();
  assertEquals(setup.requests, 0);
  await time.tickAsync(4_000);
  assertEquals(setup.requests, 1, "the wait grows to 4 s");
  assertEquals(setup.table.flows.length, 1);
  await setup.sync();
  assertEquals(setup.table.flows, []);
  assertEquals(setup.lines.map((line) => line.split('"')[1]), [
    "Cannot look for stale UDP flows, will try again",
    "Deleted stale UDP flows",
  ]);
  await time.tickAsync(120_000);
  assertEquals(setup.requests, 1, "all is well now");
});

Deno.test("without the program nothing is deleted until a sync finds it", async () => {
  using time = new FakeTime();
  const setup = Setup.serving();
  for (let i = 0; i < 2; i++) {
    setup.table.planned.push(new ExecError(["conntrack"], -1, "No such file or directory"));
    await setup.sync();
  }
  assertEquals(setup.lines.length, 1);
  assert(setup.lines[0]?.includes("Stale UDP flows stay: the program conntrack is missing"), setup.lines[0]);
  await time.tickAsync(120_000);
  assertEquals(setup.requests, 0);
  setup.table.add(CLIENT, VIP);
  await setup.sync();
  assertEquals(setup.table.flows, []);
});

Deno.test("many deletions in a big table are spread over syncs, those with most flows first", async () => {
  using time = new FakeTime();
  const setup = Setup.serving();
  // Each endpoint has a direct flow as well, so that none can be deleted by its address alone.
  for (let i = 0; i < 5; i++) {
    for (let port = 0; port <= i; port++) {
      setup.table.add(`10.0.0.5:${4000 + port}`, VIP, `10.244.9.${i}:5353`);
    }
    setup.table.add(CLIENT, `10.244.9.${i}:5353`);
  }
  setup.runMs = 400;
  await setup.sync();
  assertEquals(setup.seen.map(({ deleted, durationMs }) => [deleted, durationMs]), [[9, 800]]);
  await time.tickAsync(200);
  assertEquals(setup.requests, 1);
  await setup.sync();
  await time.tickAsync(200);
  await setup.sync();
  assertEquals(setup.seen.map(({ deleted }) => deleted), [9, 5, 1]);
  assertEquals(setup.table.flows.length, 5);
  await time.tickAsync(10_000);
  assertEquals(setup.requests, 2, "it is done");
});

Deno.test("a table that was read only in part is read again", async () => {
  using time = new FakeTime();
  const setup = Setup.serving();
  setup.table.add(CLIENT, VIP);
  const disturbed = { code: 1, stderr: "Operation failed: Interrupted system call" };
  setup.table.planned.push(disturbed, disturbed, disturbed, disturbed, disturbed);
  await setup.sync();
  await time.tickAsync(200);
  assertEquals(setup.requests, 1);
  await setup.sync();
  assertEquals(setup.table.flows, []);
});

/** A table whose next read takes until it is released. */
function slowRead(setup: Setup): { readonly release: () => void; readonly fail: (error: Error) => void } {
  const gate = Promise.withResolvers<void>();
  const fast = setup.table.run.bind(setup.table);
  setup.table.run = async (...args) => {
    setup.table.run = fast;
    // Read before it is held up: what comes later is not seen.
    const result = await fast(...args);
    await gate.promise;
    return result;
  };
  return { release: () => gate.resolve(), fail: (error) => gate.reject(error) };
}

/** Resolves true if a sync ends within so much fake time. */
async function syncsWithin(time: FakeTime, setup: Setup, ms: number): Promise<boolean> {
  let done = false;
  const sync = setup.sync().then(() => done = true);
  await time.tickAsync(ms);
  if (done) await sync;
  return done;
}

Deno.test("a program that hangs holds up one sync for two seconds, and no other one", async () => {
  using time = new FakeTime();
  const setup = Setup.serving();
  const hanging = slowRead(setup);
  assertEquals(await syncsWithin(time, setup, 1_000), false);
  await time.tickAsync(1_000);
  for (const ips of [[B], [A, B], [A]]) {
    setup.endpoints(...ips);
    assert(await syncsWithin(time, setup, 0), "a sync beside the program that hangs");
  }
  assertEquals(setup.table.runs.length, 1);
  hanging.fail(new ExecError(["conntrack"], 137, "", { timedOutMs: 30_000 }));
  await time.tickAsync(1_000);
  assertEquals(setup.requests, 1);
  assertEquals(setup.lines.length, 1);
  assert(setup.lines[0]?.includes("timed out after 30 s"), setup.lines[0]);
  // The read still hangs, but no one waits for it now.
  slowRead(setup).fail(new ExecError(["conntrack"], 137, "", { timedOutMs: 30_000 }));
  assert(await syncsWithin(time, setup, 0), "the next try");
});

Deno.test("a table that takes long to read is compared between syncs, with what they made of it", async () => {
  using time = new FakeTime();
  const setup = Setup.serving();
  setup.table.add(CLIENT, VIP, `${A}:5353`);
  setup.table.add("10.0.0.5:4001", VIP, `${B}:5353`);
  setup.table.add("10.0.0.5:4002", VIP, "10.244.1.5:5353");
  const { release } = slowRead(setup);
  await syncsWithin(time, setup, 2_000);
  setup.endpoints(B);
  await setup.sync();
  setup.table.add("10.0.0.5:4003", VIP, "10.244.1.6:5353");
  release();
  await time.tickAsync(0);
  assertEquals([setup.requests, setup.table.flows.length], [1, 4], "nothing is deleted beside a sync");
  await setup.sync();
  const left = `10.0.0.5:4001 > ${VIP} < ${B}:5353`;
  const unseen = `10.0.0.5:4003 > ${VIP} < 10.244.1.6:5353`;
  assertEquals(setup.table.flows, [left, unseen]);
  await time.tickAsync(200);
  assertEquals(setup.requests, 2, "the table has changed since it was read");
  await setup.sync();
  assertEquals(setup.table.flows, [left]);
  await time.tickAsync(60_000);
  assertEquals(setup.requests, 2, "all is well now");
});

Deno.test("the end does not wait for a program that hangs", async () => {
  using time = new FakeTime();
  const setup = Setup.serving();
  setup.table.add(CLIENT, VIP);
  const { release } = slowRead(setup);
  await syncsWithin(time, setup, 2_000);
  setup.reconciler.stop();
  release();
  await time.tickAsync(60_000);
  assertEquals([setup.requests, setup.table.flows.length], [0, 1]);
});

Deno.test("after the end nothing is asked for any more", async () => {
  using time = new FakeTime();
  const setup = Setup.serving();
  setup.table.planned.push(REFUSED);
  setup.reconciler.stop();
  await setup.sync();
  await time.tickAsync(120_000);
  assertEquals(setup.requests, 0);
});
