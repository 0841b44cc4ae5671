import { assert, assertEquals, assertLess, assertStringIncludes } from "@std/assert";
import { testService } from "../../../tests/support/model_objects.ts";
import { connectTo, manyObjects, serving } from "../../../tests/support/status_server.ts";
import { syncOutcome } from "../../../tests/support/sync_outcome.ts";
import { runtimeFlags } from "../../../tools/permissions.ts";
import { ROOT } from "../../../tools/project_files.ts";
import { RunningKproxy } from "../../inspect/running/running.ts";
import { SnapshotReader } from "../../source/snapshot/snapshot_format.ts";

const get = (path: string, host: string): string[] => [`GET ${path} HTTP/1.1`, `Host: ${host}`];

Deno.test("a running proxy tells its status, and the client understands all of it", async () => {
  await serving(async ({ servers, record, problems, address, socket }) => {
    const running = new RunningKproxy(socket);
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
  await serving(async ({ socket, askSocket }) => {
    const { config, ...rest } = await new RunningKproxy(socket).config();
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
    const { body } = await askSocket(...get("/kproxy/v1/config", "localhost"));
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
  await serving(async ({ socket }) => {
    const { kind, mode, ...rest } = await new RunningKproxy(socket).portals();
    assertEquals([kind, mode, rest.portals, rest.iptables], ["Portals", "userspace", [portal], iptables]);
  }, { mode: "userspace", portals: () => ({ portals: [portal], iptables }) });
  await serving(async ({ socket }) => {
    assertEquals((await new RunningKproxy(socket).portals()).portals, []);
  });
});

Deno.test("it tells the objects that it holds, all or those of some Services", async () => {
  const objects = manyObjects(300);
  await serving(async ({ socket }) => {
    const running = new RunningKproxy(socket);
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
  await serving(async ({ socket }) => {
    const { objects } = await new RunningKproxy(socket).objects();
    assertEquals(objects.map((object) => object.kind === "Service" && object.clusterIP), ["10.0.0.2"]);
  }, { objects: [old, now] });
});

Deno.test("over TCP a client learns nothing that the socket tells, however it asks, but where to ask", async () => {
  await serving(async ({ address, socket, ask, askSocket }) => {
    for (
      const path of ["/kproxy/v1/status", "/kproxy/v1/config", "/kproxy/v1/objects", "/kproxy/v1/portals"]
    ) {
      assertEquals((await askSocket(...get(path, "localhost"))).status, "200", path);
      const { body } = await ask(...get(path, address));
      const curl = `curl --unix-socket ${socket} http://localhost${path}`;
      assertEquals(body, `403 forbidden: ask over the socket, as root: ${curl}\n`);
      for (
        const [lines, status] of [
          [get(path, address), "403"],
          [get(path, "evil.example"), "403"],
          [[...get(path, address), "Origin: http://evil.example"], "403"],
          // A proxy's client names the whole address; the header decides.
          [get(`http://127.0.0.1${path}`, "evil.example"), "403"],
          [[`GET ${path} HTTP/1.0`], "403"],
          [[`HEAD ${path} HTTP/1.0`], "403"],
          [[`POST ${path} HTTP/1.1`, `Host: ${address}`, "Content-Length: 0"], "403"],
          [get(`${path}/`, address), "404"],
          [get(path.toUpperCase(), address), "404"],
        ] as const
      ) {
        const answer = await ask(...lines);
        assertEquals(answer.status, status, lines.join(" | "));
        assertEquals(/node-1|access-control/i.test(answer.head + answer.body), false, lines.join(" | "));
      }
    }
    assertEquals((await ask("POST /kproxy/v1/audit?action=x HTTP/1.1", `Host: ${address}`)).status, "403");
  }, { objects: manyObjects(3) });
});

Deno.test("where the documents are switched off there are none, and the client says what that means", async () => {
  await serving(async ({ address, ask, socket }) => {
    assertEquals((await ask(...get("/kproxy/v1/status", address))).status, "404");
    const error = await new RunningKproxy(socket).status().catch((error: Error) => error);
    assertStringIncludes(String(error), "kproxy.statusApi: false");
  }, { statusApi: false });
});

Deno.test("a client that reads objects slowly, or goes, keeps no other from reading", async () => {
  const objects = manyObjects(200);
  await serving(async ({ socket }) => {
    const slow = await Promise.all(Array.from({ length: 20 }, () => connectTo(socket)));
    const request = new TextEncoder().encode(
      `${get("/kproxy/v1/objects", "localhost").join("\r\n")}\r\n\r\n`,
    );
    for (const connection of slow) await connection.write(request);
    for (const connection of slow.slice(0, 10)) await connection.read(new Uint8Array(1_000));
    for (const connection of slow.slice(0, 5)) connection.close();
    const running = new RunningKproxy(socket, { limitMs: 20_000 });
    const answers = await Promise.all(Array.from({ length: 4 }, () => running.objects()));
    for (const answer of answers) assertEquals(answer.objects.length, objects.length);
    assertEquals((await running.status()).node.name, "node-1");
    for (const connection of slow.slice(5)) connection.close();
  }, { objects });
});

Deno.test("100,000 endpoints are reported without a long turn of the loop and without their memory a second time", async () => {
  const { code, stdout } = await new Deno.Command(Deno.execPath(), {
    // With the flags of the real program, which leave little room for young garbage.
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
  await serving(async ({ askSocket }) => {
    const { body } = await askSocket("GET /kproxy/v1/objects HTTP/1.0");
    const reader = new SnapshotReader({ node: "node-1", server: "files /objects" }, "x");
    reader.take(new TextEncoder().encode(body));
    assertEquals(reader.end().objects.length, 6);
  }, { objects: manyObjects(3) });
});

function v8Flags(): readonly string[] {
  return runtimeFlags().filter((flag) => flag.startsWith("--v8-flags"));
}
