import { assertEquals } from "@std/assert";
import { FakeIpvs } from "../../../../tests/support/fake_ipvs.ts";
import { Ipvsadm } from "../../../kernel/ipvsadm.ts";
import type { IpFamily } from "../../../model/objects.ts";
import { silentLogger } from "../../../observe/log.ts";
import type { HeldOwn } from "../store/objects.ts";
import { IpvsNode } from "./ipvs_node.ts";

const NONE = { permissions: "none" } as const;
const LISTED: HeldOwn = { addresses: null, virtualServers: new Map(), sets: new Map() };

/** A node whose families list what is not known, each when it has its turn, and say whether they did. */
class Rig {
  nowMs = 0;
  readonly node: IpvsNode;

  constructor() {
    const clock = { nowMs: () => this.nowMs, sleep: () => new Promise<void>(() => {}) };
    const ipvs = new Ipvsadm(new FakeIpvs());
    this.node = new IpvsNode({ ipvs, clock, log: silentLogger, terminationDeadlineMs: 0 });
  }

  /** @param takesMs how long it writes */
  full(family: IpFamily, takesMs = 0): Promise<"known" | "listed"> {
    return this.node.sync(async (turn) => {
      const known = this.node.known(family, turn);
      if (known === null) await this.node.list(() => Promise.resolve(LISTED));
      this.nowMs += takesMs;
      return known === null ? "listed" : "known";
    });
  }

  /** A sync that needs no listing. */
  change(): Promise<void> {
    return this.node.sync(() => Promise.resolve());
  }
}

Deno.test("who waits while the other family lists need not list, once", NONE, async () => {
  const rig = new Rig();
  assertEquals(await Promise.all([rig.full("IPv4"), rig.full("IPv6")]), ["listed", "known"]);
  assertEquals(await rig.full("IPv6"), "listed");
});

Deno.test("who comes later lists", NONE, async () => {
  const rig = new Rig();
  assertEquals([await rig.full("IPv4"), await rig.full("IPv6")], ["listed", "listed"]);
});

Deno.test("a listing that is old is none", NONE, async () => {
  const rig = new Rig();
  assertEquals(await Promise.all([rig.full("IPv4", 10_001), rig.full("IPv6")]), ["listed", "listed"]);
});

Deno.test("a sync that did not need it leaves none to the next one", NONE, async () => {
  const rig = new Rig();
  await Promise.all([rig.full("IPv4"), rig.change()]);
  assertEquals(await rig.full("IPv6"), "listed");
});

Deno.test("a family does not take what it has listed itself", NONE, async () => {
  const rig = new Rig();
  const first = rig.full("IPv4");
  assertEquals(await Promise.all([first, first.then(() => rig.full("IPv4")), rig.full("IPv6")]), [
    "listed",
    "listed",
    "known",
  ]);
});
