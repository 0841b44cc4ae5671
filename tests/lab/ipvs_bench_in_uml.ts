/**
 * The benchmark of IPVS mode at a small size, to be run inside of the user-mode Linux:
 * `tests/lab/uml.sh 'deno test -A tests/lab/ipvs_bench_in_uml.ts'`. `deno task bench --mode=ipvs` measures at full size.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { LAB_FOLDER } from "../bench/lab.ts";
import { measure } from "../bench/measure.ts";
import { IPVS_MODE } from "../bench/mode_ipvs.ts";
import { resultTable } from "../bench/report.ts";

/** Of a start, until IPv4's rules are in force: each costs tens of milliseconds here. */
const MAX_START_PROGRAMS = 17;

Deno.test("what a first sync and a change cost beside the bare tools", async () => {
  const folder = await Deno.makeTempDir({ dir: LAB_FOLDER });
  const { firstSync, touch, serviceAdded, serviceDeleted, memoryAtEnd, ...result } = await measure({
    size: { services: 20, endpoints: 10 },
    mode: IPVS_MODE,
    peer: null,
    touches: 1,
    added: 1,
    rounds: 1,
    spacingMs: 500,
    restMs: 0,
    idleMs: 500,
    oneTransaction: false,
    onProgress: () => {},
    onChange: () => {},
  }, folder);
  const written = firstSync.programs.indexOf("ip -force -batch -");
  assert(written >= 0 && written < MAX_START_PROGRAMS, firstSync.programs.join("\n"));
  assertEquals([touch.programs, serviceAdded.programs, serviceDeleted.programs], [1, 3, 3]);
  // Two lines: the endpoint that comes, and the one that goes.
  assert(touch.bytes < 120, `a replaced endpoint takes ${touch.bytes} bytes`);
  // Many times what a quiet machine shows: these catch another order of growth, not a busy neighbour.
  assert((firstSync.kproxyMs[0] ?? Infinity) < 180_000, `the first sync took ${firstSync.kproxyMs} ms`);
  for (const { kproxy, bare } of [touch, serviceAdded, serviceDeleted]) {
    assert(
      bare.p50 > 0 && kproxy.p50 < 10 * bare.p50 + 10_000,
      `${kproxy.p50} ms, bare tools ${bare.p50} ms`,
    );
  }
  assert(memoryAtEnd.nowMb > 20 && memoryAtEnd.nowMb < 200, `${memoryAtEnd.nowMb} MB`);
  const table = resultTable({ ...result, firstSync, touch, serviceAdded, serviceDeleted, memoryAtEnd });
  assert(table.join("\n").includes("ipvs"), table.join("\n"));
});
