import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { defaultConfig } from "../config/defaults.ts";
import type { KubeProxyConfiguration } from "../config/types.ts";
import { ProxyMetrics } from "../observe/metrics.ts";
import { ConnectionPool } from "../kernel/connection_pool.ts";
import type { Peer } from "./http_listener.ts";
import { HttpServer } from "./http_server.ts";
import { metricsHandlers, type MetricsPages } from "./metrics_server.ts";
import { silentLogger } from "../observe/log.ts";

const LOCAL: Peer = { family: "IPv4", address: "127.0.0.1", isLoopback: true };
const REMOTE: Peer = { family: "IPv4", address: "192.0.2.1", isLoopback: false };
const TEXT = "text/plain; charset=utf-8";
const START_MS = Date.UTC(2026, 0, 2, 3, 4, 5) + 678;

interface Ask {
  (path: string, init?: RequestInit & { peer?: Peer; over?: "tcp" | "socket" }): Promise<Response>;
}

function pages(config: Partial<KubeProxyConfiguration> = {}): MetricsPages {
  return {
    registry: new ProxyMetrics().registry,
    mode: "iptables",
    config: () => ({ ...defaultConfig(), ...config }),
    flags: () => [["v", "2"], ["cluster-cidr", "10.0.0.0/8"], ["config", ""]],
    verbosity: { level: 0 },
    version: "0.1.0",
    emulationVersion: "1.36",
    startMs: START_MS,
    socket: "/run/kproxy/kproxy.sock",
  };
}

function asker(shown: MetricsPages = pages()): Ask {
  const handlers = metricsHandlers(shown);
  return async (path, { peer = LOCAL, over = "tcp", ...init } = {}) =>
    await handlers[over](new Request(`http://node:10249${path}`, init), peer, new AbortController().signal);
}

const profiled = (): Ask => overSocket(asker(pages({ enableProfiling: true })));

function overSocket(ask: Ask): Ask {
  return (path, init) => ask(path, { ...init, over: "socket" });
}

Deno.test("/metrics is Prometheus text with kube-proxy's headers, compressed for those who can read it", async () => {
  const ask = asker();
  for (
    const [accepts, isPacked] of [
      [undefined, false],
      ["gzip", true],
      ["deflate, gzip;q=0.5", true],
      ["gzip;q=0", false],
      ["identity", false],
    ] as const
  ) {
    const response = await ask("/metrics", {
      headers: accepts === undefined ? {} : { "accept-encoding": accepts },
    });
    assertEquals(response.status, 200);
    assertEquals(
      response.headers.get("content-type"),
      "text/plain; version=0.0.4; charset=utf-8; escaping=underscores",
    );
    assertEquals(response.headers.get("process-start-time-unix"), String(Math.floor(START_MS / 1000)));
    assertEquals(response.headers.get("content-encoding"), isPacked ? "gzip" : null, accepts ?? "none");
    const body = isPacked ? response.body?.pipeThrough(new DecompressionStream("gzip")) : response.body;
    assertStringIncludes(
      await new Response(body).text(),
      "# TYPE kubeproxy_sync_proxy_rules_service_changes_total counter\n" +
        "kubeproxy_sync_proxy_rules_service_changes_total 0\n",
    );
  }
});

Deno.test("/healthz says that the server answers", async () => {
  const ask = asker();
  const cases: [string, string][] = [
    ["/healthz", "ok"],
    ["/healthz/ping", "ok"],
    ["/healthz/ping?verbose", "ok"],
    ["/healthz?verbose", "[+]ping ok\nhealthz check passed\n"],
  ];
  for (const [path, body] of cases) {
    const response = await ask(path);
    assertEquals([response.status, await response.text()], [200, body], path);
    assertEquals(response.headers.get("content-type"), TEXT);
    assertEquals(response.headers.get("x-content-type-options"), "nosniff");
  }
});

Deno.test("/metrics/slis counts the answers of /healthz and forgets them on DELETE", async () => {
  const ask = asker();
  await ask("/healthz");
  await ask("/healthz/ping");
  const series = async (): Promise<string[]> =>
    (await (await ask("/metrics/slis")).text()).split("\n").filter((line) =>
      line !== "" && !line.startsWith("#")
    );
  const start = `process_start_time_seconds ${START_MS / 1000}`;
  assertEquals(await series(), [
    'kubernetes_healthcheck{name="ping",type="healthz"} 1',
    'kubernetes_healthchecks_total{name="ping",status="success",type="healthz"} 2',
    start,
  ]);
  const reset = await ask("/metrics/slis", { method: "DELETE", over: "socket" });
  assertEquals([reset.status, await reset.text()], [200, "metrics reset\n"]);
  assertEquals(await series(), [start]);
});

