import { assertEquals, assertRejects } from "@std/assert";
import { ExecError, SyncError } from "../errors.ts";
import type { Clock } from "../kernel/clock.ts";
import { type Exec, type ExecOptions, wholeText } from "../kernel/exec.ts";
import type { IpFamily } from "../model/objects.ts";
import { recordingClock } from "../../tests/support/recording_clock.ts";
import { recordingLog } from "../../tests/support/recording_log.ts";
import { syncOutcome } from "../../tests/support/sync_outcome.ts";
import { OtherModesCleanup } from "./other_modes.ts";

/** A node with nftables and nothing else; its tables are as `nft list tables` would name them. */
class FakeNft implements Exec {
  tables = new Set(["ip kube-proxy", "ip6 kube-proxy", "ip6 kproxy", "inet kube-proxy"]);
  refuses = false;

  async run(argv: readonly string[], { stdin = "" }: ExecOptions = {}) {
    await Promise.resolve();
    if (argv[0] !== "nft") throw new ExecError(argv, -1, "entity not found");
    if (this.refuses) return { code: 1, stdout: "", stderr: "Error: Operation not permitted" };
    const tables = new Set(this.tables);
    for (const line of wholeText(stdin).trimEnd().split("\n")) {
      const [verb, , ...table] = line.split(" ");
      if (verb === "add") tables.add(table.join(" "));
      else if (verb === "create") {
        if (tables.has(table.join(" "))) return { code: 1, stdout: "", stderr: "Error: File exists" };
        tables.add(table.join(" "));
      } else if (!tables.delete(table.join(" "))) {
        return { code: 1, stdout: "", stderr: "Error: No such file or directory" };
      }
    }
    if (!argv.includes("-c")) this.tables = tables;
    return { code: 0, stdout: "", stderr: "" };
  }
}

/** How long a removal waits for another family, as it asks before each try; the second pause between tries is as long. */
const OTHER_FAMILY_WAIT_MS = 10_000;
const FIRST_RETRY_MS = 5_000;

/** A clock whose waits are over at once. */
const IMPATIENT: Clock = {
  nowMs: () => 0,
  // Only the first retry never comes.
  sleep: (ms) => ms === FIRST_RETRY_MS ? new Promise(() => {}) : Promise.resolve(),
};

function setUp(families: readonly IpFamily[], clock: Clock = IMPATIENT) {
  const exec = new FakeNft();
  const lines: string[] = [];
  const log = {
    enabled: () => true,
    info: (message: string) => void lines.push(`I ${message}`),
    warn: (message: string) => void lines.push(`W ${message}`),
    error: (message: string) => void lines.push(`E ${message}`),
  };
  const cleanup = new OtherModesCleanup({ modes: ["nftables"], families, log, exec, clock });
  const synced = async (family: IpFamily): Promise<readonly string[]> => {
    cleanup.observer.synced(syncOutcome(family));
    await cleanup.settled();
    return [...exec.tables];
  };
  return { exec, lines, cleanup, synced };
}

Deno.test("each family's things go after its own first sync, once", { permissions: "none" }, async () => {
  const { exec, lines, synced } = setUp(["IPv4", "IPv6"]);
  assertEquals(await synced("IPv4"), ["ip6 kube-proxy", "ip6 kproxy", "inet kube-proxy"]);
  exec.tables.add("ip kube-proxy");
  // A table that is made again now is not a leftover.
  assertEquals((await synced("IPv4")).includes("ip kube-proxy"), true);
  assertEquals(await synced("IPv6"), ["inet kube-proxy", "ip kube-proxy"]);
  assertEquals(lines, ["I Removed what another mode left", "I Removed what another mode left"]);
});

