import { assert, assertEquals, assertThrows } from "@std/assert";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";
import { connectionsWithin, hardLimit } from "./descriptor_limit.ts";
import { FORWARDERS, present } from "./forwarders.ts";
import { type ForwarderFigures, measureForwarding, requestFigures, streamFigures } from "./forwarding.ts";
import { forwardingTable } from "./forwarding_report.ts";
import { cpuTicks, statusMb } from "./process_costs.ts";

const LIMITS = `Limit                     Soft Limit           Hard Limit           Units
Max processes             96000                96001                processes
Max open files            1024                 20000                files
`;

Deno.test("the hard limit of descriptors is found, and says how many connections there may be", {
  permissions: "none",
}, () => {
  assertEquals(hardLimit(LIMITS), 20_000);
  assertEquals(hardLimit(LIMITS.replace("20000", "unlimited")), Infinity);
  assertThrows(() => hardLimit("Max processes 1 1\n"), SyntaxError);
  const within = (count: number): number => connectionsWithin(10_000, { count });
  assertEquals([within(20_000), within(65_536), within(100)], [9_900, 10_000, 0]);
});

Deno.test("CPU time and memory are read whatever a program is called", { permissions: "none" }, () => {
  const stat = `7 (a) b (c) S 1 7 7 0 -1 4194560 900 0 0 0 11 12 13 14 20 0 9 0`;
  assertEquals(cpuTicks(stat), { user: 11, system: 12, childUser: 13, childSystem: 14 });
  assertEquals(cpuTicks(""), { user: 0, system: 0, childUser: 0, childSystem: 0 });
  const status = "VmHWM:\t   90000 kB\nVmRSS:\t   62500 kB\nRssAnon:\t   31250 kB\n";
  assertEquals([statusMb(status, "VmRSS"), statusMb(status, "RssAnon")], [64, 32]);
});

const RESULT = { ms: 2_000, cpuMs: 1_000, bytes: 4e9, timesMs: [], answered: 0 };

Deno.test("figures of streams are medians of the rounds, and of requests those of all together", {
  permissions: "none",
}, () => {
  const rounds = [1e9, 4e9, 2e9].map((bytes) => ({
    result: { ...RESULT, bytes },
    cpuMs: 800,
    backendMs: 500,
  }));
  assertEquals(streamFigures(16, rounds), {
    streams: 16,
    mbPerSecond: 1_000,
    rounds: [500, 2_000, 1_000],
    cpuSecondsPerGb: 0.4,
    cores: 0.4,
    clientCores: 0.5,
    backendCores: 0.25,
  });
  const direct = rounds.map((cost) => ({ ...cost, cpuMs: null }));
  assertEquals(streamFigures(1, direct).cpuSecondsPerGb, null);
  const requests = [[0.1, 0.2], [0.3, 0.4]].map((timesMs) => ({
    result: { ...RESULT, timesMs },
    cpuMs: 10,
    backendMs: 0,
  }));
  assertEquals(requestFigures(requests), { p50Us: 200, p99Us: 400, count: 4, cpuUs: 5_000 });
  assertEquals(requestFigures(requests.map((cost) => ({ ...cost, cpuMs: null }))).cpuUs, null);
});

Deno.test("the table says how kproxy stands to HAProxy, and what was left out", {
  permissions: "none",
}, () => {
  const of = (name: ForwarderFigures["name"], mbPerSecond: number, p50Us: number): ForwarderFigures => {
    const requests = { p50Us, p99Us: 3 * p50Us, count: 9, cpuUs: 70 };
    const memory = { residentMb: 90, anonymousMb: 40 };
    return {
      name,
      how: "",
      streams: [{
        streams: 16,
        mbPerSecond,
        rounds: [],
        cpuSecondsPerGb: 0.5,
        cores: 1,
        clientCores: 0.5,
        backendCores: 0.5,
      }],
      newConnection: requests,
      keptConnection: requests,
      idle: name === "kproxy" ? { connections: 5, before: memory, holding: memory, after: memory } : null,
    };
  };
  const table = forwardingTable({
    mode: "userspace",
    rounds: 3,
    streamMs: 2_000,
    load: [1, 2, 3],
    missing: ["socat"],
    forwarders: [of("kproxy", 500, 300), of("HAProxy", 1_000, 200), of("HAProxy, large", 9_000, 1)],
  }).join("\n");
  const ratios = "16 streams 2.00 × slower, new connection 1.50 × the p50, kept connection 1.50 × the p50";
  assert(table.includes(`kproxy beside HAProxy: ${ratios}`), table);
  assert(table.includes("500 MB/s, 0.50 s/GB") && table.includes("300 / 900 µs, CPU 70 µs"), table);
  assert(table.includes("5 idle connections: before 90 MB (anonymous 40 MB)"), table);
  assert(table.includes("socat is not installed and was left out"), table);
});

e2eTest(
  "the benchmark measures kproxy in mode userspace beside the direct way",
  [ROOT_NAMESPACES, ...["ip", "iptables", "sysctl", "prlimit"].map(program)],
  async () => {
    const kinds = present(FORWARDERS).here.filter(({ name }) => name === "direct" || name === "kproxy");
    const folder = await Deno.makeTempDir({ prefix: "kproxy-bench-test-" });
    try {
      const size = { rounds: 1, streamMs: 200, requests: 20, idle: 0, program: null };
      const { forwarders } = await measureForwarding({ ...size, kinds, onProgress: () => {} }, folder);
      assertEquals(forwarders.map(({ name }) => name), ["direct", "kproxy"]);
      for (const { name, streams, newConnection, keptConnection } of forwarders) {
        assertEquals(streams.map(({ streams }) => streams), [1, 16]);
        for (const { mbPerSecond } of streams) assert(mbPerSecond > 0, name);
        assertEquals([newConnection.count, keptConnection.count], [20, 20]);
        assertEquals(newConnection.cpuUs === null, name === "direct");
      }
      // Nothing that forwards is faster than nothing.
      const [direct, kproxy] = forwarders;
      assert((kproxy?.newConnection.p50Us ?? 0) > (direct?.newConnection.p50Us ?? Infinity));
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  },
);
