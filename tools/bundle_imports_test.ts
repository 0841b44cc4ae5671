import { assertEquals } from "@std/assert";
import { hideImports, isReadOnDemand } from "./bundle_imports.ts";

const LINE =
  'var a={run:()=>import("./start-ABC123.js"),doctor:()=>import("./doctor-XYZ789.js"),help:()=>import("./help-QQQ.js")};log.info("x");';

Deno.test("what a start does not need is imported unseen, everything else as before", {
  permissions: "none",
}, () => {
  const { text } = hideImports(`first();\n${LINE}\n`);
  assertEquals(
    text,
    'first();\nvar a={run:()=>import("./start-ABC123.js"),doctor:()=>import(import.meta.resolve("./doctor-XYZ789.js")),' +
      'help:()=>import(import.meta.resolve("./help-QQQ.js"))};log.info("x");\n',
  );
  assertEquals(
    hideImports('import("./doctors-A.js");import("npm:doctor-a.js")').text.includes("resolve"),
    false,
  );
});

Deno.test("files that are read on demand are known by their names", { permissions: "none" }, () => {
  const files = [
    "doctor-XVM5HQNM.js",
    "tls_transport-AB12.js",
    "preflight-BVNVTARP.js",
    "run-H3DATFOB.js",
    "doctor.js",
    "chunk-A.js",
  ];
  assertEquals(files.map(isReadOnDemand), [true, true, true, false, false, false]);
});

Deno.test("a place behind such an import is found where it is now", { permissions: "none" }, () => {
  const { text, columnNow } = hideImports(`first();\n${LINE}\n`);
  const now = text.split("\n")[1] ?? "";
  for (const word of ["var a", "doctor:", "help:", "log.info"]) {
    assertEquals(now.slice(columnNow(1, LINE.indexOf(word))).startsWith(word), true, word);
  }
  assertEquals([columnNow(0, 3), columnNow(7, 3)], [3, 3]);
});
