import { assert, assertEquals } from "@std/assert";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";
import { showsChange } from "./element_watch.ts";
import { FakeCluster } from "./fake_api.ts";
import { CommitReader } from "./kernel_events.ts";
import { distribution, tenths } from "./figures.ts";
import { type BenchOptions, measure } from "./measure.ts";
import type { BenchMode } from "./mode.ts";
import { asOneTransaction, iptablesMode } from "./mode_iptables.ts";
import { NFTABLES_MODE } from "./mode_nftables.ts";
import { plannedSteps, record, type Recording } from "./recording.ts";
import type { RecordedRun } from "./recorded_programs.ts";
import { resultTable } from "./report.ts";

const MODES: readonly BenchMode[] = [iptablesMode("nft"), NFTABLES_MODE];
const NEEDS = [ROOT_NAMESPACES, program("iptables"), program("nft")];

Deno.test("figures of samples are nearest ranks", { permissions: "none" }, () => {
  const hundred = Array.from({ length: 100 }, (_, k) => 100 - k);
  assertEquals(distribution(hundred), { count: 100, p50: 50, p99: 99, max: 100 });
  assertEquals(distribution([7]), { count: 1, p50: 7, p99: 7, max: 7 });
});

Deno.test("samples are told by their tenths, in order", { permissions: "none" }, () => {
  const rising = Array.from({ length: 25 }, (_, k) => k);
  assertEquals(tenths(rising), [0.5, 3, 5.5, 8, 10.5, 13, 15.5, 18, 20.5, 23]);
  assertEquals([tenths([4, 2]), tenths([])], [[4, 2], []]);
});

Deno.test("stages become one transaction per table, chains first", { permissions: "none" }, () => {
  const staged =
    "*nat\n:B - [0:0]\n-A B -j C\nCOMMIT\n*filter\n:F - [0:0]\nCOMMIT\n*nat\n:A - [0:0]\n:B - [0:0]\n-A A -j B\nCOMMIT\n";
  assertEquals(
    asOneTransaction(staged),
    "*nat\n:B - [0:0]\n:A - [0:0]\n-A B -j C\n-A A -j B\nCOMMIT\n*filter\n:F - [0:0]\nCOMMIT\n",
  );
});

Deno.test("the fake API server's pages make up the whole list, and it says what it changed", {
  permissions: "none",
}, async () => {
  const cluster = new FakeCluster({ services: 7, endpoints: 2 });
  const names: string[] = [];
  for (let offset: number | undefined = 0; offset !== undefined;) {
    const { metadata, items } = JSON.parse(cluster.page("endpointslices", 3, offset));
    names.push(...items.map((item: { metadata: { name: string } }) => item.metadata.name));
    offset = metadata.continue === undefined ? undefined : Number(metadata.continue);
  }
  assertEquals(names, Array.from({ length: 7 }, (_, index) => `svc-${index}-abc`));

  const events = cluster.watch("endpointslices").pipeThrough(new TextDecoderStream()).getReader();
  const { ip } = cluster.touch(4);
  const event = JSON.parse((await events.read()).value ?? "");
  assertEquals([event.type, event.object.metadata.name], ["MODIFIED", "svc-4-abc"]);
  assertEquals(event.object.endpoints[0].addresses, [ip]);
  const again = cluster.touch(4);
  assert(again.ip !== ip, "touching twice must change the endpoint twice");
  await events.cancel();
});

function bytesOf(runs: readonly RecordedRun[]): number {
  return runs.reduce((sum, { stdin }) => sum + stdin.length, 0);
}

/** A message of the kernel about nftables, as netlink(7) frames it. */
function kernelMessage(type: number, payload: string): Uint8Array {
  const body = Uint8Array.fromHex(payload);
  const message = new Uint8Array(20 + (body.length + 3 & ~3));
  const view = new DataView(message.buffer);
  view.setUint32(0, 20 + body.length, true);
  view.setUint16(4, 10 << 8 | type, true);
  message.set(body, 20);
  return message;
}

Deno.test("the kernel's messages become commits, in which a change is found by its address", {
  permissions: "none",
}, () => {
  const [newElement, deletedElement, newGeneration] = [12, 14, 15];
  const first = new Uint8Array([
    ...kernelMessage(newElement, "00000a6000010000"),
    ...kernelMessage(deletedElement, "0a80000b00"),
  ]);
  const second = new Uint8Array([
    ...kernelMessage(newElement, "0a80000c"),
    ...kernelMessage(newGeneration, "00000001"),
    ...kernelMessage(newGeneration, "00000002"),
  ]);
  const reader = new CommitReader();
  assertEquals([...reader.read(first)], []);
  const [commit, empty] = [...reader.read(second)];
  assert(commit !== undefined && empty !== undefined);
  const shown = (kind: "added" | "deleted", ip: string): boolean => showsChange(commit, { kind, ip });
  assertEquals([shown("added", "10.96.0.1"), shown("added", "10.128.0.12")], [true, true]);
  assertEquals([shown("deleted", "10.128.0.11"), shown("deleted", "10.128.0.12")], [true, false]);
  assertEquals([empty.added, empty.deleted], [[], []]);
});

