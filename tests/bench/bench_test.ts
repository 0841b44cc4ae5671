import { assert, assertEquals } from "@std/assert";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";
import { measure } from "./measure.ts";
import { kproxyArgv } from "../cli/kproxy.ts";
import { testBundle } from "../support/bundle_folder.ts";
import type { BenchMode } from "./mode.ts";
import { IPTABLES_MODE } from "./mode_iptables.ts";
import { NFTABLES_MODE } from "./mode_nftables.ts";
import { measurePackets } from "./packets.ts";
import { findPeer, type Peer } from "./peer_process.ts";
import { plannedSteps, record, type Recording } from "./recording.ts";
import type { RecordedRun } from "./recorded_programs.ts";

const MODES: readonly BenchMode[] = [IPTABLES_MODE, NFTABLES_MODE];
const NEEDS = [ROOT_NAMESPACES, program("iptables"), program("nft")];

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
  return await inFolder((folder) =>
    record({ size, mode, program: testBundle() }, plannedSteps(size, 3, 1), folder)
  );
}

/** A program in a folder that is started like a kube-proxy. */
async function peerScript(folder: string, script: string): Promise<Peer> {
  await Deno.writeTextFile(`${folder}/peer`, `#!/bin/sh\n${script}\n`, { mode: 0o700 });
  return await findPeer(`${folder}/peer`);
}

/** kproxy itself as the peer: another program that reads a kube-proxy's configuration, and makes no socket on the machine. */
const KPROXY_SCRIPT = `[ "$1" = --version ] || set -- "$@" --socket=; exec '${Deno.execPath()}' ${
  kproxyArgv().join(" ")
} "$@"`;

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
}

const OPTIONS = { size: { services: 50, endpoints: 4 }, program: testBundle(), rounds: 1 } as const;

e2eTest(
  "kproxy, the bare tool and a peer are measured in turns, a peer that is too slow is reported",
  NEEDS,
  async () => {
    await inFolder(async (folder) => {
      const own = { ...OPTIONS, mode: NFTABLES_MODE, changes: 2, onProgress: () => {} };
      const peer = await peerScript(folder, KPROXY_SCRIPT);
      const { kproxy, kubeProxy, bare } = await measure({ ...own, peer, peerLimitMs: 60_000 }, folder);
      assert(typeof kubeProxy !== "string");
      for (const samples of [kproxy, kubeProxy]) {
        assertEquals([samples.firstSyncMs.length, samples.changeMs.length, samples.residentMb.length], [
          1,
          2,
          1,
        ]);
        // All limits are many times what a quiet machine shows: they catch another order of growth, not a busy neighbour.
        assert(samples.firstSyncMs.every((ms) => ms > 0 && ms < 60_000), `${samples.firstSyncMs} ms`);
        assert(samples.changeMs.every((ms) => ms > 0 && ms < 10_000), `${samples.changeMs} ms`);
        const [resident = 0, anonymous = 0, peak = 0] = [
          samples.residentMb,
          samples.anonymousMb,
          samples.peakMb,
        ].flat();
        assert(
          anonymous > 5 && anonymous < resident && resident <= peak && peak < 250,
          JSON.stringify(samples),
        );
        assert(samples.startCpuMs.every((ms) => ms > 0));
      }
      // Of two changes one finds its program started before.
      assertEquals([bare.firstSyncMs.length, bare.changeMs.length, bare.changeWithStartMs.length], [1, 1, 1]);
      const slow = await measure(
        { ...own, mode: IPTABLES_MODE, peer, peerLimitMs: 1 },
        await Deno.makeTempDir({ dir: folder }),
      );
      assertEquals(slow.kubeProxy, "more than 0.001 s");
      assertEquals(slow.kproxy.changeMs.length, 2);
    });
  },
);

e2eTest(
  "new connections and a node port's traffic are measured through the rules and past them",
  NEEDS,
  async () => {
    await inFolder(async (folder) => {
      const rows = await measurePackets({ ...OPTIONS, modes: MODES, peer: undefined }, folder);
      assertEquals(rows.map(({ mode, proxy }) => [mode, proxy]), [
        [null, "none"],
        ["iptables", "kproxy"],
        ["nftables", "kproxy"],
      ]);
      for (const { path, proxy } of rows) {
        const places = proxy === "none" ? ["pod"] : ["pod", "first", "middle", "last"];
        assertEquals(Object.keys(path.connectUs), places);
        assert(Object.values(path.connectUs).flat().every((us) => us > 0 && us < 1e6), JSON.stringify(path));
        assert((path.connectionsPerSecond[0] ?? 0) > 10 && (path.megabytesPerSecond[0] ?? 0) > 1);
      }
    });
  },
);
