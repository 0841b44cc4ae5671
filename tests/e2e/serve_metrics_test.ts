/**
 * What the metrics server serves, as Prometheus' own tool reads it.
 *
 * @module
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { defaultConfig } from "../../lib/config/defaults.ts";
import { COUNTERS } from "../../lib/backend/iptables/plan/ruleset.ts";
import type { ProxyMode } from "../../lib/config/types.ts";
import { systemExec } from "../../lib/kernel/exec.ts";
import { silentLogger } from "../../lib/observe/log.ts";
import { ConnectionPool } from "../../lib/kernel/connection_pool.ts";
import { HttpServer } from "../../lib/serve/http_server.ts";
import { metricsHandlers } from "../../lib/serve/metrics_server.ts";
import { busyMetrics } from "../support/busy_metrics.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { WEB_NEEDS, WEB_NODE_PORT, WebLab } from "../support/lab_web.ts";
import type { Netns } from "../support/netns.ts";
import { e2eTest, program } from "../support/skip.ts";
import { StubProgram } from "../support/stub_program.ts";
import { eventually } from "../support/until.ts";

/** Gauges that have the name of a counter, in kube-proxy too. */
const MISNAMED = [
  'kubeproxy_sync_proxy_rules_iptables_total non-counter metrics should not have "_total" suffix',
  'kubeproxy_sync_proxy_rules_no_local_endpoints_total non-counter metrics should not have "_total" suffix',
];

interface Judgement {
  readonly code: number;
  readonly findings: string[];
}

async function judge(text: string): Promise<Judgement> {
  const { code, stdout, stderr } = await systemExec.run(["promtool", "check", "metrics"], { stdin: text });
  const findings = (stdout + stderr).split("\n").filter((line) => line !== "");
  return { code, findings: findings.sort() };
}

/** What a client gets from `path`. */
async function scrape(mode: ProxyMode, path: string): Promise<string> {
  const { tcp: handler } = metricsHandlers({
    registry: busyMetrics(mode).registry,
    mode,
    config: defaultConfig,
    flags: () => [],
    verbosity: { level: 0 },
    version: "0.1.0",
    emulationVersion: "1.36",
    startMs: performance.timeOrigin,
    socket: "",
  });
  const server = new HttpServer({
    name: "metrics",
    most: 32,
    handler,
    address: "127.0.0.1:0",
    hardFail: true,
    log: silentLogger,
    pool: new ConnectionPool(),
  });
  await server.start();
  try {
    const base = `http://127.0.0.1:${server.port}`;
    await (await fetch(`${base}/healthz`)).text();
    return await (await fetch(base + path, { headers: { "accept-encoding": "gzip" } })).text();
  } finally {
    await server.stop();
  }
}

e2eTest(
  "promtool reads every metric, and minds only the names that kube-proxy chose",
  [program("promtool")],
  async () => {
    for (const mode of ["iptables", "ipvs", "nftables", "userspace"] as const) {
      const text = await scrape(mode, "/metrics");
      const { code, findings } = await judge(text);
      const known = MISNAMED.filter((line) => text.includes(`# TYPE ${line.split(" ", 1)[0]} `));
      // 3: it can be read, but has findings.
      assertEquals({ code, findings }, { code: 3, findings: known }, mode);
      assert(text.split("\n").length > 300, mode);
    }
    assertEquals(await judge(await scrape("iptables", "/metrics/slis")), { code: 0, findings: [] });
  },
);

e2eTest("promtool would have noticed: broken text and bad names fail", [program("promtool")], async () => {
  const text = await scrape("iptables", "/metrics");
  assertEquals((await judge(text.replace('ip_family="IPv4"', 'ip_family="IPv4'))).code, 1);
  assertEquals((await judge(text + text)).code, 1);
  const renamed = await judge(text.replaceAll("proxy_livez_total", "proxy_livez"));
  assert(renamed.findings.some((line) => line.includes("kubeproxy_proxy_livez counter metrics should have")));
});

/** The metrics that rules of mode iptables count, as curl gets them. */
async function countedPackets(netns: Netns): Promise<string[]> {
  const curl = ["curl", "-s", "--max-time", "30", "--noproxy", "*", "http://127.0.0.1:10249/metrics"];
  return (await netns.run(curl)).split("\n").filter((line) =>
    /^kubeproxy_iptables_(?:ct_state|localhost)/.test(line)
  );
}

