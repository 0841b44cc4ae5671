import { assert, assertEquals, assertLess, assertStringIncludes } from "@std/assert";
import { testService } from "../../../tests/support/model_objects.ts";
import { connect, manyObjects, serving } from "../../../tests/support/status_server.ts";
import { syncOutcome } from "../../../tests/support/sync_outcome.ts";
import { runtimeFlags } from "../../../tools/permissions.ts";
import { ROOT } from "../../../tools/project_files.ts";
import { RunningKproxy } from "../../inspect/running/running.ts";
import { SnapshotReader } from "../../source/decode/snapshot_text.ts";

const get = (path: string, host: string): string[] => [`GET ${path} HTTP/1.1`, `Host: ${host}`];

Deno.test("a running proxy tells its status, and the client understands all of it", async () => {
  await serving(async ({ servers, record, problems, address }) => {
    const running = new RunningKproxy(address);
    const before = await running.status();
    assertEquals(before.readiness.reasons, ["IPv4: the first sync is not done"]);
    assertEquals([before.readiness.ready, before.healthy, before.families.IPv4?.lastSync], [
      false,
      true,
      null,
    ]);
    const outcome = syncOutcome("IPv4", { quarantined: [{ service: "shop/a", problem: "no" }] });
    servers.observer.synced(outcome);
    record.observer.synced(outcome);
    record.drift.found("IPv4", ["ip kproxy"]);
    problems.add({ severity: "E", message: "Sync failed", values: { err: new Error("no") } });
    const status = await running.status();
    assertEquals(status.readiness.ready, true);
    assertEquals(status.mode, { used: "nftables", configured: "ipvs", fallback: "no kernel module" });
    assertEquals([status.node.name, status.program.pid], ["node-1", Deno.pid]);
    assertEquals(status.families.IPv4?.syncs, { full: 1, partial: 0, failed: 0 });
    assertEquals([status.quarantine.count, status.drift.found], [1, 1]);
    assertEquals(status.problems.recent.map(({ message, values }) => [message, values]), [
      ["Sync failed", 'err="no"'],
    ]);
    assertEquals(status.refusedSettings, [{ name: "net.x", reason: "read-only" }]);
    assertEquals(status.listening.metrics, [address]);
    assert(status.program.memory.resident > 1_000_000);
  });
});

Deno.test("it tells its configuration, and no password", async () => {
  await serving(async ({ address, ask }) => {
    const { config, ...rest } = await new RunningKproxy(address).config();
    assertEquals(rest, {
      apiVersion: "kproxy/v1",
      kind: "Config",
      node: "node-1",
      mode: "nftables",
      families: ["IPv4"],
      master: "https://10.0.0.1:6443",
    });
    // Switched off by a flag, which no file could say.
    assertEquals([config.healthzBindAddress, config.clusterCIDR], ["", "10.0.0.0/8"]);
    const { body } = await ask(...get("/kproxy/v1/config", address));
    assertEquals(/secret|admin/.test(body), false);
  }, { config: { clusterCIDR: "10.0.0.0/8" } });
});

Deno.test("it tells the ports that it listens on for Services, of which most modes have none", async () => {
  const portal = {
    family: "IPv4",
    servicePort: "shop/web:http",
    protocol: "TCP",
    policy: "Local",
    address: "0.0.0.0",
    port: 40_001,
    endpoints: ["10.244.0.11:8080"],
    affinitySeconds: 10,
  } as const;
  const iptables = { IPv4: { dnat: true, physdev: false, firewall: true } };
  await serving(async ({ address }) => {
    const { kind, mode, ...rest } = await new RunningKproxy(address).portals();
    assertEquals([kind, mode, rest.portals, rest.iptables], ["Portals", "userspace", [portal], iptables]);
  }, { mode: "userspace", portals: () => ({ portals: [portal], iptables }) });
  await serving(async ({ address }) => {
    assertEquals((await new RunningKproxy(address).portals()).portals, []);
  });
});

Deno.test("it tells the objects that it holds, all or those of some Services", async () => {
  const objects = manyObjects(300);
  await serving(async ({ address }) => {
    const running = new RunningKproxy(address);
    assertEquals(await running.objects(), {
      node: "node-1",
      source: "files /objects",
      objects,
      rejections: [],
    });
    const some = await running.objects({ addresses: ["10.200.0.7"] });
    assertEquals(some.objects, objects.slice(14, 16));
  }, { objects });
});

Deno.test("an object that comes twice, because it went and came meanwhile, counts as it came last", async () => {
  const old = testService({ namespace: "shop", name: "a", clusterIP: "10.0.0.1" });
  const now = testService({ namespace: "shop", name: "a", clusterIP: "10.0.0.2" });
  await serving(async ({ address }) => {
    const { objects } = await new RunningKproxy(address).objects();
    assertEquals(objects.map((object) => object.kind === "Service" && object.clusterIP), ["10.0.0.2"]);
  }, { objects: [old, now] });
});

