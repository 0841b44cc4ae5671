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
import { plannedSteps, record } from "./recording.ts";

const MODES: readonly BenchMode[] = [IPTABLES_MODE, NFTABLES_MODE];
const NEEDS = [ROOT_NAMESPACES, program("iptables"), program("nft")];

async function inFolder<T>(work: (folder: string) => Promise<T>): Promise<T> {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-bench-test-" });
  try {
    return await work(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
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

const OPTIONS = { size: { services: 50, endpoints: 4 }, program: testBundle(), rounds: 1 } as const;

/** The first program that writes IPv4's rules is at most this one of a start. */
const MAX_WRITING_PROGRAM: Readonly<Record<string, number>> = { iptables: 19, nftables: 12 };

// That bytes do not depend on the number of Services: tests/cost.
for (const mode of MODES) {
  e2eTest(
    `${mode.title}: a change starts one program, and a start few before the first rule`,
    NEEDS,
    async () => {
      await inFolder(async (folder) => {
        const options = { size: OPTIONS.size, mode, program: testBundle() };
        const { start, fullSync, changes } = await record(options, plannedSteps(OPTIONS.size, 3, 1), folder);
        const at = fullSync[0] === undefined ? Infinity : start.indexOf(fullSync[0]);
        const programs = start.map(({ argv }) => argv.join(" ")).join("\n");
        assert(at < (MAX_WRITING_PROGRAM[mode.proxyMode] ?? 0), programs);
        const program = mode.proxyMode === "nftables" ? "nft" : "iptables-restore";
        // Three replaced endpoints, a Service added, the same deleted.
        const started = changes.map(({ runs }) => runs.map(({ argv }) => argv[0]));
        assertEquals(started, Array.from({ length: 5 }, () => [program]));
      });
    },
  );
}

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
  [...NEEDS, program("gcc"), program("gencat")],
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