Deno.test("/proxyMode is the mode in use and nothing else", async () => {
  const response = await asker({ ...pages({ mode: "auto" }), mode: "nftables" })("/proxyMode");
  assertEquals([response.status, await response.text()], [200, "nftables"]);
  assertEquals(response.headers.get("content-type"), TEXT);
  assertEquals(response.headers.get("x-content-type-options"), "nosniff");
});

Deno.test("/configz is the API object in its own order, without what the mode does not use", async () => {
  const response = await asker(pages({ nodePortAddresses: ["primary"], clusterCIDR: "10.244.0.0/16" }))(
    "/configz",
  );
  assertEquals(response.headers.get("content-type"), "application/json");
  assertEquals(response.headers.get("x-content-type-options"), "nosniff");
  assertEquals(
    await response.text(),
    '{"kubeproxy.config.k8s.io":{"kind":"KubeProxyConfiguration","apiVersion":"kubeproxy.config.k8s.io/v1alpha1",' +
      '"clientConnection":{"kubeconfig":"","acceptContentTypes":"","contentType":"application/vnd.kubernetes.protobuf",' +
      '"qps":5,"burst":10},"logging":{"format":"text","flushFrequency":"5s","verbosity":0,"options":{"text":{' +
      '"infoBufferSize":"0"},"json":{"infoBufferSize":"0"}}},"hostnameOverride":"","bindAddress":"0.0.0.0",' +
      '"healthzBindAddress":"0.0.0.0:10256","metricsBindAddress":"127.0.0.1:10249","bindAddressHardFail":false,' +
      '"enableProfiling":false,"showHiddenMetricsForVersion":"","mode":"iptables","iptables":{"masqueradeBit":14,' +
      '"masqueradeAll":false,"localhostNodePorts":true,"syncPeriod":"30s","minSyncPeriod":"1s"},"ipvs":{' +
      '"syncPeriod":"0s","minSyncPeriod":"0s","scheduler":"","excludeCIDRs":null,"strictARP":false,"tcpTimeout":"0s",' +
      '"tcpFinTimeout":"0s","udpTimeout":"0s"},"nftables":{"masqueradeBit":14,"masqueradeAll":false,' +
      '"syncPeriod":"0s","minSyncPeriod":"0s"},"winkernel":{"networkName":"","sourceVip":"","enableDSR":false,' +
      '"rootHnsEndpointName":"","forwardHealthCheckVip":false},"detectLocalMode":"ClusterCIDR","detectLocal":{' +
      '"bridgeInterface":"","interfaceNamePrefix":""},"clusterCIDR":"10.244.0.0/16","nodePortAddresses":["primary"],' +
      '"oomScoreAdj":-999,"conntrack":{"maxPerCore":32768,"min":131072,"tcpEstablishedTimeout":"24h0m0s",' +
      '"tcpCloseWaitTimeout":"1h0m0s","tcpBeLiberal":false,"udpTimeout":"0s","udpStreamTimeout":"0s"},' +
      '"configSyncPeriod":"15m0s","portRange":""}}',
  );
});

Deno.test("/configz zeroes the periods of the modes that are not in use, whichever is", async () => {
  for (const mode of ["iptables", "ipvs", "nftables"] as const) {
    const response = await asker({ ...pages(), mode })("/configz");
    const config = JSON.parse(await response.text())["kubeproxy.config.k8s.io"];
    for (const section of ["iptables", "ipvs", "nftables"]) {
      assertEquals(config[section].syncPeriod, section === mode ? "30s" : "0s", `${mode} ${section}`);
    }
  }
});

Deno.test("/statusz tells who runs and since when", async () => {
  const response = await asker({ ...pages(), startMs: Date.now() - 3_723_400 })("/statusz");
  assertEquals(response.headers.get("content-type"), TEXT);
  assertMatch(
    await response.text(),
    new RegExp(
      "^\nkube-proxy statusz\nWarning: This endpoint is not meant to be machine parseable, has no formatting " +
        "compatibility guarantees and is for debugging purposes only.\n\n" +
        "Started: (Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \\d]\\d \\d\\d:\\d\\d:\\d\\d UTC \\d{4}\n" +
        "Up: 1 hr 02 min (?:0[3-9]|[1-5]\\d) sec\nDeno version: [\\d.]+\nBinary version: 0.1.0\nEmulation version: 1.36\n" +
        "Paths: /configz /flagz /healthz /metrics /proxyMode /statusz\n$",
    ),
  );
});

Deno.test("/flagz lists the flags by name", async () => {
  const response = await asker()("/flagz", { headers: { accept: "text/html, text/plain;q=0.5" } });
  assertEquals(
    await response.text(),
    "\nkube-proxy flagz\nWarning: This endpoint is not meant to be machine parseable, has no formatting compatibility " +
      "guarantees and is for debugging purposes only.\ncluster-cidr=10.0.0.0/8\nconfig=\nv=2\n",
  );
});

