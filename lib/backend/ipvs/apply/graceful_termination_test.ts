import { assertEquals } from "@std/assert";
import { FakeIpvs } from "../../../../tests/support/fake_ipvs.ts";
import { type Clock, Mutex } from "../../../kernel/clock.ts";
import { Ipvsadm } from "../../../kernel/ipvsadm.ts";
import type { Protocol } from "../../../model/objects.ts";
import {
  addRealServerLine,
  deleteRealServerLine,
  deleteVirtualServerLine,
  parseIpvsTable,
  type RealServer,
  updateRealServerLine,
  type VirtualServer,
} from "../../../netfilter/ipvs.ts";
import { silentLogger } from "../../../observe/log.ts";
import type { ServerChange } from "../store/transaction.ts";
import { GracefulTermination } from "./graceful_termination.ts";

const NONE = { permissions: "none" } as const;
const DEADLINE_MS = 60_000;

function server(protocol: Protocol = "TCP", address = "10.96.0.1"): VirtualServer {
  return { address, protocol, port: 80, scheduler: "rr", flags: [], timeoutSeconds: 0 };
}

function real(last: number, weight = 1): RealServer {
  return { address: `10.244.0.${last}`, port: 8080, weight };
}

function leaving(server: VirtualServer, real: RealServer, graceful: boolean): ServerChange {
  return { kind: "removeReal", server, real, graceful, line: deleteRealServerLine(server, real) };
}

function removal(
  last: number,
  { protocol, graceful = true, weight }: { protocol?: Protocol; graceful?: boolean; weight?: number } = {},
): ServerChange {
  return leaving(server(protocol), real(last, weight), graceful);
}

function deletion(address?: string): ServerChange {
  const one = server("TCP", address);
  const evidence = { isBound: true, isNamed: true };
  return { kind: "deleteServer", server: one, evidence, line: deleteVirtualServerLine(one) };
}

function addition(last: number): ServerChange {
  return {
    kind: "addReal",
    server: server(),
    real: real(last),
    line: addRealServerLine(server(), real(last)),
  };
}

/** A node with a virtual server, its real servers and their connections; time passes when the test says so. */
class Rig implements AsyncDisposable {
  readonly fake = new FakeIpvs();
  readonly mutex = new Mutex();
  readonly terminations: GracefulTermination;
  /** Real server → its connections, as `ipvsadm -Ln` prints them. */
  readonly connections = new Map<string, string>();
  nowMs = 0;
  #wake: { readonly atMs: number; readonly resolve: () => void } | null = null;

  constructor({ deadlineMs = 0, reals = [1, 2] }: { deadlineMs?: number; reals?: readonly number[] } = {}) {
    this.#do("-A -t 10.96.0.1:80 -s rr");
    for (const last of reals) this.#do(`-a -t 10.96.0.1:80 -r 10.244.0.${last}:8080 -m -w 1`);
    const run = this.fake.run.bind(this.fake);
    this.fake.run = async (argv, options) => {
      const result = await run(argv, options);
      if (argv[1] !== "-Ln") return result;
      const stdout = result.stdout.replace(
        /^( *-> )(\S+)( .*?)\d+ +\d+ *$/gm,
        (_, arrow, key, middle) => `${arrow}${key}${middle}${this.connections.get(key) ?? "0 0"}`,
      );
      return { ...result, stdout };
    };
    const clock: Clock = {
      nowMs: () => this.nowMs,
      sleep: (ms, signal) =>
        new Promise((resolve) => {
          this.#wake = { atMs: this.nowMs + ms, resolve };
          signal?.addEventListener("abort", () => resolve());
        }),
    };
    const { fake, mutex } = this;
    const ipvs = new Ipvsadm(fake);
    this.terminations = new GracefulTermination({ ipvs, clock, log: silentLogger, deadlineMs, mutex });
  }

