import { assert, assertEquals } from "@std/assert";
import { systemClock } from "../../lib/kernel/clock.ts";
import { serviceHealthFailedEvent, startingEvent, sysctlsRefusedEvent } from "../../lib/observe/events.ts";
import { apiAccess } from "../../lib/source/kube/api_access.ts";
import { KubeEvents } from "../../lib/source/kube/event_recorder.ts";
import { KubeClient } from "../../lib/source/kube/kube_client.ts";
import { apiServers, KAPI, Kapi } from "../support/kapi.ts";
import { kubeconfigText } from "../support/kubeconfig_text.ts";
import { recordingLog } from "../support/recording_log.ts";
import { e2eTest } from "../support/skip.ts";
import { until } from "../support/until.ts";

/** A recorder at work on a server. */
class Reporter implements AsyncDisposable {
  readonly lines: readonly string[];
  readonly #client: KubeClient;
  readonly #stop = new AbortController();
  readonly events: KubeEvents;
  readonly #ended: Promise<void>;

  private constructor(client: KubeClient) {
    this.#client = client;
    const { log, lines } = recordingLog();
    this.lines = lines;
    this.events = new KubeEvents({
      client,
      hostname: "host-7",
      log,
      clock: systemClock,
      nowMs: () => performance.timeOrigin + performance.now(),
      random: Math.random,
    });
    this.#ended = this.events.run(this.#stop.signal);
  }

  static async start(kubeconfig: string): Promise<Reporter> {
    const access = await apiAccess({ kubeconfig, master: "", env: { get: () => undefined } });
    return new Reporter(
      new KubeClient({ access, qps: 0, burst: 0, userAgent: "kproxy", clock: systemClock }),
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#ended;
    this.#client.close();
  }
}

async function fieldsStep(t: Deno.TestContext, kapi: Kapi): Promise<void> {
  await t.step("with every field, and a repeat as a series", async () => {
    await using reporter = await Reporter.start(kapi.kubeconfig);
    const beforeMs = Date.now();
    reporter.events.record(startingEvent("node-a"));
    const [event] = await kapi.untilEvents(1);
    const { metadata, eventTime, ...rest } = event!;
    assert(/^node-a\.[0-9a-f]{16}$/.test(metadata.name), metadata.name);
    assert(/^[-\dT:]{19}\.\d{6}Z$/.test(String(eventTime)), String(eventTime));
    const timeMs = Date.parse(String(eventTime));
    assert(timeMs >= beforeMs - 1000 && timeMs <= Date.now() + 1000, String(eventTime));
    for (
      const [field, value] of Object.entries({
        reportingController: "kube-proxy",
        reportingInstance: "kube-proxy-host-7",
        action: "StartKubeProxy",
        reason: "Starting",
        type: "Normal",
        regarding: { apiVersion: "v1", kind: "Node", name: "node-a" },
      })
    ) assertEquals(rest[field], value, field);

    reporter.events.record(startingEvent("node-a"));
    const [series] = await kapi.untilEvents(1, ({ series }) => series !== undefined);
    assertEquals((series?.["series"] as { count: number }).count, 2);
    assertEquals(series?.metadata.name, metadata.name);
    assertEquals(reporter.lines, []);
  });
}

/** A kubeconfig by which the client does not look who the server is. */
async function insecureKubeconfig(kapi: Kapi, token: string): Promise<string> {
  const path = `${kapi.folder}/insecure`;
  const cluster = { server: kapi.url, "insecure-skip-tls-verify": true };
  await Deno.writeTextFile(path, kubeconfigText({ cluster, user: { token } }));
  return path;
}

for (const { name, ...options } of apiServers()) {
  e2eTest(
    `Events arrive at ${name}, however it is verified, also from kube-proxy's account`,
    KAPI,
    async (t) => {
      await using kapi = await Kapi.start([], options);
      await kapi.makeNamespace("shop");
      await kapi.admit("kube-proxy-token");
      const insecure = await insecureKubeconfig(kapi, "kube-proxy-token");
      await fieldsStep(t, kapi);

      await t.step("of a Service in its namespace, over an unverified connection", async () => {
        await using reporter = await Reporter.start(insecure);
        const conflict = { service: "shop/web", port: 32000, message: "address in use" };
        reporter.events.record(serviceHealthFailedEvent("node-a", conflict));
        const refused = { name: "x", wanted: 1, found: null, problem: "ü".repeat(2000) };
        reporter.events.record(sysctlsRefusedEvent("node-a", [refused]));
        const [event] = await kapi.untilEvents(1, undefined, "shop");
        assertEquals(
          event?.["note"],
          'node node-a failed to start healthcheck "shop/web" on port 32000: address in use',
        );
        const [long] = await kapi.untilEvents(1, ({ reason }) => reason === "readOnlySysFS");
        assertEquals(new TextEncoder().encode(String(long?.["note"])).length <= 1024, true);
        assertEquals(reporter.lines, []);
      });

      await t.step("also after the server was away", async () => {
        await using reporter = await Reporter.start(kapi.kubeconfig);
        await kapi.pause();
        reporter.events.record(startingEvent("node-b"));
        await new Promise((resolve) => setTimeout(resolve, 200));
        await kapi.resume();
        // The second try comes ten seconds after the first.
        await kapi.untilEvents(1, ({ metadata }) => metadata.name.startsWith("node-b."));
        assertEquals(reporter.lines, []);
      });
    },
  );

  e2eTest(`${name} that forbids Events is reported once`, KAPI, async () => {
    await using kapi = await Kapi.start(name === "kapi" ? ["-forbid", "events"] : [], options);
    await kapi.admit("nobody-token");
    await using reporter = await Reporter.start(await insecureKubeconfig(kapi, "nobody-token"));
    for (const node of ["node-a", "node-b", "node-c"]) reporter.events.record(startingEvent(node));
    await until(() => reporter.lines.length > 0);
    await new Promise((resolve) => setTimeout(resolve, 500));
    assertEquals(reporter.lines.length, 1);
    assert(reporter.lines[0]?.includes("The API server does not take Events"), reporter.lines[0]);
    assert(reporter.lines[0]?.includes("status 403"), reporter.lines[0]);
  });
}
