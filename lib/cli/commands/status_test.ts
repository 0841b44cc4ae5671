import { assertEquals, assertMatch, assertRejects, assertStringIncludes } from "@std/assert";
import { FakeTerminal } from "../../../tests/support/fake_terminal.ts";
import { serving } from "../../../tests/support/status_server.ts";
import { syncOutcome } from "../../../tests/support/sync_outcome.ts";
import { UsageError } from "../../errors.ts";
import { NotRunningError } from "../../inspect/running/running.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { StatusDocument } from "../../serve/status/status_document.ts";
import { parseArgs } from "../flags/parse_args.ts";
import { type Io, systemIo } from "../io.ts";
import { type Answer, statusCommand, watchStatus } from "./status.ts";
import { durationText, isWell, millisText, statusLines } from "./status_text.ts";

function collectingIo(): Io & { text: { out: string; err: string } } {
  const text = { out: "", err: "" };
  return {
    text,
    log: systemIo.log,
    out: (more) => Promise.resolve(void (text.out += more)),
    err: (more) => void (text.err += more),
  };
}

async function told(...argv: string[]): Promise<{ code: number; out: string; err: string }> {
  const io = collectingIo();
  const code = await statusCommand(parseArgs(["status", ...argv]), io);
  return { code, ...io.text };
}

const SOME: StatusDocument = {
  apiVersion: "kproxy/v1",
  kind: "Status",
  time: "2026-11-22T18:00:00.000Z",
  program: {
    name: "kproxy",
    version: "0.1.0",
    emulationVersion: "1.36",
    denoVersion: "2.9.6",
    pid: 4711,
    started: "2026-11-19T14:00:00.000Z",
    uptimeSeconds: 273_600,
    servingSince: "2026-11-19T14:00:00.000Z",
    memory: { resident: 80 * 1024 * 1024, heapUsed: 21.4 * 1024 * 1024, heapTotal: 1, external: 1 },
  },
  node: { name: "node-1", eligible: true },
  mode: { used: "nftables", configured: "nftables", fallback: null },
  readiness: {
    ready: true,
    reasons: [],
    currentTime: "2026-11-22T18:00:00Z",
    families: {},
    watches: { services: { ageSeconds: 12.3 }, endpointslices: { ageSeconds: 70, problem: "timeout" } },
  },
  healthy: true,
  families: {
    IPv4: {
      services: 10_000,
      endpoints: 100_000,
      rules: { chains: 300, elements: 44 },
      syncs: { full: 1, partial: 345, failed: 0 },
      lastSync: {
        time: "2026-11-22T17:59:57.000Z",
        kind: "partial",
        durationMs: 12.34,
        phasesMs: { plan: 1.2, apply: 11 },
        changed: 12,
        services: ["shop/web", "shop/db"],
        written: {},
        commands: 1,
        bytes: 100,
      },
      lastFullSync: null,
      lastFailure: null,
      latency: { count: 512, p50Ms: 420, p99Ms: 1_300, maxMs: 2_000 },
      recent: [],
    },
  },
  source: { name: "https://10.0.0.1:6443", refused: { count: 0, objects: [] } },
  quarantine: { count: 0, services: [] },
  drift: { found: 0, repaired: 0, recent: [] },
  otherProxyTables: [],
  refusedSettings: [],
  configReload: { failures: 0, inForce: true, lastSuccess: "2026-11-19T14:00:00.000Z" },
  problems: { total: 0, recent: [] },
  listening: { metrics: ["127.0.0.1:10249"], healthz: ["[::]:10256"] },
};

Deno.test("all that is well is reported in a few aligned lines", () => {
  assertEquals(statusLines(SOME), [
    "kproxy 0.1.0 on node node-1: ready",
    "  Mode       nftables",
    "  Objects    https://10.0.0.1:6443",
    "  Process    4711, up 3d 4h",
    "  Memory     80 MiB resident, heap 21 MiB",
    "  Listening  metrics 127.0.0.1:10249, health [::]:10256",
    "",
    "FAMILY  SERVICES  ENDPOINTS  RULES  LAST SYNC        TOOK   FULL/PARTIAL/FAILED  LATENCY P50/P99",
    "IPv4    10000     100000     344    partial, 3s ago  12 ms  1/345/0              420 ms/1.3 s",
    "",
    "IPv4 last sync: shop/web, shop/db and 10 more; plan 1.2 ms; apply 11 ms; 1 command",
    "",
    "WATCH           HEARD",
    "services        12s ago",
    "endpointslices  1m 10s ago  timeout",
  ]);
  assertEquals(isWell(SOME), true);
});