const INVALID_DROPPED = "kubeproxy_iptables_ct_state_invalid_dropped_packets_total";
const LOCALHOST_ACCEPTED = "kubeproxy_iptables_localhost_nodeports_accepted_packets_total";

e2eTest(
  "invalid packets and connections to node ports on 127.0.0.1 are counted, also when rules and counters are gone and made again",
  [...WEB_NEEDS, program("curl"), program("nfacct")],
  async () => {
    await using web = await WebLab.create();
    const { netns } = web.lab.node;
    await netns.run(["sysctl", "-q", "-w", "net.netfilter.nf_conntrack_tcp_loose=0"]);
    await using _kproxy = await web.start(["--iptables-sync-period=1s"]);
    // The server does not speak HTTP: what counts is that the connection was made.
    const connect = async (): Promise<void> => {
      const curl = ["curl", "-s", "-w", "%{time_connect}", "--max-time", "30", "--noproxy", "*"];
      const { stdout } = await netns.exec.run([...curl, "--http0.9", `http://127.0.0.1:${WEB_NODE_PORT}`]);
      assert(!stdout.endsWith("0.000000"), stdout);
    };
    const count = (invalid: number, localhost: number): string[] => [
      `${INVALID_DROPPED} ${invalid}`,
      `${LOCALHOST_ACCEPTED} ${localhost}`,
    ];
    assertEquals(await countedPackets(netns), count(0, 0));
    await connect();
    await connect();
    const to = { ip: "198.51.100.9", port: 40_000 };
    const answer = await web.pod.call("segment", { source: "10.244.0.5", to, flags: "A", timeoutMs: 50 });
    assertEquals(answer, "");
    assertEquals(await countedPackets(netns), count(1, 2));
    const counters = Object.values(COUNTERS);
    // A counter cannot go while a rule counts with it, and kproxy writes its rules again.
    await eventually(async () => {
      for (const program of ["iptables", "ip6tables"]) {
        for (const table of ["nat", "filter"]) await netns.run([program, "-t", table, "-F"]);
      }
      for (const counter of counters) {
        const { code, stderr } = await netns.exec.run(["nfacct", "delete", counter]);
        assert(code === 0 || stderr.includes("No such file"), stderr);
      }
    });
    await eventually(async () => {
      const saved = await netns.run(["iptables-save"]);
      for (const counter of counters) assertStringIncludes(saved, ` ${counter} `);
    });
    await connect();
    assertEquals(await countedPackets(netns), count(0, 1));
  },
);

e2eTest(
  "without nfacct, packets dropped because connection tracking finds them invalid are counted by their rule, also when it is written again",
  [...WEB_NEEDS, program("curl"), program("nfacct")],
  async () => {
    await using web = await WebLab.create();
    const { netns } = web.lab.node;
    await netns.run(["sysctl", "-q", "-w", "net.netfilter.nf_conntrack_tcp_loose=0"]);
    await using nfacct = await StubProgram.create(
      "nfacct",
      "*",
      "echo 'nfacct: Operation not supported' >&2; exit 1",
    );
    const options = { ...web.options(["--iptables-sync-period=1s"]), path: nfacct.folder };
    await using kproxy = await KproxyProcess.start(options);
    const counted = (): Promise<string[]> => countedPackets(netns);
    const name = INVALID_DROPPED;
    // An acknowledgement of nothing, three times.
    const send = async (): Promise<void> => {
      const to = { ip: "198.51.100.9", port: 40_000 };
      for (let i = 0; i < 3; i++) {
        const answer = await web.pod.call("segment", { source: "10.244.0.5", to, flags: "A", timeoutMs: 50 });
        assertEquals(answer, "");
      }
    };
    assertEquals(await counted(), [`${name} 0`]);
    await send();
    assertEquals(await counted(), [`${name} 3`]);
    const from = kproxy.lines.length;
    await netns.run(["iptables", "-t", "filter", "-F"]);
    await netns.run(["iptables", "-t", "filter", "-X", "KUBE-PROXY-CANARY"]);
    await kproxy.untilMessage("Synced rules", from);
    assertEquals(await counted(), [`${name} 3`]);
    await send();
    assertEquals(await counted(), [`${name} 6`]);
  },
);