/** Programs and bytes of each change, in order: three replaced endpoints, a Service added, the same deleted. */
function costs({ changes }: Recording): { programs: number; bytes: number }[] {
  return changes.map(({ runs }) => ({
    programs: runs.length,
    bytes: bytesOf(runs),
  }));
}

async function inFolder<T>(work: (folder: string) => Promise<T>): Promise<T> {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-bench-test-" });
  try {
    return await work(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

async function recordSmall(mode: BenchMode, services: number): Promise<Recording> {
  const size = { services, endpoints: 4 };
  return await inFolder((folder) => record(size, plannedSteps(size, 3, 1), mode, folder));
}

/** The first program that writes IPv4's rules is at most this one of a start. */
const MAX_WRITING_PROGRAM: Readonly<Record<string, number>> = { iptables: 18, nftables: 12 };

for (const mode of MODES) {
  e2eTest(`${mode.title}: a change starts one program, whatever the number of Services`, NEEDS, async () => {
    // At the same time: nothing is timed, and each waits for what a start leaves to be done.
    const [few, many] = await Promise.all([recordSmall(mode, 50), recordSmall(mode, 200)]);
    assert(bytesOf(many.fullSync) > 3 * bytesOf(few.fullSync), "a full sync writes every Service");
    const [first] = many.fullSync;
    const at = first === undefined ? Infinity : many.start.indexOf(first);
    const programs = many.start.map(({ argv }) => argv.join(" ")).join("\n");
    assert(at < (MAX_WRITING_PROGRAM[mode.proxyMode] ?? 0), programs);
    const fewCosts = costs(few), manyCosts = costs(many);
    assertEquals(fewCosts.map(({ programs }) => programs), [1, 1, 1, 1, 1]);
    assertEquals(manyCosts.map(({ programs }) => programs), [1, 1, 1, 1, 1]);
    const program = mode.proxyMode === "nftables" ? "nft" : "iptables-restore";
    for (const { runs } of many.changes) assertEquals(runs[0]?.argv[0], program);
    fewCosts.forEach(({ bytes }, at) => {
      const difference = Math.abs(bytes - (manyCosts[at]?.bytes ?? 0));
      // Names and addresses of other Services are longer by a letter or two in each of up to 20 lines.
      assert(
        difference <= 64,
        `change ${at} writes ${bytes} bytes with 50 Services, ${difference} more with 200`,
      );
      assert(bytes <= 2500, `change ${at} writes ${bytes} bytes`);
    });
  });

  e2eTest(`${mode.title}: the benchmark measures kproxy beside the bare program`, NEEDS, async () => {
    const options: BenchOptions = {
      size: { services: 50, endpoints: 4 },
      mode,
      touches: 3,
      added: 1,
      rounds: 1,
      spacingMs: 500,
      restMs: 0,
      idleMs: 1000,
      oneTransaction: true,
      onProgress: () => {},
      onChange: () => {},
    };
    const result = await inFolder((folder) => measure(options, folder));
    const { firstSync, touch, serviceAdded, serviceDeleted } = result;
    // All limits are many times what a quiet machine shows: they catch another order of growth, not a busy neighbour.
    assert((firstSync.kproxyMs[0] ?? Infinity) < 60_000, `first sync took ${firstSync.kproxyMs} ms`);
    assert((firstSync.oneTransactionMs ?? 0) > 0 && (firstSync.bareMs[0] ?? 0) > 0);
    for (const [name, change] of Object.entries({ touch, serviceAdded, serviceDeleted })) {
      assertEquals(change.programs, 1, name);
      assert(change.kproxy.p50 > 0 && change.bare.p50 > 0, name);
      const limitMs = 10 * change.bare.p50 + 1_000;
      assert(
        change.kproxy.p50 < limitMs,
        `${name}: ${change.kproxy.p50} ms, bare program ${change.bare.p50} ms`,
      );
    }
    assert(!result.lostEvents, "the kernel's events must all be seen at this size");
    assert(result.memoryAtEnd.nowMb > 20 && result.memoryAtEnd.nowMb < 200, `${result.memoryAtEnd.nowMb} MB`);
    assert(result.idleCpuPercent < 20, `${result.idleCpuPercent} % of a core while idle`);
    const table = resultTable(result).join("\n");
    assert(table.includes("one endpoint replaced") && table.includes("first sync"), table);
    assert(table.includes(mode.title), table);
  });
}