/** Problems of the node and the program. */
const NODE_TROUBLES = {
  healthy: false,
  node: { name: "node-1", eligible: false },
  mode: { used: "iptables", configured: "ipvs", fallback: "no \x1b[2Jmodule" },
  readiness: {
    ...SOME.readiness,
    ready: false,
    reasons: ["IPv4: the last sync failed: no"],
    unserved: { IPv6: { reason: "the kernel has none", use: "Service shop/web" } },
    snapshot: { time: "T", ageSeconds: 1, kinds: ["services"], served: true, expired: false },
  },
  otherProxyTables: ["ip kube-proxy"],
  refusedSettings: [{ name: "net.x", reason: "read-only" }],
  configReload: { failures: 1, inForce: false, lastSuccess: "2026-11-19T14:00:00.000Z" },
  problems: {
    total: 9,
    recent: [{
      severity: "error",
      message: "Sync failed",
      values: 'err="no"',
      first: "2026-11-22T17:00:00.000Z",
      last: "2026-11-22T17:59:00.000Z",
      count: 4,
    }],
  },
} as const satisfies Partial<StatusDocument>;

/** Problems of objects and rules. */
const RULE_TROUBLES = {
  source: {
    name: "files /m",
    refused: {
      count: 12,
      objects: [{
        where: "/m/bad.yaml:7 (document 1)",
        object: "Service shop/bad",
        message: "spec.ports: no",
      }],
    },
  },
  quarantine: {
    count: 12,
    services: [{
      family: "IPv4",
      service: "shop/bad",
      problem: "refused",
      since: "2026-11-22T17:58:00.000Z",
    }],
  },
  drift: {
    found: 3,
    repaired: 2,
    recent: [{
      family: "IPv4",
      time: "2026-11-22T17:55:00.000Z",
      damaged: ["nat KUBE-SERVICES"],
      outcome: "repaired",
    }],
  },
} as const satisfies Partial<StatusDocument>;

/** {@linkcode SOME} with every problem that there can be. */
function troubled(): StatusDocument {
  const family = SOME.families.IPv4;
  if (family === undefined) throw new TypeError("no family");
  return {
    ...SOME,
    ...NODE_TROUBLES,
    ...RULE_TROUBLES,
    families: {
      IPv4: {
        ...family,
        lastSync: null,
        lastFailure: { time: "2026-11-22T17:00:00.123Z", kind: "full", durationMs: 1, error: "no" },
        latency: { count: 0, p50Ms: null, p99Ms: null, maxMs: null },
      },
    },
  };
}

/** Lines that report all of that. */
const TROUBLES: readonly string[] = [
  "node-1: NOT READY, a sync has been waiting for too long; load balancers are told to send nothing new",
  "iptables, in place of ipvs: no \\u001b[2Jmodule",
  "files /m; 12 objects refused",
  "Objects that are refused, as they are now: 12\n  Service shop/bad: spec.ports: no (/m/bad.yaml:7 (document 1))\n  and 11 more",
  "Not ready:\n  IPv4: the last sync failed: no\n  IPv6 is not served: the kernel has none; Service shop/web",
  "IPv4    10000     100000     344    none yet",
  "IPv4 last failure: 2026-11-22T17:00:00Z: no",
  "Snapshot of T stands in for services",
  "In quarantine, refused by the kernel in part: 12 Services\n  IPv4  shop/bad  2m ago  refused\n  and 11 more",
  "found 3, written again with success 2; last 5m ago, IPv4, repaired: nat KUBE-SERVICES",
  "Another service proxy makes tables: ip kube-proxy",
  "Kernel setting not as wanted: net.x: read-only",
  "was refused; in force is that of 2026-11-19T14:00:00Z",
  'Warnings and errors since the start: 9\n  1m ago  error  Sync failed (4 times) err="no"',
];