Deno.test("/statusz and /flagz have text only, and their gates switch them off", async () => {
  for (const page of ["/statusz", "/flagz"]) {
    for (const accept of ["application/json", "text/html", "application/xml"]) {
      const refused = await asker()(page, { headers: { accept } });
      assertEquals([refused.status, JSON.parse(await refused.text()).reason], [406, "NotAcceptable"], accept);
    }
    for (const accept of ["*/*", "text/plain", "text/*;q=0.1"]) {
      assertEquals((await asker()(page, { headers: { accept } })).status, 200, accept);
    }
    const gate = page === "/statusz" ? "ComponentStatusz" : "ComponentFlagz";
    for (const featureGates of [{ [gate]: false }, { AllBeta: false }]) {
      assertEquals((await asker(pages({ featureGates }))(page)).status, 404, page);
    }
  }
});

Deno.test("without profiling there are no debugging pages, and no index anywhere", async () => {
  const paths = [
    "/",
    "/nothing",
    "/debug/pprof",
    "/debug/pprof/",
    "/debug/pprof/profile",
    "/debug/flags",
    "/debug/flags/v",
  ];
  for (const path of paths) {
    const response = await asker()(path);
    assertEquals([response.status, await response.text()], [404, "404 page not found\n"], path);
  }
});

Deno.test("PUT /debug/flags/v sets the verbosity, anything else is refused", async () => {
  const shown = pages({ enableProfiling: true });
  const ask = overSocket(asker(shown));
  const put = async (body: string): Promise<[number, string]> => {
    const response = await ask("/debug/flags/v", { method: "PUT", body });
    return [response.status, await response.text()];
  };
  assertEquals(await put("4"), [200, "successfully set klog.logging.verbosity to 4\n"]);
  assertEquals(shown.verbosity.level, 4);
  const problem = "want an integer from -2147483648 to 2147483647";
  for (const body of ["abc", "", "4\n", "2147483648", "12345678901", "0x4"]) {
    assertEquals(await put(body), [400, `failed set klog.logging.verbosity ${body}: ${problem}\n`]);
  }
  assertEquals((await put("9".repeat(100_000)))[1].length < 3000, true);
  assertEquals(shown.verbosity.level, 4);
  assertEquals(await put("-1"), [200, "successfully set klog.logging.verbosity to -1\n"]);
  assertEquals(shown.verbosity.level, 0);
  for (const method of ["GET", "POST", "DELETE"]) {
    const response = await ask("/debug/flags/v", { method });
    assertEquals([response.status, await response.text()], [406, "unsupported http method\n"]);
  }
  for (const path of ["/debug/flags", "/debug/flags/"]) assertEquals((await ask(path)).status, 200);
});

Deno.test("/debug/pprof leads to an index of what there is", async () => {
  const ask = profiled();
  const redirect = await ask("/debug/pprof");
  assertEquals([redirect.status, redirect.headers.get("location")], [302, "/debug/pprof/"]);
  assertMatch(await (await ask("/debug/pprof/")).text(), /^profile\?seconds=30 .*\nheap /m);
  for (const path of ["goroutine", "symbol", "trace", "cmdline", "nothing"]) {
    assertEquals((await ask(`/debug/pprof/${path}`)).status, 404, path);
  }
});

Deno.test("/debug/pprof/profile is a V8 CPU profile, one at a time", async () => {
  const ask = profiled();
  const [response, second] = await Promise.all([
    ask("/debug/pprof/profile?seconds=0.2"),
    ask("/debug/pprof/profile?seconds=0.2"),
  ]);
  assertEquals(response.headers.get("content-disposition"), 'attachment; filename="kproxy.cpuprofile"');
  const profile = JSON.parse(await response.text());
  assert(profile.nodes.length > 0 && profile.endTime - profile.startTime > 100_000, "at least 100 ms");
  assertEquals([second.status, await second.text()], [
    500,
    "Could not enable CPU profiling: already in use\n",
  ]);
});

Deno.test("without the right to it a CPU profile is not available, and the answer says what it needs", async () => {
  const child = await new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      "-q",
      "--no-prompt",
      "--allow-sys=hostname",
      "--config",
      import.meta.resolve("../../deno.json").slice(7),
      "-",
    ],
    stdin: "piped",
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  const output = child.output();
  const writer = child.stdin.getWriter();
  await writer.write(new TextEncoder().encode(
    `import { PROFILES } from ${JSON.stringify(import.meta.resolve("./debug_pages.ts"))};
     const peer = { family: "IPv4", address: "127.0.0.1", isLoopback: true };
     const { signal } = new AbortController();
     const profile = await PROFILES.get("/debug/pprof/profile")(new Request("http://x/?seconds=1"), peer, signal);
     const heap = await PROFILES.get("/debug/pprof/heap")(new Request("http://x/"), peer, signal);
     const { snapshot } = JSON.parse(await heap.text());
     console.log(JSON.stringify([profile.status, await profile.text(), snapshot.node_count > 1000]));`,
  ));
  await writer.close();
  const [status, text, hasHeap] = JSON.parse(new TextDecoder().decode((await output).stdout));
  assertEquals([status, hasHeap], [501, true]);
  assertMatch(text, /^CPU profile: not available: .*--allow-sys/);
});

