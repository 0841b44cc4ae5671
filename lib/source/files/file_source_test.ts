import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { FileSource, readManifests } from "./file_source.ts";
import { countingSlices } from "../../model/endpoint_slices.ts";
import type { EndpointSlice } from "../../model/objects.ts";
import { RecordedLog, RecordingHandler, service, withSource } from "../../../tests/support/file_source.ts";

Deno.test("the first read delivers everything and says so once per kind", async () => {
  const slice =
    "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: web-1\n  labels:\n" +
    "    kubernetes.io/service-name: web\naddressType: IPv4\nendpoints:\n  - addresses: [10.0.0.1]\n";
  const node = '{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}}';
  const files = {
    "b.yaml": service("web", 80) + service("api", 81),
    "a.yml": slice,
    "node.json": node,
    "notes.txt": "not: [a manifest",
    ".hidden.yaml": "not: [a manifest",
    "empty.yaml": "# nothing\n---\n",
  };
  await withSource(files, async ({ handler }) => {
    await Promise.resolve();
    assertEquals([...handler.objects.keys()].sort(), [
      "EndpointSlice default/web-1",
      "Node node-a",
      "Service default/api",
      "Service default/web",
    ]);
    assertEquals(handler.synced, ["services", "endpointslices", "nodes"]);
    assertEquals([handler.batches.length, handler.rejections], [1, []]);
  });
});

Deno.test("a file that no longer parses keeps its last good content, is reported once with its line, and recovers", async () => {
  await withSource({ "a.yaml": service("web", 80) }, async ({ folder, handler, write }) => {
    await write("a.yaml", service("web", 81) + "---\nkind: Service\n  bad: indent\n");
    const rejection = await handler.untilRejected("cannot be parsed");
    assertEquals(rejection.where, `${folder}/a.yaml:11 (document 2)`);
    assertStringIncludes(rejection.message, "last good");
    assertEquals(handler.ports(), ["web:80"]);
    await write("b.yaml", service("other", 1));
    await handler.untilPorts("other:1", "web:80");
    assertEquals(handler.rejections.length, 1);
    await write("a.yaml", service("web", 82));
    await handler.untilPorts("other:1", "web:82");
  });
});

Deno.test("a refused object keeps its last good version while the rest of its file changes", async () => {
  await withSource(
    { "a.yaml": service("web", 80) + service("api", 90) },
    async ({ handler, write, refused }) => {
      await write("a.yaml", service("web", 70000) + service("api", 91));
      await handler.untilPorts("api:91", "web:80");
      const rejection = await handler.untilRejected("spec.ports[0].port: must be 1..65535, found 70000");
      assertEquals(rejection.object, "Service default/web");
      await write("a.yaml", service("web", 70000) + service("api", 92));
      await handler.untilPorts("api:92", "web:80");
      assertEquals(handler.rejections.length, 1, "said twice");
      assertEquals(refused(), ["Service default/web"]);
      await write("a.yaml", service("web", 82) + service("api", 92));
      await handler.untilPorts("api:92", "web:82");
      assertEquals(refused(), [], "fixed");
      await write("a.yaml", service("api", 92));
      await handler.untilPorts("api:92");
    },
  );
});

Deno.test("a file that is broken from the start does not keep the others from going on", async () => {
  await withSource({ "a.yaml": "kind: [", "b.yaml": service("web", 80) }, async ({ handler, write }) => {
    assertEquals(handler.ports(), ["web:80"]);
    assertEquals(handler.rejections.length, 1);
    assert(!handler.rejections[0]?.message.includes("last good"));
    await write("a.yaml", service("api", 1));
    await handler.untilPorts("api:1", "web:80");
  });
});

Deno.test("objects of kinds that are not read are logged once for each kind and file, and not rejected", async () => {
  const object = (kind: string, name: string): string =>
    `---\napiVersion: apps/v1\nkind: ${kind}\nmetadata:\n  name: ${name}\n`;
  await withSource({
    "a.yaml": object("Deployment", "a") + service("web", 80) + object("Deployment", "b"),
    "b.yaml": object("Deployment", "c"),
  }, async ({ handler, log, write, folder }) => {
    const told = (): string[] => log.lines.filter((line) => line.includes("kind that is not read")).sort();
    const line = (file: string, kind: string, count: number): string =>
      `I Manifest objects of a kind that is not read ${
        JSON.stringify({ file: `${folder}/${file}`, kind, count })
      }`;
    const first = [line("a.yaml", "Deployment", 2), line("b.yaml", "Deployment", 1)];
    assertEquals(told(), first);
    await write("a.yaml", object("Deployment", "a") + service("web", 81) + object("StatefulSet", "c"));
    await handler.untilPorts("web:81");
    assertEquals(told(), [first[0], line("a.yaml", "StatefulSet", 1), first[1]]);
    assertEquals(handler.rejections, []);
  });
});

Deno.test("of two files with the same object the first counts, which is said once, until it goes", async () => {
  const files = { "a.yaml": service("web", 1), "b.yaml": service("web", 2) };
  await withSource(files, async ({ folder, handler, write, refused }) => {
    assertEquals(handler.ports(), ["web:1"]);
    const rejection = await handler.untilRejected("already defined");
    assertEquals(refused(), ["Service default/web"]);
    assertEquals(rejection.where, `${folder}/b.yaml:2 (document 1)`);
    assertStringIncludes(rejection.message, `${folder}/a.yaml:2`);
    await write("b.yaml", service("web", 3));
    await write("c.yaml", service("api", 1));
    await handler.untilPorts("api:1", "web:1");
    assertEquals(handler.rejections.length, 1);
    await Deno.remove(`${folder}/a.yaml`);
    await handler.untilPorts("api:1", "web:3");
    assertEquals(refused(), []);
    await write("a.yaml", service("web", 4));
    await handler.untilPorts("api:1", "web:4");
    assertEquals(handler.rejections.length, 2);
    await Deno.remove(`${folder}/b.yaml`);
    await write("c.yaml", service("api", 2));
    await handler.untilPorts("api:2", "web:4");
    await write("b.yaml", service("web", 5));
    await handler.until(() => handler.rejections.length === 3, "the new conflict is said");
  });
});