Deno.test("whatever is wrong is reported, and nothing of it can move a terminal", () => {
  const text = statusLines(troubled()).join("\n");
  for (const words of TROUBLES) assertStringIncludes(text, words);
  assertEquals(text.includes("\x1b"), false);
  assertEquals(isWell({ ...SOME, healthy: false }), false);
});

Deno.test("times are reported in their two largest units", () => {
  for (
    const [seconds, text] of [
      [0, "0s"],
      [0.9, "0s"],
      [59.9, "59s"],
      [60, "1m"],
      [61, "1m 1s"],
      [3_600, "1h"],
      [
        90_061,
        "1d 1h",
      ],
    ] as const
  ) assertEquals(durationText(seconds), text);
  for (
    const [ms, text] of [
      [0.04, "0.0 ms"],
      [9.94, "9.9 ms"],
      [9.96, "10 ms"],
      [12.3, "12 ms"],
      [999.4, "999 ms"],
      [999.6, "1.0 s"],
      [
        1_300,
        "1.3 s",
      ],
    ] as const
  ) {
    assertEquals(millisText(ms), text);
  }
});

Deno.test("the command asks where the flag or the file says, and its exit code tells whether the proxy is ready", async () => {
  await serving(async ({ servers, socket }) => {
    const asked = `--socket=${socket}`;
    const starting = await told(asked);
    assertEquals([starting.code, starting.err], [1, ""]);
    assertStringIncludes(starting.out, "on node node-1: NOT READY\n");
    assertStringIncludes(starting.out, "Not ready:\n  IPv4: the first sync is not done\n");
    servers.observer.synced(syncOutcome("IPv4"));
    assertEquals((await told(asked)).code, 0);
    const { code, out } = await told(asked, "-o", "json");
    assertEquals([code, JSON.parse(out).kind, JSON.parse(out).readiness.ready], [0, "Status", true]);
    const file = await Deno.makeTempFile({ suffix: ".yaml" });
    try {
      await Deno.writeTextFile(
        file,
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n" +
          `kproxy:\n  socket: ${socket}\n`,
      );
      assertEquals((await told("--config", file)).code, 0);
      // Beside the file, a flag that is given is meant.
      assertEquals((await told("--config", file, "--socket=/run/nowhere/kproxy.sock")).code, 1);
    } finally {
      await Deno.remove(file);
    }
  });
});

Deno.test("where none answers the command says why, to people and to programs", async () => {
  const asked = "--socket=/run/nowhere/kproxy.sock";
  const { code, out, err } = await told(asked);
  assertEquals([code, out], [1, ""]);
  assertMatch(err, /^Error: no kproxy runs here, or one of an older release: \/run\/nowhere/);
  const json = await told(asked, "-o", "json");
  assertEquals([json.code, json.err], [1, ""]);
  const { message, ...rest } = JSON.parse(json.out);
  assertEquals(rest, { apiVersion: "kproxy/v1", kind: "NotRunning", reason: "nothing" });
  assertStringIncludes(message, "/run/nowhere/kproxy.sock");
});

Deno.test("wrong use is reported as such", async () => {
  await assertRejects(() => told("-o", "yaml"), UsageError, "want text or json");
  await assertRejects(() => told("--interval=5s"), UsageError, "--interval needs --watch");
  await assertRejects(() => told("--watch", "--interval=1ms"), UsageError, "100ms is the least");
  await assertRejects(() => told("--interval=1s", "x"), UsageError, "does not take any arguments");
});

/** Lets a watch ask for each of the answers, then ends it. */
async function watched(
  answers: readonly Answer[],
  form: "text" | "json",
  terminal: FakeTerminal | null,
): Promise<{ out: string; sleptMs: number[] }> {
  const io = collectingIo();
  const end = new AbortController();
  const left = [...answers];
  const sleptMs: number[] = [];
  const clock: Clock = {
    nowMs: () => 0,
    sleep: (ms) => {
      sleptMs.push(ms);
      if (left.length === 0) end.abort();
      return Promise.resolve();
    },
  };
  await watchStatus({
    ask: () => Promise.resolve(left.shift() ?? SOME),
    form,
    io: { out: io.out, screen: terminal },
    intervalMs: 2_000,
    clock,
    signal: end.signal,
  });
  return { out: io.text.out, sleptMs };
}

