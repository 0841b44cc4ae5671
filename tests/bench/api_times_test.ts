/** The pure parts of `deno task bench:api`: its arguments, the server's log, the tables. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { countRequests, goDurationMs, loggedRequests } from "./api_log.ts";
import { type ApiFigures, LIST_WAYS, type ListCost, type ProxyCost } from "./api_measure.ts";
import { type Cost, costBetween, type Meter } from "./api_proxies.ts";
import { changesPerSecond, compressionTable, costTable, ratio, requestLines } from "./api_report.ts";
import { parseApiArgs } from "./api_times.ts";

const PURE = { permissions: "none" } as const;

Deno.test("durations of Go are read", PURE, () => {
  const cases = {
    "2.644959ms": 2.644959,
    "1m27.35s": 87_350,
    "1h0m0.5s": 3_600_500,
    "950µs": 0.95,
    "10ns": 1e-5,
  };
  for (const [text, ms] of Object.entries(cases)) {
    assertEquals(goDurationMs(text).toFixed(6), ms.toFixed(6), text);
  }
});

const NOW_MS = new Date(2026, 10, 23, 12, 0, 0).getTime();
const at = (hour: number, minute: number, second: number, ms = 0): number =>
  new Date(2026, 10, 23, hour, minute, second, ms).getTime();
const LOG = [
  `I1123 11:44:02.273527    7276 httplog.go:134] "HTTP" verb="WATCH" URI="/apis/networking.k8s.io/v1/servicecidrs?watch=1" ` +
  `latency="1m0.5s" userAgent="kproxy/0.1.0" audit-ID="0464378a" srcIP="10.78.0.2:57092" resp=200`,
  `W1123 11:44:03.000000    7276 other.go:1] Something else`,
  `I1123 11:44:04.000000    7276 httplog.go:134] "HTTP" verb="POST" URI="/apis/events.k8s.io/v1/namespaces/default/events" ` +
  `latency="2ms" userAgent="kube-proxy/v1.36.2 (linux/amd64)" audit-ID="a76a6bca" srcIP="10.78.1.2:44564" resp=201`,
  `I1123 11:44:05.000000    7276 httplog.go:134] "HTTP" verb="LIST" URI="/api/v1/services?limit=500" ` +
  `latency="5ms" userAgent="kproxy/0.1.0" audit-ID="b" srcIP="10.78.0.2:57093" resp=422`,
].join("\n");

Deno.test("requests are read from the server's log, with when they began", PURE, () => {
  const [watch, event, list, ...rest] = loggedRequests(LOG, NOW_MS);
  assertEquals(rest, []);
  assertEquals(watch, {
    verb: "WATCH",
    uri: "/apis/networking.k8s.io/v1/servicecidrs?watch=1",
    userAgent: "kproxy/0.1.0",
    from: "10.78.0.2",
    status: 200,
    startedMs: at(11, 43, 1, 773),
  });
  assertEquals([event?.verb, event?.userAgent, event?.from], [
    "POST",
    "kube-proxy/v1.36.2 (linux/amd64)",
    "10.78.1.2",
  ]);
  assertEquals([list?.status, list?.startedMs], [422, at(11, 44, 4, 995)]);
});

Deno.test("requests of one client that began in a time are counted by verb and resource", PURE, () => {
  const requests = loggedRequests(LOG, NOW_MS);
  const count = (from: string, begin: number, end: number): unknown =>
    Object.fromEntries(countRequests(requests, from, [begin, end]));
  assertEquals(count("10.78.0.2", at(11, 43, 0), at(11, 50, 0)), {
    "WATCH servicecidrs": 1,
    "LIST services": 1,
  });
  assertEquals(count("10.78.0.2", at(11, 44, 0), at(11, 50, 0)), { "LIST services": 1 });
  assertEquals(count("10.78.1.2", at(11, 43, 0), at(11, 50, 0)), { "POST events": 1 });
  assertEquals(count("10.78.1.2", at(11, 43, 0), at(11, 44, 0)), {});
});

Deno.test("what the server does without any client does not count", PURE, () => {
  const meter = (of: number): Meter => ({
    atMs: of,
    received: 10 * of,
    sent: 2 * of,
    serverMs: 5 * of,
    idleServerMs: 2 * of,
    ownMs: 7 * of,
    programsMs: of,
  });
  const cost: Cost = { received: 20, sent: 4, serverMs: 6, ownMs: 14, programsMs: 2 };
  assertEquals(costBetween(meter(1), meter(3)), cost);
});

Deno.test("ratios are those of rounds, not of medians", PURE, () => {
  assertEquals(ratio([1, 30, 2], [2, 10, 4]), 0.5);
  // 50,000 Pods that live a day, four writes for each.
  assertEquals(changesPerSecond({ services: 5_000, endpoints: 10 }).toFixed(3), "2.315");
});

const cost = (factor: number): ProxyCost => ({
  received: 1_000_000 * factor,
  sent: 20_000 * factor,
  serverMs: 60 * factor,
  ownMs: 900 * factor,
  programsMs: 100 * factor,
  requests: new Map([["WATCH services", 4 * factor]]),
});

Deno.test("the tables have a row for each proxy, and one of their ratio", PURE, () => {
  const figures: ApiFigures = {
    lists: LIST_WAYS.map((way) => {
      const one: ListCost = {
        received: way.isPacked ? 500_000 : 5_000_000,
        serverMs: way.isPacked ? 300 : 200,
        ownCpuMs: 600,
        syncedMs: 800,
        objects: 10_001,
      };
      return { way, rounds: [one] };
    }),
    starts: new Map([["kproxy", [cost(1), cost(1)]], ["peer", [cost(2), cost(4)]]]),
    changes: new Map([["kproxy", cost(1)]]),
    changed: { count: 1389, seconds: 600 },
  };
  const table = compressionTable(figures.lists);
  assertEquals(table.length, 2 + 4);
  assert(table[2]?.includes("JSON, from memory | 5,000 → 500 (0.10 ×) | 200 → 300 (1.50 ×)"), table[2]);
  const [, , own, peer, share, changes, ...rest] = costTable(
    { services: 5_000, endpoints: 10 },
    figures,
    "kube-proxy",
  );
  assertEquals(rest, []);
  assertEquals(own, "| start, 5,000 × 10: kproxy | 4 | 1,000 | 20 | 60 | 900 | 100 |");
  assert(peer?.startsWith("| start, 5,000 × 10: kube-proxy | 8 |"), peer);
  assert(share?.startsWith("| start, 5,000 × 10: ratio | 0.25 × |"), share);
  assert(changes?.startsWith("| 1,389 changes in 10 min, 5,000 × 10: kproxy | 4 |"), changes);
  assertEquals(requestLines(figures, "kube-proxy"), [
    "start, kproxy: 4 × WATCH services",
    "start, kube-proxy: 16 × WATCH services",
    "changes, kproxy: 4 × WATCH services",
  ]);
  assertEquals(
    costTable({ services: 1, endpoints: 1 }, { ...figures, starts: new Map(), changes: new Map() }, ""),
    [],
  );
});

Deno.test("arguments: what fits, and what does not", PURE, () => {
  const { services, parts, perSecond, peer } = parseApiArgs(["--services", "100,200", "--part", "start"]);
  assertEquals([services, parts, perSecond, peer], [[100, 200], ["start"], null, undefined]);
  assertEquals(parseApiArgs([]).parts.length, 3);
  for (
    const words of [["--rounds", "0"], ["--services", "x"], ["--part", "all"], ["--nonsense"], [
      "--minutes=-1",
    ]]
  ) {
    assertThrows(() => parseApiArgs(words), RangeError);
  }
});
