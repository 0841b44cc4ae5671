import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import type { EndpointSlice, Service } from "../../lib/model/objects.ts";
import { silentLogger } from "../../lib/observe/log.ts";
import { CombinedSource } from "../../lib/source/combined_source.ts";
import { FileSource } from "../../lib/source/files/file_source.ts";
import { KubeSource, type KubeSourceOptions } from "../../lib/source/kube/kube_source.ts";
import { apiAccess } from "../../lib/source/kube/api_access.ts";
import { REFLECTOR_TIMES } from "../../lib/source/kube/reflector.ts";
import type { ApiRequest } from "../../lib/observe/metrics.ts";
import { type Clock, systemClock } from "../../lib/kernel/clock.ts";
import { apiServers, KAPI, Kapi, KAPI_TOKEN } from "../support/kapi.ts";
import { kubeconfigText } from "../support/kubeconfig_text.ts";
import { rawNode, rawService, rawSlice } from "../support/raw_objects.ts";
import { e2eTest } from "../support/skip.ts";
import { type RunningSource, runSource } from "../support/source_recorder.ts";
import { until } from "../support/until.ts";
import { tempFolder } from "../support/temp_files.ts";

/** The system's clock, but waits begin to pass only once it is released. */
class HeldClock implements Clock {
  #release: () => void = () => {};
  readonly #released = new Promise<void>((resolve) => this.#release = resolve);

  nowMs(): number {
    return systemClock.nowMs();
  }

