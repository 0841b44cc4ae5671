import { assertEquals } from "@std/assert";
import type { Protocol } from "../../../model/objects.ts";
import type {
  RealServer,
  RealServerLoad,
  SavedVirtualServer,
  VirtualServer,
} from "../../../netfilter/ipvs.ts";
import type { ServerChange } from "../store/transaction.ts";
import { type Loads, Terminations } from "./graceful_termination.ts";

const permissions = "none";
const DEADLINE_MS = 60_000;

function server(protocol: Protocol = "TCP", address = "10.96.0.1"): VirtualServer {
  return { address, protocol, port: 80, scheduler: "rr", flags: [], timeoutSeconds: 0 };
}

function real(last: number, weight = 1): RealServer {
  return { address: `10.244.0.${last}`, port: 8080, weight };
}

function removal(
  last: number,
  rest: { protocol?: Protocol; graceful?: boolean; weight?: number } = {},
): ServerChange {
  const { protocol, graceful = true, weight } = rest;
  return { kind: "removeReal", server: server(protocol), real: real(last, weight), graceful };
}

function deletion(address?: string): ServerChange {
  return { kind: "deleteServer", server: server("TCP", address), evidence: { isBound: true, isNamed: true } };
}

function takeAll(list: Terminations, changes: readonly ServerChange[], nowMs: number): string[] {
  return changes.flatMap((change) => list.take(change, nowMs));
}

function keys(list: Terminations): string[] {
  return Array.from(list.all, ({ real }) => real.address);
}

function load(last: number, active: number, inactive: number): RealServerLoad {
  return { ...real(last, 0), activeConnections: active, inactiveConnections: inactive };
}

function loads(...reals: readonly RealServerLoad[]): Loads {
  return new Map([["10.96.0.1:80/TCP", new Map(reals.map((one) => [`${one.address}:${one.port}`, one]))]]);
}

Deno.test("a real server of TCP that leaves gets no new connections, and is deleted when the last one ends", {
  permissions,
}, () => {
  const list = new Terminations(DEADLINE_MS);
  assertEquals(
    takeAll(list, [removal(1), removal(2), removal(3)], 0),
    [1, 2, 3].map((last) => `-e -t 10.96.0.1:80 -r 10.244.0.${last}:8080 -m -w 0`),
  );
  assertEquals(list.size, 3);
  const sweep = list.sweep(loads(load(1, 0, 0), load(2, 1, 0), load(3, 0, 1)), 1_000);
  assertEquals(sweep, {
    lines: ["-d -t 10.96.0.1:80 -r 10.244.0.1:8080"],
    ended: [{ key: "10.96.0.1:80/TCP/10.244.0.1:8080", end: "drained" }],
  });
  // Until it is carried out, nothing is forgotten.
  assertEquals(list.size, 3);
  list.finish(sweep);
  assertEquals(keys(list), ["10.244.0.2", "10.244.0.3"]);
});

Deno.test("one with connections of both kinds stays; one whose virtual server is gone is gone, too", {
  permissions,
}, () => {
  const list = new Terminations(0);
  takeAll(list, [removal(1)], 0);
  assertEquals(list.sweep(loads(load(1, 2, 2)), 1_000), { lines: [], ended: [] });
  const sweep = list.sweep(new Map(), 1_000);
  assertEquals(sweep, {
    lines: [],
    ended: [{ key: "10.96.0.1:80/TCP/10.244.0.1:8080", end: "vanished" }],
  });
  list.finish(sweep);
  assertEquals(list.size, 0);
});

Deno.test("a virtual server that goes takes its own along, as many as they are", { permissions }, () => {
  const list = new Terminations(0);
  takeAll(list, [removal(1), removal(2)], 0);
  assertEquals(takeAll(list, [deletion("10.96.0.2")], 0), [
    "-D -t 10.96.0.2:80",
  ]);
  assertEquals(list.size, 2);
  assertEquals(takeAll(list, [deletion()], 0), ["-D -t 10.96.0.1:80"]);
  assertEquals(list.size, 0);
});

Deno.test("its time is up at the deadline, whatever its connections", { permissions }, () => {
  const list = new Terminations(DEADLINE_MS);
  assertEquals(list.nextDeadlineMs, Infinity);
  takeAll(list, [removal(1)], 500);
  takeAll(list, [removal(2)], 900);
  assertEquals(list.nextDeadlineMs, 500 + DEADLINE_MS);
  const busy = loads(load(1, 9, 0), load(2, 9, 0));
  assertEquals(list.sweep(busy, 499 + DEADLINE_MS).lines, []);
  const sweep = list.sweep(busy, 500 + DEADLINE_MS);
  assertEquals(sweep.ended, [{ key: "10.96.0.1:80/TCP/10.244.0.1:8080", end: "deadline" }]);
  list.finish(sweep);
  assertEquals(list.nextDeadlineMs, 900 + DEADLINE_MS);
});