  #do(line: string): void {
    this.fake.kernel.do({ program: "ipvsadm", line });
  }

  /** As a sync does. @returns the lines that were written */
  async write(...changes: readonly ServerChange[]): Promise<readonly string[]> {
    const lines = changes.flatMap((change) => this.terminations.linesOf(change));
    await this.mutex.run(() => Promise.resolve(lines.forEach((line) => this.#do(line))));
    this.terminations.begin();
    await this.#settled();
    return lines;
  }

  /** Lets time pass up to the next check of connections, and waits for it. @returns when it was, in milliseconds */
  async nextLook(): Promise<number | null> {
    const wake = this.#wake;
    if (wake === null) return null;
    this.#wake = null;
    this.nowMs = wake.atMs;
    wake.resolve();
    await this.#settled();
    return this.nowMs;
  }

  async #settled(): Promise<void> {
    for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setTimeout(resolve));
  }

  /** Real servers with their weights. */
  get reals(): readonly string[] {
    return Array.from(
      this.fake.kernel.servers.get("-t 10.96.0.1:80")?.real ?? [],
      ([key, options]) =>
        `${key.slice("10.244.0.".length, -":8080".length)}${options.slice(" -m -w".length - 1)}`,
    );
  }

  busy(...lasts: readonly number[]): void {
    for (const last of lasts) this.connections.set(`10.244.0.${last}:8080`, "2 1");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.terminations.close();
  }
}

Deno.test(
  "a real server of TCP that leaves gets no new connections, and goes when the last one ends",
  NONE,
  async () => {
    await using rig = new Rig({ reals: [1, 2, 3, 4] });
    rig.connections.set("10.244.0.2:8080", "1 0").set("10.244.0.3:8080", "0 1");
    assertEquals(
      await rig.write(removal(1), removal(2), removal(3)),
      [1, 2, 3].map((last) => `-e -t 10.96.0.1:80 -r 10.244.0.${last}:8080 -m -w 0`),
    );
    assertEquals(rig.reals, ["1 0", "2 0", "3 0", "4 1"]);
    assertEquals(await rig.nextLook(), 1_000);
    assertEquals([rig.reals, rig.terminations.size], [["2 0", "3 0", "4 1"], 2]);
    rig.connections.delete("10.244.0.2:8080");
    assertEquals(await rig.nextLook(), 3_000);
    assertEquals(rig.reals, ["3 0", "4 1"]);
    rig.connections.clear();
    await rig.nextLook();
    assertEquals([rig.reals, rig.terminations.size, await rig.nextLook()], [["4 1"], 0, null]);
  },
);

Deno.test("looks become rarer, up to one in 15 s, and begin anew when another one leaves", NONE, async () => {
  await using rig = new Rig();
  rig.busy(1, 2);
  await rig.write(removal(1));
  const looks: (number | null)[] = [];
  for (let look = 0; look < 6; look++) looks.push(await rig.nextLook());
  assertEquals(looks, [1_000, 3_000, 7_000, 15_000, 30_000, 45_000]);
  await rig.write(removal(2));
  assertEquals([await rig.nextLook(), await rig.nextLook()], [60_000, 61_000]);
});

Deno.test("its time is up at the deadline, whatever its connections", NONE, async () => {
  await using rig = new Rig({ deadlineMs: DEADLINE_MS });
  rig.busy(1, 2);
  await rig.write(removal(1));
  rig.nowMs = 900;
  await rig.write(removal(2));
  while (rig.reals.length === 2) await rig.nextLook();
  assertEquals([rig.nowMs, rig.reals], [DEADLINE_MS, ["2 0"]]);
  while (rig.reals.length === 1) await rig.nextLook();
  assertEquals([rig.nowMs, rig.terminations.size], [DEADLINE_MS + 900, 0]);
});

Deno.test("what cannot be deleted is tried again after a pause", NONE, async () => {
  await using rig = new Rig({ deadlineMs: 500 });
  rig.busy(1);
  await rig.write(removal(1));
  rig.fake.fail = (argv) => argv[1] === "-R" ? { code: 1, stdout: "", stderr: "busy\n" } : undefined;
  assertEquals([await rig.nextLook(), rig.terminations.size], [500, 1]);
  assertEquals([await rig.nextLook(), rig.terminations.size], [2_500, 1]);
  rig.fake.fail = () => undefined;
  await rig.nextLook();
  assertEquals([rig.reals, rig.terminations.size], [["2 1"], 0]);
});

Deno.test("a virtual server that goes takes its own along, as many as they are", NONE, async () => {
  await using rig = new Rig();
  await rig.write(removal(1), removal(2));
  assertEquals(rig.terminations.linesOf(deletion("10.96.0.2")), ["-D -t 10.96.0.2:80"]);
  assertEquals(rig.terminations.size, 2);
  assertEquals(rig.terminations.linesOf(deletion()), ["-D -t 10.96.0.1:80"]);
  assertEquals(rig.terminations.size, 0);
});

