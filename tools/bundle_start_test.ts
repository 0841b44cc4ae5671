import { assertEquals } from "@std/assert";
import { planStart } from "./bundle_start.ts";

/** As the bundler writes them: a door, two files of every start, what they share, and a command with a file of its own. */
const TEXTS: ReadonlyMap<string, string> = new Map([
  ["main.js", 'import{a as b}from"./chunk-A.js";b(()=>import("./run-R.js"),()=>import("./doctor-D.js"));'],
  [
    "run-R.js",
    'import{b as c}from"./chunk-B.js";import"./chunk-A.js";c(import("./load-L.js"));export{c as run};',
  ],
  [
    "doctor-D.js",
    'import{a,b as z}from"./chunk-B.js";import"./chunk-A.js";import{x}from"./chunk-X.js";a(z,x);export{};',
  ],
  ["load-L.js", "export{};"],
  ["chunk-A.js", 'import{a as q}from"./chunk-B.js";function w(){q()}export{w as a};'],
  ["chunk-B.js", 'import"node:buffer";function a(){}export{a,a as b};'],
  ["chunk-X.js", 'import("./run-R.js").then(({run:e})=>e());export{x};'],
]);

Deno.test(
  "what every start reads becomes one file, in the order in which it ran, with what others need of it",
  {
    permissions: "none",
  },
  () => {
    const plan = planStart(TEXTS, "main.js");
    assertEquals([...plan.files], ["chunk-B.js", "chunk-A.js", "run-R.js"]);
    assertEquals(plan.entry.split("\n"), [
      'import"./chunk-B.js";',
      'import"./chunk-A.js";',
      'import"./run-R.js";',
      'export{a as s0}from"./chunk-A.js";',
      'export*as s1 from"./run-R.js";',
      'export{a as s2}from"./chunk-B.js";',
      'export{b as s3}from"./chunk-B.js";',
    ]);
    const now = (file: string): string => plan.redirected(file).text;
    assertEquals(
      now("main.js"),
      'import{s0 as b}from"./start.js";b(()=>import("./start.js").then(e=>e.s1),()=>import("./doctor-D.js"));',
    );
    assertEquals(
      now("doctor-D.js"),
      'import{s2 as a,s3 as z}from"./start.js";import"./start.js";import{x}from"./chunk-X.js";a(z,x);export{};',
    );
    assertEquals(now("chunk-X.js"), 'import("./start.js").then(e=>e.s1).then(({run:e})=>e());export{x};');
    assertEquals(now("load-L.js"), TEXTS.get("load-L.js"));
  },
);

Deno.test(
  "what some starts need stays in files of its own, which the runtime sees",
  { permissions: "none" },
  () => {
    const plan = planStart(TEXTS, "main.js");
    const part = plan.redirected("run-R.js").text;
    assertEquals(
      part,
      'import{b as c}from"./chunk-B.js";import"./chunk-A.js";c(import(import.meta.resolve("./load-L.js")));export{c as run};',
    );
    assertEquals(
      plan.restored(`${part}import(import.meta.resolve("./other-O.js"));`).text,
      'import{b as c}from"./chunk-B.js";import"./chunk-A.js";c(import("./load-L.js"));export{c as run};import(import.meta.resolve("./other-O.js"));',
    );
  },
);
