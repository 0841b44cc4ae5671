/** While a long text is read, everything else goes on. */
import { assert, assertEquals } from "@std/assert";
import { service, withSource } from "../../../tests/support/file_source.ts";

Deno.test("while a long text is read everything else goes on", async () => {
  const items = Array.from({ length: 3_000 }, (_, index) => service(`s${index}`, 80));
  let longestMs = 0;
  let lastMs = performance.now();
  let ticks = 0;
  await withSource({ "a.yaml": service("web", 80) }, async ({ handler, write }) => {
    const beat = setInterval(() => {
      longestMs = Math.max(longestMs, performance.now() - lastMs);
      lastMs = performance.now();
      ticks++;
    }, 5);
    try {
      await write("b.yaml", items.join(""));
      await handler.until(() => handler.objects.size === 3_001, "all are there");
    } finally {
      clearInterval(beat);
    }
  });
  assert(ticks > 10, `everything else had ${ticks} turns, the longest wait was ${longestMs} ms`);
});

Deno.test("while a long JSON list is read and taken over everything else goes on", async () => {
  const items = Array.from({ length: 20_000 }, (_, index) => ({
    apiVersion: "v1",
    kind: "Service",
    metadata: { name: `s${index}`, annotations: { text: "x".repeat(500) } },
    spec: { clusterIP: "10.96.0.1", ports: [{ port: 80 }] },
  }));
  const list = JSON.stringify({ apiVersion: "v1", kind: "List", items });
  await withSource({ "a.yaml": service("web", 80) }, async ({ handler, write }) => {
    await write("list.json", list);
    const batches = handler.batches.length;
    let ticks = 0;
    const beat = setInterval(() => ticks++, 1);
    try {
      await handler.until(() => handler.objects.size === 20_001, "all are there");
    } finally {
      clearInterval(beat);
    }
    assertEquals(handler.batches.length, batches + 1, "what comes together is programmed together");
    // Read as a whole it was some ten turns.
    assert(ticks > 40, `everything else had ${ticks} turns`);
  });
});

Deno.test("while a huge file is read, changes of others arrive, and it counts in the end", async () => {
  const huge = Array.from({ length: 8_000 }, (_, index) => service(`s${index}`, 80)).join("");
  await withSource({ "a.yaml": service("web", 80) }, async ({ folder, handler, write }) => {
    await write("huge.yaml", huge);
    // By now, reading of the huge file has begun.
    await new Promise((resolve) => setTimeout(resolve, 300));
    for (let port = 81; port < 84; port++) {
      await write("a.yaml", service("web", port));
      await handler.until(() => handler.ports().includes(`web:${port}`), `port ${port}`);
      assertEquals(handler.objects.size, 1, "the huge file is still being read");
    }
    await handler.until(() => handler.objects.size === 8_001, "all are there");
    // One that goes while it is read, or changes, leaves nothing behind.
    await write("huge.yaml", `${huge}# changed\n${service("x", 1)}`);
    await new Promise((resolve) => setTimeout(resolve, 300));
    await write("other.yaml", huge.replaceAll("name: s", "name: t"));
    await new Promise((resolve) => setTimeout(resolve, 300));
    await Deno.remove(`${folder}/other.yaml`);
    await write("huge.yaml", service("y", 2));
    await handler.untilPorts("web:83", "y:2");
    await write("a.yaml", service("web", 84));
    await handler.untilPorts("web:84", "y:2");
  });
});