Deno.test("UDP, SCTP and Services that ask for it lose a real server at once", NONE, async () => {
  await using rig = new Rig();
  const lines = [
    removal(1, { protocol: "UDP" }),
    removal(1, { protocol: "SCTP" }),
    removal(1, { graceful: false }),
  ].flatMap((change) => rig.terminations.linesOf(change));
  assertEquals(
    lines,
    ["-u", "--sctp-service", "-t"].map((option) => `-d ${option} 10.96.0.1:80 -r 10.244.0.1:8080`),
  );
  assertEquals(rig.terminations.size, 0);
  // Even one that was on its way.
  await rig.write(removal(1));
  assertEquals((await rig.write(removal(1, { graceful: false, weight: 0 }))).length, 1);
  assertEquals(rig.terminations.size, 0);
});

Deno.test("one that is wanted again keeps its connections", NONE, async () => {
  await using rig = new Rig({ reals: [1] });
  await rig.write(removal(1));
  assertEquals(await rig.write(addition(1)), ["-e -t 10.96.0.1:80 -r 10.244.0.1:8080 -m -w 1"]);
  assertEquals(rig.terminations.size, 0);
  // It is there already, and adding it is what the kernel refuses; a new one is added.
  assertEquals(await rig.write(addition(2)), ["-a -t 10.96.0.1:80 -r 10.244.0.2:8080 -m -w 1"]);
  await rig.write(removal(2));
  assertEquals(
    (await rig.write({
      kind: "updateReal",
      server: server(),
      real: real(2),
      line: updateRealServerLine(server(), real(2)),
    })).length,
    1,
  );
  assertEquals(rig.terminations.size, 0);
  await rig.nextLook();
  assertEquals(rig.reals, ["1 1", "2 1"]);
});

Deno.test(
  "one that an earlier process left is not written again, and its time begins now",
  NONE,
  async () => {
    await using rig = new Rig({ deadlineMs: DEADLINE_MS });
    rig.busy(1);
    rig.nowMs = 7;
    assertEquals(await rig.write(removal(1, { weight: 0 })), []);
    rig.nowMs = 500;
    // Another full sync finds it again: its time goes on.
    assertEquals(await rig.write(removal(1, { weight: 0 })), []);
    while (rig.terminations.size > 0) await rig.nextLook();
    assertEquals(rig.nowMs, 7 + DEADLINE_MS);
  },
);

Deno.test(
  "what another process deleted is forgotten, by a look and by a full sync of its family",
  NONE,
  async () => {
    await using rig = new Rig({ reals: [1, 2, 3] });
    rig.busy(2, 3);
    await rig.write(removal(1), removal(2), removal(3));
    rig.fake.kernel.do({ program: "ipvsadm", line: "-d -t 10.96.0.1:80 -r 10.244.0.1:8080" });
    await rig.nextLook();
    assertEquals([rig.reals, rig.terminations.size], [["2 0", "3 0"], 2]);
    const saved = (text: string) => parseIpvsTable(text).virtualServers;
    const rest = "-A -t 10.96.0.1:80 -s rr\n-a -t 10.96.0.1:80 -r 10.244.0.2:8080 -m -w 0\n";
    rig.terminations.found(saved(""), "IPv6");
    assertEquals(rig.terminations.size, 2);
    rig.terminations.found(saved(rest), "IPv4");
    assertEquals(rig.terminations.size, 1);
    rig.terminations.found(saved(""), "IPv4");
    assertEquals(rig.terminations.size, 0);
  },
);

Deno.test("with real servers of many virtual servers, all are looked at in one run", NONE, async () => {
  await using rig = new Rig();
  const many = [1, 2, 3, 4, 5].map((last) => server("TCP", `10.96.0.${last}`));
  for (const { address } of many.slice(1)) {
    rig.fake.kernel.servers.set(`-t ${address}:80`, {
      options: "-s rr",
      real: new Map([["10.244.0.1:8080", "-m -w 1"]]),
    });
  }
  await rig.write(
    ...many.map((one) => leaving(one, real(1), true)),
  );
  rig.fake.runs.length = 0;
  await rig.nextLook();
  assertEquals([rig.fake.runs, rig.terminations.size], [["ipvsadm -Ln", "ipvsadm -R"], 0]);
});