Deno.test("what holds credentials or changes something is had over the socket only, and a client that asks elsewhere learns where", async () => {
  const shown = pages({ enableProfiling: true });
  const ask = asker(shown);
  const curl = "curl (.*)--unix-socket /run/kproxy/kproxy\\.sock http://localhost";
  for (
    const [method, path] of [
      ["GET", "/debug/pprof/heap"],
      ["GET", "/debug/pprof/profile"],
      ["GET", "/debug/pprof"],
      ["PUT", "/debug/flags/v"],
      ["DELETE", "/metrics/slis"],
    ] as const
  ) {
    for (const peer of [LOCAL, REMOTE]) {
      const init = { method, peer, ...method === "PUT" ? { body: "9" } : {} };
      const refused = await ask(path, { ...init, headers: { host: "127.0.0.1:10249" } });
      assertEquals(refused.status, 403, path);
      assertMatch(
        await refused.text(),
        new RegExp(`^403 forbidden: ask over the socket, as root: ${curl}${path}\n$`),
      );
    }
  }
  assertEquals(shown.verbosity.level, 0);
  const response = await ask("/debug/pprof/heap", { over: "socket" });
  assertEquals(response.headers.get("content-disposition"), 'attachment; filename="kproxy.heapsnapshot"');
  const { snapshot } = JSON.parse(await response.text());
  assert(snapshot.node_count > 1000);
});

Deno.test("a page of others in a browser reads nothing, a scraper on whatever address everything", async () => {
  const ask = asker();
  const status = async (headers: Record<string, string>, peer: Peer): Promise<readonly number[]> =>
    await Promise.all(
      ["/metrics", "/configz", "/flagz", "/statusz", "/proxyMode", "/healthz"].map(async (path) =>
        (await ask(path, { headers, peer })).status
      ),
    );
  const all = (code: number): readonly number[] => [200, 200, 200, 200, 200, 200].map(() => code);
  for (
    const [code, headers, peer] of [
      [200, {}, LOCAL],
      [200, { host: "127.0.0.1:10249" }, LOCAL],
      [200, { host: "localhost:10249" }, LOCAL],
      [200, { host: "[::1]:10249" }, LOCAL],
      // A proxy beside, as kube-rbac-proxy is one, hands on whom its client has asked.
      [200, { host: "10.0.0.5:9091", "x-forwarded-for": "10.0.0.9" }, LOCAL],
      [200, { host: "10.0.0.5:10249" }, REMOTE],
      [200, { host: "node-a.example:10249" }, REMOTE],
      [200, { host: "127.0.0.1:10249", origin: "http://127.0.0.1:10249" }, LOCAL],
      [200, { host: "127.0.0.1:10249", "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate" }, LOCAL],
      [403, { host: "evil.example:10249" }, LOCAL],
      [403, { host: "localhost.evil.example" }, LOCAL],
      [403, { host: "127.0.0.1.evil.example:10249" }, LOCAL],
      [403, { host: "127.0.0.1:10249", origin: "http://evil.example" }, LOCAL],
      [403, { host: "127.0.0.1:10249", origin: "null" }, LOCAL],
      [403, { host: "127.0.0.1:10249", "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors" }, LOCAL],
      [403, { host: "10.0.0.5:10249", origin: "http://evil.example" }, REMOTE],
    ] as const
  ) assertEquals(await status(headers, peer), all(code), JSON.stringify(headers));
});

Deno.test("stopping the server ends a profile that is being taken", async () => {
  const shown = pages({ enableProfiling: true });
  const server = new HttpServer({
    name: "metrics",
    most: 32,
    handler: metricsHandlers(shown).socket,
    address: "127.0.0.1:0",
    hardFail: true,
    log: silentLogger,
    pool: new ConnectionPool(),
  });
  await server.start();
  const asked = fetch(`http://127.0.0.1:${server.port}/debug/pprof/profile?seconds=60`);
  const ended = asked.then((response) => response.text()).catch((error: Error) => error.name);
  await new Promise((resolve) => setTimeout(resolve, 100));
  const startMs = performance.now();
  await server.stop();
  assertEquals(await ended, "TypeError");
  assert(performance.now() - startMs < 30_000);
  // The next one may begin: the first has given the profiler back.
  const next = await profiled()("/debug/pprof/profile?seconds=0.05");
  assertEquals(next.status, 200);
  await next.body?.cancel();
});