  async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    const aborted = new Promise<void>((resolve) => signal?.addEventListener("abort", () => resolve()));
    await Promise.race([this.#released, aborted]);
    await systemClock.sleep(ms, signal);
  }

  release(): void {
    this.#release();
  }
}

const NO_ENV = { get: (): undefined => undefined };
/** What kube-proxy has without a configuration. */
const SOURCE_OPTIONS = {
  nodeName: "n1",
  qps: 5,
  burst: 10,
} as const;

/** A kubeconfig for kapi in its folder, with these fields of cluster and user. */
async function writeKubeconfig(
  kapi: Kapi,
  name: string,
  cluster: Readonly<Record<string, unknown>>,
  user: Readonly<Record<string, unknown>>,
): Promise<string> {
  const path = `${kapi.folder}/${name}`;
  await Deno.writeTextFile(path, kubeconfigText({ cluster: { server: kapi.url, ...cluster }, user }));
  return path;
}

async function start(
  kapi: Kapi,
  kubeconfig: string = kapi.kubeconfig,
  options: Partial<KubeSourceOptions> = {},
): Promise<RunningSource> {
  const access = await apiAccess({ kubeconfig, master: "", env: NO_ENV });
  return runSource((log) => new KubeSource({ ...SOURCE_OPTIONS, access, log, ...options }));
}

async function putWeb(kapi: Kapi): Promise<void> {
  await kapi.put(rawNode("n1"));
  await kapi.put(rawNode("n2"));
  await kapi.put(rawService("web"));
  await kapi.put(rawSlice("web", ["10.1.0.1", "10.1.0.2"]));
}

const WEB = ["EndpointSlice default/web-x", "Node n1", "Service default/web"];

async function errorsOf(kapi: Kapi, kubeconfig: string): Promise<string> {
  const source = await start(kapi, kubeconfig);
  await until(() => source.lines.some((line) => line.startsWith("E")));
  await source[Symbol.asyncDispose]();
  assertEquals(source.recorder.synced, [], source.lines.join(""));
  return source.lines.filter((line) => line.startsWith("E")).join("");
}

/** What is there, and what becomes of it. */
async function objectSteps(t: Deno.TestContext, kapi: Kapi): Promise<void> {
  await t.step("first lists, then added, changed and deleted objects", async () => {
    await putWeb(kapi);
    await kapi.put(rawService("headless", { clusterIP: "None" }));
    await kapi.put(rawService("foreign", { labels: { "service.kubernetes.io/service-proxy-name": "" } }));
    await using source = await start(kapi);
    const { recorder } = source;
    await recorder.untilSynced();
    assertEquals(recorder.names(), WEB);
    await kapi.put(rawService("web", { port: 81 }));
    await recorder.until(
      () => (recorder.objects.get(WEB[2] ?? "") as Service).ports[0]?.port === 81,
      "port 81",
    );
    await kapi.put(rawSlice("web", ["10.1.0.3"]));
    await recorder.until(
      () => (recorder.objects.get(WEB[0] ?? "") as EndpointSlice).endpoints.length === 1,
      "one",
    );
    await kapi.patch(rawNode("n1"), { metadata: { labels: { "topology.kubernetes.io/zone": "a" } } });
    await kapi.patch(rawNode("n2"), { metadata: { labels: { "topology.kubernetes.io/zone": "b" } } });
    await kapi.remove(rawSlice("web", []));
    await recorder.untilThere(WEB[0] ?? "", false);
    assertEquals(recorder.names("Node"), ["Node n1"]);
    const deleted = recorder.story().filter((line) => line.startsWith("delete"));
    assertEquals(deleted, [`delete ${WEB[0]}`]);
    assertEquals(recorder.rejections, []);
  });

  await t.step(
    "a Service that gains the label of another proxy goes, and comes back when it loses it",
    async () => {
      await kapi.clear();
      await putWeb(kapi);
      await using source = await start(kapi);
      await source.recorder.untilSynced();
      const label = "service.kubernetes.io/service-proxy-name";
      await kapi.patch(rawService("web"), { metadata: { labels: { [label]: "other" } } });
      await source.recorder.untilThere("Service default/web", false);
      await kapi.patch(rawService("web"), { metadata: { labels: { [label]: null } } });
      await source.recorder.untilThere("Service default/web");
    },
  );
}

/** Many watches after one another, and lists of many pages. */
async function longSteps(t: Deno.TestContext, kapi: Kapi): Promise<void> {
  await t.step(
    "silent watches are opened again: no error, no list, and changes arrive at once all the time",
    async () => {
      await kapi.clear();
      await putWeb(kapi);
      const answers: string[] = [];
      const times = { ...REFLECTOR_TIMES, silenceMs: 300 };
      const onRequest = ({ code }: ApiRequest) => void answers.push(code);
      await using source = await start(kapi, kapi.kubeconfig, { times, onRequest, qps: 50 });
      const { recorder } = source;
      await recorder.untilSynced();
      const [lateMs, limitsMs]: [number[], number[]] = [[], []];
      const from = recorder.batches.length;
      for (let i = 0; i < 25; i++) {
        // Of one kind, at any moment while another watch is opened; the others are silent.
        const name = `during-${i}`;
        const putMs = performance.now();
        await kapi.put(rawService(name));
        const startMs = performance.now();
        await recorder.untilThere(`Service default/${name}`);
        lateMs.push(performance.now() - startMs);
        // Where the server takes long to write it, it takes long to tell of it.
        limitsMs.push(700 + 20 * (startMs - putMs));
        await new Promise((resolve) => setTimeout(resolve, 40 * (i % 8)));
      }
      // A machine may stand still at one of them or two; if they waited long for another watch, many would be late.
      assert(lateMs.filter((ms, i) => ms > limitsMs[i]!).length <= 2, `${lateMs} of ${limitsMs}`);
      assertEquals(recorder.story(from).length, 25);
      assertEquals(source.lines.filter((line) => /^[EW]/.test(line)), []);
      // Three lists and three watches, all the rest are opened after silence. Over kapi's etcd, lists are not to be had as watches.
      const refused = kapi.isKapi ? ["422", "422", "422"] : [];
      assert(answers.length > 3 + 3 + refused.length + 20, String(answers.length));
      assertEquals(answers.filter((code) => code !== "200"), refused);
    },
  );

  await t.step("long lists in pages, and all of their changes", async () => {
    await kapi.clear();
    await kapi.fill(1200, 2);
    await using source = await start(kapi);
    const { recorder } = source;
    await recorder.untilSynced();
    assertEquals([recorder.names("Service").length, recorder.names("EndpointSlice").length], [1200, 1200]);
    await kapi.clear();
    await recorder.until(() => recorder.objects.size === 0, "everything gone");
  });
}

/** Who the client is. */
async function clientSteps(t: Deno.TestContext, kapi: Kapi): Promise<void> {
  await t.step(
    "a token file that changes, its old token revoked: nothing is lost and no token is logged",
    async () => {
      await kapi.clear();
      await putWeb(kapi);
      const tokenFile = `${kapi.folder}/token`;
      await kapi.admit("first-secret");
      await Deno.writeTextFile(tokenFile, "first-secret\n");
      const ca = { "certificate-authority": "ca.crt" };
      const path = await writeKubeconfig(kapi, "by-token-file", ca, { tokenFile: "token" });
      await using source = await start(kapi, path, { random: () => 0.99 });
      await source.recorder.untilSynced();
      await kapi.admit("second-secret");
      await kapi.revoke("first-secret");
      // A restart ends the watches, so that new requests need the new token; for a while there is only the old one.
      await kapi.restart();
      await kapi.put(rawService("after-restart"));
      // Waits of 1.6, 3.2 and 6.4 s: the last one is under way.
      const refusals = () => source.lines.filter((line) => line.includes("status 401")).length;
      await until(() => refusals() >= 9, "three kinds refused three times");
      assertEquals(source.recorder.names("Service"), ["Service default/web"]);
      await Deno.writeTextFile(tokenFile, "second-secret\n");
      await source.recorder.untilThere("Service default/after-restart", true, 4_000);
      assertEquals(source.recorder.story().filter((line) => line.startsWith("delete")), []);
      assertStringIncludes(source.lines.join(""), "status 401");
      assertEquals(source.lines.join("").includes("secret"), false);
    },
  );

  await t.step("a client certificate, and another one in its place", async () => {
    const user = { "client-certificate": "kube-proxy.crt", "client-key": "kube-proxy.key" };
    const path = await writeKubeconfig(kapi, "by-certificate", { "certificate-authority": "ca.crt" }, user);
    await using source = await start(kapi, path);
    await source.recorder.untilSynced();
    await kapi.clientCertificate("kube-proxy");
    await kapi.restart();
    await kapi.put(rawService("renewed"));
    await source.recorder.untilThere("Service default/renewed");
    await kapi.clientCertificate("expired", "-1h");
    const expired = { "client-certificate": "expired.crt", "client-key": "expired.key" };
    const bad = await writeKubeconfig(kapi, "by-expired", { "certificate-authority": "ca.crt" }, expired);
    assertStringIncludes(await errorsOf(kapi, bad), "status 401");
  });
}

async function serverIdentityStep(t: Deno.TestContext, kapi: Kapi): Promise<void> {
  await t.step("who the server is: verified, verified under another name, not verified", async () => {
    const ca = { "certificate-authority": "ca.crt" };
    const token = { token: KAPI_TOKEN };
    const good: readonly Readonly<Record<string, unknown>>[] = [
      ca,
      { ...ca, "tls-server-name": "kubernetes.default.svc" },
      { ...ca, "tls-server-name": "127.0.0.1" },
      { ...ca, "tls-server-name": "127.0.0.1", server: kapi.url.replace("127.0.0.1", "localhost") },
      { "insecure-skip-tls-verify": true },
      { "insecure-skip-tls-verify": true, "tls-server-name": "no.such.name" },
    ];
    for (const [index, cluster] of good.entries()) {
      const path = await writeKubeconfig(kapi, `good-${index}`, cluster, token);
      await using source = await start(kapi, path);
      await source.recorder.untilSynced();
      const name = `tls-${index}`;
      await kapi.put(rawService(name));
      await source.recorder.untilThere(`Service default/${name}`);
    }
    const bad: readonly [Readonly<Record<string, unknown>>, RegExp][] = [
      [{}, /UnknownIssuer|certificate/i],
      [{ ...ca, "tls-server-name": "127.0.0.2" }, /NotValidForName|does not match|not valid/i],
      [{ ...ca, "tls-server-name": "no.such.name" }, /NotValidForName|does not match|not valid/i],
      [{ "certificate-authority": "client-ca.crt" }, /UnknownIssuer|BadSignature|certificate/i],
      [{ "certificate-authority": "client-ca.crt", "tls-server-name": "kubernetes" }, /certificate|issuer/i],
    ];
    for (const [index, [cluster, message]] of bad.entries()) {
      const path = await writeKubeconfig(kapi, `bad-${index}`, cluster, token);
      const told = await errorsOf(kapi, path);
      assert(message.test(told), `${JSON.stringify(cluster)}: ${told}`);
    }
    const anonymous = await writeKubeconfig(kapi, "anonymous", ca, {});
    assertStringIncludes(await errorsOf(kapi, anonymous), "status 401: Unauthorized");
  });
}

async function compactionStep(t: Deno.TestContext, kapi: Kapi): Promise<void> {
  await t.step("a compaction while we watch, and one while the server is away: nothing is lost", async () => {
    await kapi.clear();
    await putWeb(kapi);
    await using source = await start(kapi);
    const { recorder } = source;
    await recorder.untilSynced();
    await kapi.compact();
    await kapi.put(rawService("after-compaction"));
    await recorder.untilThere("Service default/after-compaction");
    // The source's versions must be older than what the server still knows when it watches again.
    const hold = new HeldClock();
    await using behind = await start(kapi, kapi.kubeconfig, { clock: hold });
    await behind.recorder.untilSynced();
    await kapi.pause();
    await kapi.resume();
    await kapi.put(rawService("unseen"));
    await kapi.remove(rawService("web"));
    await kapi.compact();
    await kapi.restart();
    await kapi.put(rawService("last"));
    hold.release();
    for (const each of [recorder, behind.recorder]) {
      await each.untilThere("Service default/last");
      assertEquals(each.names(), [
        "EndpointSlice default/web-x",
        "Node n1",
        "Service default/after-compaction",
        "Service default/last",
        "Service default/unseen",
      ]);
    }
    assert(behind.lines.some((line) => line.includes("Listing again")), behind.lines.join(""));
  });
}

async function absenceStep(t: Deno.TestContext, kapi: Kapi): Promise<void> {
  await t.step("the server stops for a minute: what was known stays, what changed arrives", async () => {
    await kapi.clear();
    await putWeb(kapi);
    await using source = await start(kapi);
    const { recorder } = source;
    await recorder.untilSynced();
    const from = recorder.batches.length;
    await kapi.pause(true);
    await new Promise((resolve) => setTimeout(resolve, 60_000));
    assertEquals(recorder.batches.length, from);
    await kapi.resume();
    await kapi.put(rawService("back"));
    await kapi.remove(rawSlice("web", []));
    await recorder.untilThere("Service default/back");
    await recorder.untilThere("EndpointSlice default/web-x", false);
    assertEquals(recorder.story(from).sort(), [
      "add Service default/back",
      "delete EndpointSlice default/web-x",
    ]);
    const told = source.lines.filter((line) => /^[EW]/.test(line));
    assertEquals(told.length, 1, told.join(""));
    assertEquals(source.lines.filter((line) => line.includes("is back")).length, 1);
  });
}

async function filesStep(t: Deno.TestContext, kapi: Kapi): Promise<void> {
  await t.step("files before the API server, object by object", async () => {
    await kapi.clear();
    await putWeb(kapi);
    await kapi.put(rawService("only-there"));
    await using temporary = await tempFolder();
    const folder = temporary.path;
    await Deno.writeTextFile(`${folder}/web.yaml`, JSON.stringify(rawService("web", { port: 8080 })));
    const access = await apiAccess({ kubeconfig: kapi.kubeconfig, master: "", env: NO_ENV });
    const reports: string[] = [];
    await using source = runSource((log) =>
      new CombinedSource(
        new FileSource({ paths: [folder], log: silentLogger }),
        new KubeSource({ ...SOURCE_OPTIONS, access, log }),
        (message) => reports.push(message),
      )
    );
    const { recorder } = source;
    await recorder.untilSynced();
    const port = () => (recorder.objects.get("Service default/web") as Service).ports[0]?.port;
    assertEquals(recorder.names("Service"), ["Service default/only-there", "Service default/web"]);
    assertEquals(port(), 8080);
    assertEquals(reports.length, 1);
    await kapi.put(rawService("web", { port: 82 }));
    await kapi.put(rawService("marker"));
    await recorder.untilThere("Service default/marker");
    assertEquals(port(), 8080);
    await Deno.remove(`${folder}/web.yaml`);
    await recorder.until(() => port() === 82, "the API server's Service");
    assertEquals(recorder.story().filter((line) => line.startsWith("delete")), []);
  });
}

for (const { name, ...options } of apiServers()) {
  e2eTest(`the API server source against ${name}`, KAPI, async (t) => {
    await using kapi = await Kapi.start([], options);
    await objectSteps(t, kapi);
    await longSteps(t, kapi);
    await clientSteps(t, kapi);
    await serverIdentityStep(t, kapi);
    await compactionStep(t, kapi);
    await absenceStep(t, kapi);
    await filesStep(t, kapi);
  });
}

e2eTest("the API server source against an old server that refuses what it does not know", KAPI, async () => {
  await using kapi = await Kapi.start(["-without-slices", "-without-service-fields", "-forbid", "nodes"]);
  await kapi.put(rawService("web"));
  await kapi.put(
    rawService("headless", { clusterIP: "None", labels: { "service.kubernetes.io/headless": "" } }),
  );
  await using source = await start(kapi);
  const { recorder } = source;
  await recorder.until(() => recorder.synced.length === 2, "Services and Nodes");
  await new Promise((resolve) => setTimeout(resolve, 500));
  assertEquals([...recorder.synced].sort(), ["nodes", "services"]);
  assertEquals(recorder.names(), ["Service default/web"]);
});
