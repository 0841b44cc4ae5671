import { assertEquals } from "@std/assert";
import { FakeNft } from "../../tests/support/fake_nft.ts";
import { recordingLog } from "../../tests/support/recording_log.ts";
import { syncOutcome } from "../../tests/support/sync_outcome.ts";
import { setImmediate } from "node:timers";
import { OtherModesCleanup, preloadRemoval } from "./other_modes.ts";

const PERIOD_MS = 30_000;
const MINUTE_MS = 60_000;
const NONE = { permissions: "none" } as const;
const MAKE = "add table ip kube-proxy\nadd table ip6 kube-proxy\n";

/** A node in nftables mode on which time goes on as told. */
class Rig {
  readonly nft = new FakeNft();
  readonly #log = recordingLog();
  readonly #changes: string[] = [];
  readonly #otherModes: OtherModesCleanup;
  #nowMs = 0;
  #wake: { readonly atMs: number; readonly resolve: () => void } | null = null;

  constructor(ownMode: "nftables" | "iptables" = "nftables") {
    const clock = {
      nowMs: () => this.#nowMs,
      sleep: (ms: number, signal?: AbortSignal) =>
        // A removal does not wait.
        ms !== PERIOD_MS ? Promise.resolve() : new Promise<void>((resolve) => {
          this.#wake = { atMs: this.#nowMs + ms, resolve };
          signal?.addEventListener("abort", () => resolve());
        }),
    };
    this.#otherModes = new OtherModesCleanup({
      families: ["IPv4", "IPv6"],
      log: this.#log.log,
      exec: this.nft,
      modes: [],
      ownMode,
      clock,
    });
    this.#otherModes.watch({
      periodMs: PERIOD_MS,
      onChange: (tables) => void this.#changes.push(tables.join()),
    });
  }

  async start(): Promise<void> {
    for (const family of ["IPv4", "IPv6"] as const) this.#otherModes.observer.synced(syncOutcome(family));
    await preloadRemoval();
    await this.#settle();
  }

  /** Until it sleeps again: a program of the fake takes a few turns. */
  async #settle(): Promise<void> {
    for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
  }

  async pass(ms: number): Promise<void> {
    for (const endMs = this.#nowMs + ms; this.#nowMs < endMs;) {
      this.#nowMs += PERIOD_MS;
      if (this.#wake !== null && this.#wake.atMs <= this.#nowMs) this.#wake.resolve();
      await this.#settle();
    }
  }

  get tables(): string[] {
    return ["ip kube-proxy", "ip6 kube-proxy"].filter((table) => this.nft.listed(table) !== "");
  }

  news(): readonly [string[], string[]] {
    return [
      this.#changes.splice(0),
      this.#log.lines.splice(0).map((line) => line.replace(/ (?:advice|what)=.*/, "")),
    ];
  }

  async end(): Promise<void> {
    this.#otherModes.end();
    await this.#otherModes.settled();
  }
}

Deno.test(
  "a table that comes back is reported once, and left alone for a while, ever longer",
  NONE,
  async () => {
    const rig = new Rig();
    await rig.nft.others(MAKE);
    await rig.start();
    assertEquals([rig.tables, rig.news()[1].length], [[], 2]);
    await rig.pass(2 * MINUTE_MS);
    assertEquals(rig.news(), [[], []]);
    let removals = 0;
    const warnings: string[] = [];
    // A kube-proxy that runs makes its table again whenever it is gone.
    for (let period = 0; period < 8 * 60 * MINUTE_MS / PERIOD_MS; period++) {
      if (rig.tables.length === 0) await rig.nft.others(MAKE);
      await rig.pass(PERIOD_MS);
      if (rig.tables.length === 0) removals++;
      warnings.push(...rig.news()[1].filter((line) => line.startsWith("W")));
    }
    // After 5, 10, 20 and 40 minutes, then every hour.
    assertEquals(removals, 4 + 6);
    assertEquals(warnings, [
      'W "Another service proxy writes rules on this node" tables=["ip kube-proxy","ip6 kube-proxy"]',
    ]);
    await rig.end();
  },
);

Deno.test("what a proxy left that has ended goes after a while, and its end is reported", NONE, async () => {
  const rig = new Rig();
  await rig.start();
  await rig.nft.others("add table ip kube-proxy\n");
  await rig.pass(PERIOD_MS);
  assertEquals(rig.news(), [["ip kube-proxy"], [
    'W "Another service proxy writes rules on this node" tables=["ip kube-proxy"]',
  ]]);
  await rig.pass(4 * MINUTE_MS);
  assertEquals([rig.tables, rig.news()], [["ip kube-proxy"], [[], []]]);
  await rig.pass(2 * MINUTE_MS);
  assertEquals(rig.tables, []);
  assertEquals(rig.news(), [[""], [
    'I "Removed what kube-proxy left"',
    'I "The tables of the other service proxy are gone"',
  ]]);
  await rig.end();
});

Deno.test("no check without a need; an nft that fails is reported once", NONE, async () => {
  const iptables = new Rig("iptables");
  await iptables.start();
  await iptables.nft.others(MAKE);
  const runs = iptables.nft.runs.length;
  await iptables.pass(5 * MINUTE_MS);
  assertEquals([iptables.nft.runs.length, iptables.news()], [runs, [[], []]]);
  await iptables.end();
  const rig = new Rig();
  await rig.start();
  await rig.nft.others(MAKE);
  rig.nft.fail = () => ({ code: 1, stdout: "", stderr: "Error: Operation not permitted\n" });
  await rig.pass(5 * MINUTE_MS);
  const [changes, lines] = rig.news();
  assertEquals([changes, lines.length, lines[0]?.slice(0, 56)], [
    [],
    1,
    'E "Cannot look for the tables of another service proxy" ',
  ]);
  rig.nft.fail = () => undefined;
  await rig.pass(MINUTE_MS);
  assertEquals(rig.news()[0], ["ip kube-proxy,ip6 kube-proxy"]);
  await rig.end();
});
