import { assert, assertEquals, assertRejects } from "@std/assert";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";
import { FakeCluster } from "./fake_api.ts";
import { distribution, tenths } from "./figures.ts";
import { type BenchOptions, measure } from "./measure.ts";
import { runtimeFlags } from "../../tools/permissions.ts";
import { ROOT } from "../../tools/project_files.ts";
import type { BenchMode } from "./mode.ts";
import { asOneTransaction, iptablesMode } from "./mode_iptables.ts";
import { NFTABLES_MODE } from "./mode_nftables.ts";
import { sampleIndexes } from "./answers_process.ts";
import { PeerBench, type PeerResult } from "./peer_bench.ts";
import { findPeer, type Peer } from "./peer_process.ts";
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
  return await inFolder((folder) => record({ size, mode }, plannedSteps(size, 3, 1), folder));
}

/** A program in a folder that is started like a kube-proxy. */
async function peerScript(folder: string, script: string): Promise<Peer> {
  await Deno.writeTextFile(`${folder}/peer`, `#!/bin/sh\n${script}\n`, { mode: 0o700 });
  return await findPeer(`${folder}/peer`);
}

/** kproxy itself as the peer: another program that reads a kube-proxy's configuration. */
const KPROXY_SCRIPT = `exec '${Deno.execPath()}' run -q ${runtimeFlags().join(" ")} '${ROOT}/main.ts' "$@"`;

Deno.test("the sample Services are spread over all, ends included", { permissions: "none" }, () => {
  assertEquals(sampleIndexes(3), [0, 1, 2]);
  assertEquals(sampleIndexes(1), [0]);
  const many = sampleIndexes(1000);
  assertEquals([many.length, new Set(many).size, many[0], many[1], many.at(-1)], [24, 24, 0, 43, 999]);
});

e2eTest("a peer that ends instead of serving is told with its last words", NEEDS, async () => {
  await inFolder(async (folder) => {
    const script = '[ "$1" = --version ] && echo v1 && exit; echo "unknown mode" >&2; exit 1';
    const peer = await peerScript(folder, script);
    const size = { services: 2, endpoints: 1 };
    const bench = new PeerBench({ peer, mode: NFTABLES_MODE, size, spacingMs: 100 }, folder);
    const { message } = await assertRejects(() => bench.firstSync(), Error);
    assertEquals(message, "The peer ended before Services answered:\nunknown mode");
  });
});

/** The first program that writes IPv4's rules is at most this one of a start. */
const MAX_WRITING_PROGRAM: Readonly<Record<string, number>> = { iptables: 18, nftables: 12 };

/** The peer is another kproxy: what is measured of it must be of the same order. */
function assertPeerMeasured(peer: PeerResult, table: string): void {
  assert((peer.firstSync.answeredMs[0] ?? Infinity) < 60_000, `${peer.firstSync.answeredMs} ms`);
  assertEquals([peer.touch.count, peer.serviceAdded.count, peer.serviceDeleted.count], [3, 1, 1]);
  for (const { p50 } of [peer.touch, peer.serviceAdded, peer.serviceDeleted]) {
    assert(p50 > 0 && p50 < 10_000, `${p50} ms`);
  }
  const { nowMb, anonymousMb, peakMb } = peer.memoryAtEnd;
  assert(
    anonymousMb > 5 && anonymousMb < nowMb && nowMb <= peakMb && peakMb < 250,
    `${anonymousMb} ${nowMb} ${peakMb} MB`,
  );
  assert(peer.cpuMsPerTouch > 0 && peer.startCpuMs > 0);
  assert(table.includes(peer.version) && table.includes("until Services answered"), table);
}

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

  // A peer takes as long again, and one mode shows how it is measured.
  const isBesidePeer = mode === NFTABLES_MODE;
  const name = `the benchmark measures kproxy beside the bare program${isBesidePeer ? " and a peer" : ""}`;
  e2eTest(`${mode.title}: ${name}`, NEEDS, async () => {
    const options: Omit<BenchOptions, "peer"> = {
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
    const result = await inFolder(async (folder) => {
      const peer = isBesidePeer ? await peerScript(folder, KPROXY_SCRIPT) : null;
      return await measure({ ...options, peer }, folder);
    });
    const { firstSync, touch, serviceAdded, serviceDeleted } = result;
    // All limits are many times what a quiet machine shows: they catch another order of growth, not a busy neighbour.
    assert((firstSync.kproxyMs[0] ?? Infinity) < 60_000, `first sync took ${firstSync.kproxyMs} ms`);
    assert(
      (firstSync.answeredMs[0] ?? Infinity) < 60_000,
      `Services answered after ${firstSync.answeredMs} ms`,
    );
    assert((firstSync.oneTransactionMs ?? 0) > 0 && (firstSync.bareMs[0] ?? 0) > 0);
    for (const [name, change] of Object.entries({ touch, serviceAdded, serviceDeleted })) {
      assertEquals(change.programs, 1, name);
      assert(change.kproxy.p50 > 0 && change.bare.p50 > 0, name);
      const limitMs = 10 * change.bare.p50 + 5_000;
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
    assertEquals(result.peer !== null, isBesidePeer);
    if (result.peer !== null) assertPeerMeasured(result.peer, table);
  });
}