Deno.test("nothing is looked for while the other family has its first sync to come", {
  permissions: "none",
}, async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  const slept: number[] = [];
  const { exec, cleanup } = setUp(["IPv4", "IPv6"], {
    nowMs: () => 0,
    sleep: (ms, signal) => {
      slept.push(ms);
      if (signal?.aborted) return Promise.resolve();
      signal?.addEventListener("abort", () => resolve());
      return promise;
    },
  });
  cleanup.observer.synced(syncOutcome("IPv6"));
  await new Promise((resolve) => setTimeout(resolve, 5));
  assertEquals([exec.tables.size, slept], [4, [10_000]]);
  cleanup.observer.synced(syncOutcome("IPv4"));
  await cleanup.settled();
  assertEquals([...exec.tables], ["inet kube-proxy"]);
});

Deno.test("a family that failed keeps its things until it is in force", { permissions: "none" }, async () => {
  const { exec, cleanup, synced } = setUp(["IPv4", "IPv6"]);
  const error = new SyncError("iptables", "apply", "no");
  cleanup.observer.failed({ family: "IPv6", full: true, error, durationMs: 1 });
  await synced("IPv4");
  assertEquals(exec.tables.has("ip6 kube-proxy"), true);
  await synced("IPv6");
  assertEquals(exec.tables.has("ip6 kube-proxy"), false);
});

Deno.test(
  "things of a family that is not served go with the last that is",
  { permissions: "none" },
  async () => {
    const { synced } = setUp(["IPv4"]);
    assertEquals(await synced("IPv4"), ["inet kube-proxy"]);
  },
);

Deno.test("what is refused is a warning", { permissions: "none" }, async () => {
  const { exec, lines, synced } = setUp(["IPv4"]);
  exec.refuses = true;
  assertEquals((await synced("IPv4")).length, 4);
  assertEquals(lines, ["W Cannot remove what another mode left"]);
});

Deno.test("what could not be carried out is tried again, ever later, and reported once", {
  permissions: "none",
}, async () => {
  const clock = recordingClock();
  const { exec, lines, cleanup, synced } = setUp(["IPv4"], clock);
  const run = exec.run.bind(exec);
  let failing = 6;
  exec.run = (argv, options) =>
    failing-- > 0 ? Promise.reject(new ExecError(argv, -2, "Too many open files")) : run(argv, options);
  await synced("IPv4");
  for (let i = 0; i < 100 && exec.tables.size > 1; i++) {
    await new Promise((resolve) => setTimeout(resolve));
    await cleanup.settled();
  }
  assertEquals([...exec.tables], ["inet kube-proxy"]);
  assertEquals(lines.filter((line) => !line.startsWith("I")), ["W Cannot remove what another mode left"]);
  const { waits } = clock;
  assertEquals(waits.filter((ms) => ms !== OTHER_FAMILY_WAIT_MS).slice(0, 2), [5_000, 20_000]);
  const before = waits.length;
  await new Promise((resolve) => setTimeout(resolve));
  await cleanup.settled();
  assertEquals(waits.length, before);
});