const GONE = new NotRunningError("nothing", "no kproxy answers on 127.0.0.1:10249: refused");

Deno.test("a watch on a terminal draws in one place, and leaves what it showed last", async () => {
  const terminal = new FakeTerminal({ columns: 40 });
  const { out, sleptMs } = await watched([SOME, GONE, SOME], "text", terminal);
  assertEquals(sleptMs, [2_000, 2_000, 2_000]);
  const [before = "", ...drawings] = terminal.written.split("\x1b[H");
  assertEquals(before, "\x1b[?1049h\x1b[?25l");
  assertEquals(drawings.length, 3);
  assertEquals(drawings[1], "no kproxy answers on 127.0.0.1:10249: r\x1b[K\r\n\x1b[J");
  assertStringIncludes(drawings[0] ?? "", "kproxy 0.1.0 on node node-1: ready\x1b[K\r\n");
  // The cursor and the first screen are there again.
  assertEquals(terminal.written.endsWith("\x1b[J\x1b[?25h\x1b[?1049l"), true);
  assertEquals(out, `${statusLines(SOME).join("\n")}\n`);
});

Deno.test("a terminal that is too low shows the beginning, and says so", async () => {
  const terminal = Object.assign(new FakeTerminal({ columns: 80 }), { rows: () => 6 });
  await watched([SOME], "text", terminal);
  const lines = (terminal.written.split("\x1b[H")[1] ?? "").split("\x1b[K\r\n");
  assertEquals(lines.length, 6);
  assertEquals(lines[4], `... ${statusLines(SOME).length - 4} more lines: use a higher terminal`);
});

Deno.test("the terminal is as it was also when a question fails", async () => {
  const terminal = new FakeTerminal();
  const watching = watchStatus({
    ask: () => Promise.reject(new RangeError("a mistake of ours")),
    form: "text",
    io: { out: () => Promise.resolve(), screen: terminal },
    intervalMs: 1,
    clock: { nowMs: () => 0, sleep: () => Promise.resolve() },
    signal: new AbortController().signal,
  });
  await assertRejects(() => watching, RangeError);
  assertEquals(terminal.written.endsWith("\x1b[?25h\x1b[?1049l"), true);
});

Deno.test("where output is no terminal, or documents are wanted, a watch prints one after the other", async () => {
  const text = await watched([SOME, GONE], "text", null);
  assertEquals(text.out, `${statusLines(SOME).join("\n")}\n\n${GONE.message}\n`);
  const json = await watched([SOME, GONE], "json", new FakeTerminal());
  assertEquals(json.out.trimEnd().split("\n").map((line) => JSON.parse(line).kind), ["Status", "NotRunning"]);
});

Deno.test("where the socket does not tell, what answers at the ports is a hint", async () => {
  await serving(async ({ servers, socket }) => {
    const [health = [], metrics = []] = servers.addresses;
    const { code, err } = await told(
      `--socket=${socket}`,
      `--metrics-bind-address=${metrics[0]}`,
      `--healthz-bind-address=${health[0]}`,
    );
    assertEquals(code, 1);
    assertMatch(
      err,
      /^Error: .*statusApi: false\nOn 127\.0\.0\.1:\d+ another proxy answers there: mode nftables; .* checked there\nThe health server on 127\.0\.0\.1:\d+ answers with status 503: /,
    );
  }, { statusApi: false, config: { healthzBindAddress: "127.0.0.1:0" } });
});

Deno.test("of a stranger at the health server's port a short line is shown", async () => {
  const answer = (): Response => new Response("\n\u001b[2J ready".repeat(3_000));
  await using server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: () => {} }, answer);
  const { err } = await told(
    "--socket=/run/no-such-kproxy/kproxy.sock",
    "--metrics-bind-address=",
    `--healthz-bind-address=127.0.0.1:${server.addr.port}`,
  );
  assertMatch(
    err,
    /\nThe health server on 127\.0\.0\.1:\d+ answers with status 200: .{1,999} characters\)\n$/,
  );
});
