import { assertEquals } from "@std/assert";
import { FakeIpvs } from "../../../../tests/support/fake_ipvs.ts";
import type { Clock } from "../../../kernel/clock.ts";
import { Ipvsadm } from "../../../kernel/ipvsadm.ts";
import type { RealServer, VirtualServer } from "../../../netfilter/ipvs.ts";
import { silentLogger } from "../../../observe/log.ts";
import type { ServerChange } from "../store/transaction.ts";
import { IpvsNode } from "./ipvs_node.ts";
import { IpvsWriter, newProgress } from "./writer.ts";

const NONE = { permissions: "none" } as const;
const SERVER: VirtualServer = {
  address: "10.96.0.1",
  protocol: "TCP",
  port: 80,
  scheduler: "rr",
  flags: [],
  timeoutSeconds: 0,
};

function real(last: number): RealServer {
  return { address: `10.244.0.${last}`, port: 8080, weight: 1 };
}

function leaves(last: number): ServerChange {
  return { kind: "removeReal", server: SERVER, real: real(last), graceful: true };
}

/** A node with two real servers whose connections are counted when the test says so. */
class Rig implements AsyncDisposable {
  readonly fake = new FakeIpvs();
  readonly #asked = Promise.withResolvers<void>();
  readonly #answer = Promise.withResolvers<void>();
  readonly node: IpvsNode;

  constructor() {
    for (
      const line of [
        "-A -t 10.96.0.1:80 -s rr",
        ...[1, 2].map((last) => `-a ${this.#real(last)} -m -w 1`),
      ]
    ) {
      this.fake.kernel.do({ program: "ipvsadm", line });
    }
    this.fake.afterRun = async (argv) => {
      if (argv[1] !== "-Ln") return;
      this.#asked.resolve();
      await this.#answer.promise;
    };
    let nowMs = 0;
    const clock: Clock = {
      nowMs: () => nowMs,
      // Time passes as soon as nobody has anything to do.
      sleep: (ms) =>
        new Promise((resolve) =>
          setTimeout(() => {
            nowMs += ms;
            resolve();
          })
        ),
    };
    const ipvs = new Ipvsadm(this.fake);
    this.node = new IpvsNode({ ipvs, clock, log: silentLogger, terminationDeadlineMs: 0 });
  }

  #real(last: number): string {
    return `-t 10.96.0.1:80 -r 10.244.0.${last}:8080`;
  }

  /** As a sync does. */
  async write(...changes: readonly ServerChange[]): Promise<void> {
    const { fake, node } = this;
    const writer = new IpvsWriter({
      exec: fake,
      node,
      iptables: fake.iptables("IPv4"),
      progress: newProgress(),
    });
    await node.exclusively(() => writer.write([{ program: "ipvsadm", changes }]));
  }

  /** Resolves once the connections were counted, before anybody is told of them. */
  counted(): Promise<void> {
    return this.#asked.promise;
  }

  /** Tells, and waits until nothing leaves any more. */
  async settled(): Promise<void> {
    this.#answer.resolve();
    while (this.node.terminations.size > 0) await new Promise((resolve) => setTimeout(resolve, 1));
  }

  get reals(): readonly string[] {
    return [...this.fake.kernel.servers.get("-t 10.96.0.1:80")?.real.entries() ?? []].map((one) =>
      one.join(" ")
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#answer.resolve();
    await this.node.close();
  }
}

Deno.test("real servers without connections are deleted after a look", NONE, async () => {
  await using rig = new Rig();
  await rig.write(leaves(1));
  assertEquals(rig.reals, ["10.244.0.1:8080 -m -w 0", "10.244.0.2:8080 -m -w 1"]);
  await rig.settled();
  assertEquals(rig.reals, ["10.244.0.2:8080 -m -w 1"]);
});

Deno.test(
  "a sync does not wait for a look at the connections, and what it wants back stays",
  NONE,
  async () => {
    await using rig = new Rig();
    await rig.write(leaves(1), leaves(2));
    await rig.counted();
    // Had it to wait, nobody would go on from here.
    await rig.write({ kind: "addReal", server: SERVER, real: real(2) });
    await rig.settled();
    assertEquals(rig.reals, ["10.244.0.2:8080 -m -w 1"]);
  },
);

Deno.test("one that came and went again during a look has one of its own", NONE, async () => {
  await using rig = new Rig();
  await rig.write(leaves(1));
  await rig.counted();
  await rig.write({ kind: "addReal", server: SERVER, real: real(1) }, leaves(1));
  const looks = () => rig.fake.runs.filter((run) => run === "ipvsadm -Ln").length;
  assertEquals(looks(), 1);
  await rig.settled();
  assertEquals([rig.reals, looks()], [["10.244.0.2:8080 -m -w 1"], 2]);
});