Deno.test("without a deadline it stays as long as its connections", { permissions }, () => {
  const list = new Terminations(0);
  takeAll(list, [removal(1)], 0);
  assertEquals(list.nextDeadlineMs, Infinity);
  assertEquals(list.sweep(loads(load(1, 1, 0)), 1e12).lines, []);
});

Deno.test("UDP, SCTP and Services that ask for it lose a real server at once", { permissions }, () => {
  const list = new Terminations(DEADLINE_MS);
  assertEquals(
    takeAll(list, [
      removal(1, { protocol: "UDP" }),
      removal(1, { protocol: "SCTP" }),
      removal(1, { graceful: false }),
    ], 0),
    ["-u", "--sctp-service", "-t"].map((option) => `-d ${option} 10.96.0.1:80 -r 10.244.0.1:8080`),
  );
  assertEquals(list.size, 0);
  // Even one that was on its way.
  takeAll(list, [removal(1)], 0);
  assertEquals(takeAll(list, [removal(1, { graceful: false, weight: 0 })], 0).length, 1);
  assertEquals(list.size, 0);
});

Deno.test("one that is wanted again keeps its connections", { permissions }, () => {
  const list = new Terminations(DEADLINE_MS);
  takeAll(list, [removal(1)], 0);
  const back = { kind: "addReal", server: server(), real: real(1) } as const;
  assertEquals(takeAll(list, [back], 0), ["-e -t 10.96.0.1:80 -r 10.244.0.1:8080 -m -w 1"]);
  assertEquals(list.size, 0);
  // It is there already, and adding it is what the kernel refuses; a new one is added.
  assertEquals(takeAll(list, [{ ...back, real: real(2) }], 0), [
    "-a -t 10.96.0.1:80 -r 10.244.0.2:8080 -m -w 1",
  ]);
  takeAll(list, [removal(2)], 0);
  assertEquals(takeAll(list, [{ ...back, kind: "updateReal", real: real(2) }], 0).length, 1);
  assertEquals(list.size, 0);
});

Deno.test(
  "one that an earlier process left is not written again, and its time begins now",
  { permissions },
  () => {
    const list = new Terminations(DEADLINE_MS);
    assertEquals(takeAll(list, [removal(1, { weight: 0 })], 7), []);
    assertEquals(list.nextDeadlineMs, 7 + DEADLINE_MS);
    // Another full sync finds it again: its time goes on.
    assertEquals(takeAll(list, [removal(1, { weight: 0 })], 1_000), []);
    assertEquals([list.size, list.nextDeadlineMs], [1, 7 + DEADLINE_MS]);
  },
);

Deno.test("a virtual server that goes takes its real servers along", { permissions }, () => {
  const list = new Terminations(DEADLINE_MS);
  takeAll(list, [removal(1), removal(2)], 0);
  assertEquals(list.virtualServers.map(({ address, port }) => `${address}:${port}`), ["10.96.0.1:80"]);
  assertEquals(takeAll(list, [deletion()], 0), ["-D -t 10.96.0.1:80"]);
  assertEquals([list.size, list.virtualServers.length], [0, 0]);
});

Deno.test("what somebody else deleted is forgotten, by a sweep and by a full sync of its family", {
  permissions,
}, () => {
  const list = new Terminations(DEADLINE_MS);
  takeAll(list, [removal(1), removal(2)], 0);
  const sweep = list.sweep(loads(load(2, 1, 0)), 0);
  assertEquals(sweep, {
    lines: [],
    ended: [{ key: "10.96.0.1:80/TCP/10.244.0.1:8080", end: "vanished" }],
  });
  list.finish(sweep);
  assertEquals(list.size, 1);
  const saved = (...reals: readonly RealServer[]): Map<string, SavedVirtualServer> =>
    new Map([["10.96.0.1:80/TCP", {
      server: server(),
      realServers: new Map(reals.map((one) => [`${one.address}:${one.port}`, one])),
    }]]);
  list.retain(saved(), () => false);
  list.retain(saved(real(2, 0)), () => true);
  assertEquals(list.size, 1);
  list.retain(saved(), () => true);
  assertEquals(list.size, 0);
});
