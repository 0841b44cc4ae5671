import { assertEquals } from "@std/assert";
import { deferRequires, REQUIRE_TEXT } from "./bundle_requires.ts";
import { ROOT } from "./project_files.ts";

/** kproxy's modules of every start: what they import statically is loaded before the first rule. */
const RUN_AT_START = [
  "main.ts",
  "lib/cli/commands/start.ts",
  "lib/cli/commands/run.ts",
  "lib/source/kube/api_access.ts",
  "lib/source/kube/kube_source.ts",
  "lib/backend/nftables/node/preflight.ts",
  "lib/backend/iptables/node/preflight.ts",
  "lib/backend/ipvs/node/preflight.ts",
];

interface ModuleGraph {
  readonly modules: readonly {
    readonly specifier: string;
    readonly dependencies?: readonly {
      readonly specifier: string;
      readonly code?: { readonly specifier: string };
      readonly isDynamic?: boolean;
    }[];
  }[];
}

Deno.test("packages get their modules from the bundle's own file, and no column moves", {
  permissions: "none",
}, () => {
  // In the bundler's two spellings.
  for (const from of ["} from ", "}from"]) {
    const line = (module: string): string =>
      `import{createRequire as __deno${from}"${module}";var m=__deno(import.meta.url);log.info("Starting");`;
    const text = deferRequires(line("node:module"));
    assertEquals(text, line("./loader.js"));
    assertEquals(text.indexOf("log.info"), line("node:module").indexOf("log.info"));
  }
  assertEquals(
    deferRequires('import{createHash}from"node:crypto";'),
    'import{createHash}from"node:crypto";',
  );
});

Deno.test("a module that is required is the runtime's when something of it is used", async () => {
  const { createRequire } = await import(`data:text/javascript,${encodeURIComponent(REQUIRE_TEXT)}`);
  const require = createRequire(import.meta.url);
  assertEquals(require("node:util").format("%d Services", 3), "3 Services");
  assertEquals("inspect" in require("node:util"), true);
  assertEquals(require("node:buffer").Buffer.from("a").toString("base64"), "YQ==");
  assertEquals(typeof require("node:process").emitWarning, "function");
  assertEquals(require("node:process").env.HOME, Deno.env.get("HOME"));
  // Modules that can be called or extended are loaded at once.
  assertEquals(require("node:events"), (await import("node:events")).default);
});

Deno.test("no module of the runtime that takes time to load is loaded before the first rule", async () => {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["info", "--json", `${ROOT}/main.ts`],
  }).output();
  assertEquals(code, 0, new TextDecoder().decode(stderr));
  const graph: ModuleGraph = JSON.parse(new TextDecoder().decode(stdout));
  const modules = new Map(graph.modules.map((module) => [module.specifier, module.dependencies ?? []]));
  const seen = new Set(RUN_AT_START.map((path) => `file://${ROOT}/${path}`));
  const found: string[] = [];
  for (const specifier of seen) {
    const dependencies = modules.get(specifier);
    if (dependencies === undefined) throw new RangeError(`${specifier} is not among the modules`);
    for (const { specifier: wanted, code, isDynamic = false } of dependencies) {
      if (code === undefined || isDynamic) continue;
      if (code.specifier.startsWith("node:")) found.push(`${specifier.slice(ROOT.length + 8)}: ${wanted}`);
      else if (code.specifier.startsWith("file:")) seen.add(code.specifier);
    }
  }
  assertEquals(found, []);
});