Deno.test("an end in the middle ends the program, and says so", { permissions: "none" }, async () => {
  const lines: string[] = [];
  let left = 0;
  const exec: Exec = {
    run: (_argv, { signal } = {}) =>
      new Promise((_resolve, reject) => {
        left++;
        signal?.addEventListener("abort", () => {
          left--;
          reject(signal.reason);
        });
      }),
  };
  const log = {
    enabled: () => true,
    info: (message: string) => void lines.push(`I ${message}`),
    warn: (message: string) => void lines.push(`W ${message}`),
    error: (message: string) => void lines.push(`E ${message}`),
  };
  const families: IpFamily[] = ["IPv4", "IPv6"];
  const cleanup = new OtherModesCleanup({ modes: ["ipvs"], families, log, exec, clock: IMPATIENT });
  cleanup.observer.synced(syncOutcome("IPv4"));
  for (let tries = 0; tries < 1000 && left === 0; tries++) {
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  assertEquals(left, 1);
  cleanup.end();
  // It comes with the last sync, which had some more time.
  cleanup.observer.synced(syncOutcome("IPv6"));
  await cleanup.settled();
  assertEquals(left, 0);
  assertEquals(lines, ["I Stopped looking for what other modes left, the next start goes on with it"]);
});

Deno.test("nothing is removed while the next proxy server is prepared, nor once it is", {
  permissions: "none",
}, async () => {
  const { exec, cleanup, synced } = setUp(["IPv4", "IPv6"]);
  await synced("IPv4");
  await cleanup.undisturbed(async () => {
    // A mode that is being prepared may have the tables of one that is being removed.
    assertEquals(await synced("IPv6"), ["ip6 kube-proxy", "ip6 kproxy", "inet kube-proxy"]);
  });
  await cleanup.settled();
  assertEquals([...exec.tables], ["ip6 kube-proxy", "ip6 kproxy", "inet kube-proxy"]);
});

Deno.test("a preparation that fails stops a removal for its time only", { permissions: "none" }, async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  let commands = 0;
  const { exec, lines, cleanup } = setUp(["IPv4"]);
  const run = exec.run.bind(exec);
  // The first program hangs until it is ended.
  exec.run = async (argv, options = {}) => {
    if (++commands > 1) return await run(argv, options);
    resolve();
    return await new Promise((_resolve, reject) => {
      options.signal?.addEventListener("abort", () => reject(options.signal?.reason));
    });
  };
  cleanup.observer.synced(syncOutcome("IPv4"));
  await promise;
  const refusal = new Error("no module ip_vs");
  const before = exec.tables.size;
  const prepared = cleanup.undisturbed(() => {
    assertEquals(exec.tables.size, before);
    return Promise.reject(refusal);
  });
  assertEquals(await prepared.catch((error: unknown) => error), refusal);
  await cleanup.settled();
  assertEquals([...exec.tables], ["inet kube-proxy"]);
  assertEquals(lines, [
    "I Stopped looking for what other modes left, a changed configuration comes first",
    "I Removed what another mode left",
  ]);
});

Deno.test("a preparation that fails because everything ends begins no removal", {
  permissions: "none",
}, async () => {
  const { exec, cleanup, synced } = setUp(["IPv4"]);
  const prepared = cleanup.undisturbed(async () => {
    await synced("IPv4");
    cleanup.end();
    throw new DOMException("ending", "AbortError");
  });
  await assertRejects(() => prepared, DOMException, "ending");
  await cleanup.settled();
  assertEquals(exec.tables.size, 4);
});

Deno.test(
  "of the mode that runs kube-proxy's tables go, and ours stay",
  { permissions: "none" },
  async () => {
    const exec = new FakeNft();
    exec.tables.add("ip kproxy");
    const { log, lines } = recordingLog();
    const cleanup = new OtherModesCleanup({
      modes: ["iptables", "ipvs", "userspace"],
      ownMode: "nftables",
      families: ["IPv4", "IPv6"],
      log,
      exec,
      clock: IMPATIENT,
    });
    cleanup.observer.synced(syncOutcome("IPv4"));
    await cleanup.settled();
    assertEquals([...exec.tables].sort(), ["inet kube-proxy", "ip kproxy", "ip6 kproxy", "ip6 kube-proxy"]);
    cleanup.observer.synced(syncOutcome("IPv6"));
    await cleanup.settled();
    assertEquals([...exec.tables].sort(), ["inet kube-proxy", "ip kproxy", "ip6 kproxy"]);
    assertEquals(lines.filter((line) => line.startsWith("I")), [
      'I "Removed what kube-proxy left" what="tables of nft" count=1',
      'I "Removed what kube-proxy left" what="tables of nft" count=1',
    ]);
    // What iptables and IPVS mode left is ours as much as kube-proxy's, so nothing of the mode that runs is touched.
    const programs: string[] = [];
    const counting: Exec = {
      run: (argv) => {
        programs.push(argv.join(" "));
        return Promise.reject(new ExecError(argv, -1, "entity not found"));
      },
    };
    for (const ownMode of ["iptables", "ipvs"] as const) {
      const own = new OtherModesCleanup({
        modes: [],
        ownMode,
        families: ["IPv4"],
        log,
        exec: counting,
        clock: IMPATIENT,
      });
      own.observer.synced(syncOutcome("IPv4"));
      await own.settled();
    }
    assertEquals(programs, []);
  },
);
