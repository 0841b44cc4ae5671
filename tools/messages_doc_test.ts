import { assert, assertEquals } from "@std/assert";
import * as catalog from "../lib/observe/events.ts";
import { eventRows } from "./messages_doc.ts";
import { ROOT } from "./project_files.ts";

Deno.test("every Event of the catalog is listed as it is written", async () => {
  const rows = eventRows(await Deno.readTextFile(`${ROOT}/lib/observe/events.ts`));
  assertEquals(rows.length, Object.keys(catalog).filter((name) => name.endsWith("Event")).length);
  for (const { when } of rows) assert(when.endsWith("."), when);
  const conflict = {
    service: "shop/web",
    port: 1,
    message: "",
    destination: "",
    endpoint: "",
    reason: "",
    problem: "",
  };
  const written = [
    catalog.startingEvent("n"),
    catalog.serviceHealthFailedEvent("n", conflict),
    catalog.endpointUnreachableEvent("n", conflict),
    catalog.otherProxyEvent("n", []),
  ];
  for (const { reason, type, regarding } of written) {
    const row = rows.find((one) => one.reason === reason);
    assertEquals([row?.type, row?.about], [type, regarding.kind], reason);
  }
});