Deno.test("what kube-proxy's selectors leave out is left out, also from one edit to the next", async () => {
  const foreign = "  labels:\n    service.kubernetes.io/service-proxy-name: other\n";
  await withSource({ "a.yaml": service("web", 80) }, async ({ handler, write }) => {
    await write("a.yaml", service("web", 80, foreign));
    await handler.untilPorts();
    await write("a.yaml", service("web", 80));
    await handler.untilPorts("web:80");
    await write("a.yaml", service("web", 80).replace("10.96.0.1", "None"));
    await handler.untilPorts();
  });
});

Deno.test("comments, order and rewriting change nothing: no event", async () => {
  await withSource({ "a.yaml": service("web", 80) + service("api", 90) }, async ({ handler, write }) => {
    const batches = handler.batches.length;
    await write("a.yaml", "# reordered\n" + service("api", 90) + service("web", 80));
    await write("z.yaml", service("last", 1));
    await handler.untilPorts("api:90", "last:1", "web:80");
    assertEquals(handler.batches.length, batches + 1);
  });
});

Deno.test("a file reached over two paths is read once", async () => {
  await withSource(
    { "a.yaml": service("web", 80) },
    async ({ handler }) => {
      await Promise.resolve();
      assertEquals([handler.ports(), handler.rejections], [["web:80"], []]);
    },
    {},
    ["a.yaml", "."],
  );
});

Deno.test("standard input is read once and counts by its place among the paths", async () => {
  const stdin = new Blob([service("web", 1) + service("piped", 1)]).stream();
  await withSource(
    { "a.yaml": service("web", 2) },
    async ({ handler, write }) => {
      assertEquals(handler.ports(), ["piped:1", "web:1"]);
      assertStringIncludes((await handler.untilRejected("already defined")).message, "stdin:2 (document 1)");
      await write("b.yaml", service("api", 1));
      await handler.untilPorts("api:1", "piped:1", "web:1");
    },
    { stdin },
    ["-", "."],
  );
});

Deno.test("aborting while standard input is open ends the run", async () => {
  const stdin = new ReadableStream<Uint8Array>();
  const abort = new AbortController();
  const source = new FileSource({ paths: ["-"], log: new RecordedLog(), stdin });
  const handler = new RecordingHandler();
  let hasEnded = false;
  const running = source.run(handler, abort.signal).then(() => hasEnded = true);
  await new Promise((resolve) => setTimeout(resolve, 20));
  assertEquals(hasEnded, false);
  abort.abort();
  await running;
  assertEquals([handler.objects.size, handler.synced], [0, []]);
});

Deno.test("a path that does not exist at the start is an error that names it", async () => {
  const source = new FileSource({ paths: ["/nonexistent/manifests"], log: new RecordedLog() });
  await assertRejects(
    () => source.run(new RecordingHandler(), new AbortController().signal),
    Deno.errors.NotFound,
    'no such file or folder: "/nonexistent/manifests"',
  );
});

Deno.test("a cluster IP that is an address of the node is refused", async () => {
  const files = {
    "a.yaml": service("web", 80),
    "b.yaml": service("api", 81).replace("10.96.0.1", "192.0.2.7"),
  };
  await withSource(files, async ({ handler }) => {
    await handler.untilRejected('spec.clusterIP: must not be an address of this node, found "192.0.2.7"');
    assertEquals(handler.ports(), ["web:80"]);
  }, { ownIps: () => ["192.0.2.7", "fd00::7"] });
});

Deno.test("v1 Endpoints count until there is a slice for the Service", async () => {
  const endpoints = "apiVersion: v1\nkind: Endpoints\nmetadata:\n  name: web\nsubsets:\n" +
    "  - addresses: [{ip: 10.0.0.1}]\n    ports: [{port: 80}]\n";
  const slice =
    "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: web-1\n  labels:\n" +
    "    kubernetes.io/service-name: web\naddressType: IPv4\nendpoints:\n  - addresses: [10.0.0.1]\n";
  await withSource({ "a.yaml": endpoints }, async ({ folder, handler, write }) => {
    const until = (...names: string[]) =>
      handler.until(
        () =>
          [...handler.objects.keys()].join() === names.map((name) => `EndpointSlice default/${name}`).join(),
        names.join(),
      );
    const counting = () =>
      countingSlices([...handler.objects.values()] as EndpointSlice[]).map(({ name }) => name);
    await until("endpoints/web/IPv4");
    assertEquals(counting(), ["endpoints/web/IPv4"]);
    await write("b.yaml", slice);
    await until("endpoints/web/IPv4", "web-1");
    assertEquals(counting(), ["web-1"]);
    await Deno.remove(`${folder}/b.yaml`);
    await until("endpoints/web/IPv4");
    assertEquals(counting(), ["endpoints/web/IPv4"]);
    await write("a.yaml", endpoints.replace("10.0.0.1", "fd00::1"));
    await until("endpoints/web/IPv6");
  });
});

Deno.test("the demo's manifests are good", async () => {
  const { objects, problems } = await readManifests([
    new URL("../../../examples/demo", import.meta.url).pathname,
  ]);
  assertEquals(problems, []);
  assertEquals(objects.map(({ kind }) => kind).sort(), ["EndpointSlice", "Service"]);
});