Deno.test("strangers are told nothing, in whatever way they ask", async () => {
  await serving(async ({ address, ask }) => {
    for (const path of ["/kproxy/v1/status", "/kproxy/v1/config", "/kproxy/v1/objects"]) {
      assertEquals((await ask(...get(path, address))).status, "200", path);
      for (
        const [lines, status] of [
          [get(path, "evil.example"), "403"],
          [[...get(path, address), "Origin: http://evil.example"], "403"],
          [[...get(path, address), "X-Forwarded-For: 203.0.113.9"], "403"],
          // A proxy's client names the whole address; the header decides.
          [get(`http://127.0.0.1${path}`, "evil.example"), "403"],
          [[`GET ${path} HTTP/1.0`], "403"],
          [[`POST ${path} HTTP/1.1`, `Host: ${address}`, "Content-Length: 0"], "405"],
          [[`DELETE ${path} HTTP/1.1`, `Host: ${address}`], "405"],
          [[`OPTIONS ${path} HTTP/1.1`, `Host: ${address}`, "Origin: http://evil.example"], "405"],
          [get(`${path}/`, address), "404"],
          [get(path.toUpperCase(), address), "404"],
        ] as const
      ) {
        const answer = await ask(...lines);
        assertEquals(answer.status, status, lines.join(" | "));
        assertEquals(/node-1|access-control/i.test(answer.head + answer.body), false, lines.join(" | "));
      }
    }
  }, { objects: manyObjects(3) });
});

Deno.test("a peer that is not of this machine is told nothing, also where the server listens on all addresses", async () => {
  const own = Deno.networkInterfaces().find(({ address, family, name }) =>
    family === "IPv4" && name !== "lo" && !address.startsWith("127.")
  )?.address;
  await serving(async ({ address, ask }) => {
    assertEquals((await ask(...get("/kproxy/v1/status", address))).status, "200");
    if (own === undefined) return;
    using connection = await Deno.connect({ hostname: own, port: Number(address.split(":").at(-1)) });
    const request = `GET /kproxy/v1/status HTTP/1.1\r\nHost: ${address}\r\nConnection: close\r\n\r\n`;
    await connection.write(new TextEncoder().encode(request));
    assertStringIncludes(await new Response(connection.readable).text(), "HTTP/1.1 403 Forbidden");
  }, { config: { metricsBindAddress: "0.0.0.0:0" } });
});

Deno.test("HEAD tells that a page is there, and nothing of it", async () => {
  await serving(async ({ address, ask }) => {
    for (const path of ["/kproxy/v1/status", "/kproxy/v1/objects"]) {
      const { status, head, body } = await ask(`HEAD ${path} HTTP/1.1`, `Host: ${address}`);
      assertEquals([status, body], ["200", ""]);
      assertStringIncludes(head, "Cache-Control: no-store");
    }
  }, { objects: manyObjects(2_000) });
});

Deno.test("where the pages are switched off there are none, and the client says what that may mean", async () => {
  await serving(async ({ address, ask }) => {
    assertEquals((await ask(...get("/kproxy/v1/status", address))).status, "404");
    const error = await new RunningKproxy(address).status().catch((error: Error) => error);
    assertStringIncludes(String(error), "a service proxy in mode nftables answers on");
    assertStringIncludes(String(error), "statusApi: false");
  }, { statusApi: false });
});

Deno.test("whoever reads objects slowly, or goes, keeps nobody from reading", async () => {
  const objects = manyObjects(200);
  await serving(async ({ address }) => {
    const slow = await Promise.all(Array.from({ length: 20 }, () => connect(address)));
    const request = new TextEncoder().encode(`${get("/kproxy/v1/objects", address).join("\r\n")}\r\n\r\n`);
    for (const connection of slow) await connection.write(request);
    for (const connection of slow.slice(0, 10)) await connection.read(new Uint8Array(1_000));
    for (const connection of slow.slice(0, 5)) connection.close();
    const running = new RunningKproxy(address, { limitMs: 20_000 });
    const answers = await Promise.all(Array.from({ length: 4 }, () => running.objects()));
    for (const answer of answers) assertEquals(answer.objects.length, objects.length);
    assertEquals((await running.status()).node.name, "node-1");
    for (const connection of slow.slice(5)) connection.close();
  }, { objects });
});

Deno.test("100,000 endpoints are told without a long turn of the loop and without their memory a second time", async () => {
  const { code, stdout } = await new Deno.Command(Deno.execPath(), {
    // As the program is run: its young garbage has little room.
    args: [
      ...["run", "-q", "-A", "--no-check", "--config", `${ROOT}/deno.json`, ...v8Flags()],
      ...[`${ROOT}/tests/support/objects_read_program.ts`, "10000"],
    ],
    stdout: "piped",
    stderr: "inherit",
    stdin: "null",
  }).output();
  assertEquals(code, 0);
  const { bytes, heapMb, residentMb, longestTurnMs } = JSON.parse(new TextDecoder().decode(stdout));
  assert(bytes > 9_000_000, `${bytes} bytes`);
  assertLess(heapMb, 4);
  assertLess(residentMb, 8);
  assertLess(longestTurnMs, 50);
});

Deno.test("the objects are a snapshot by its form", async () => {
  await serving(async ({ address, ask }) => {
    const { body } = await ask("GET /kproxy/v1/objects HTTP/1.0", `Host: ${address}`);
    const reader = new SnapshotReader({ node: "node-1", server: "files /objects" }, "x");
    reader.take(new TextEncoder().encode(body));
    assertEquals(reader.end().objects.length, 6);
  }, { objects: manyObjects(3) });
});

function v8Flags(): readonly string[] {
  return runtimeFlags().filter((flag) => flag.startsWith("--v8-flags"));
}
