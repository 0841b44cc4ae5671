import { assert, assertEquals, assertThrows } from "@std/assert";
import { Ajv } from "ajv";
import { defaultConfig } from "../lib/config/defaults.ts";
import { FIELDS } from "../lib/config/fields.ts";
import { configToObject } from "../lib/config/write.ts";
import { CHART_SCHEMA_FILE, configSchema, replaceConfigSchema } from "./chart_schema.ts";
import { ROOT } from "./project_files.ts";

type Tree = { readonly properties?: Readonly<Record<string, Tree>> };

function leafAt(path: string): unknown {
  return path.split(".").reduce<Tree | undefined>(
    (at, name) => at?.properties?.[name],
    configSchema() as Tree,
  );
}

Deno.test("the chart knows every field that kproxy knows, but for those that it sets itself", {
  permissions: "none",
}, () => {
  const missing = FIELDS.map(({ path }) => path).filter((path) => {
    const isElsewhere = path.startsWith("detectLocal.");
    return !isElsewhere && leafAt(path) === undefined;
  });
  assertEquals(missing, []);
  const refused = FIELDS.map(({ path }) => path).filter((path) => leafAt(path) === false);
  assertEquals(
    refused,
    [
      ...["clientConnection.kubeconfig", "metricsBindAddress", "clusterCIDR", "detectLocalMode", "mode"],
    ].toSorted((a, b) =>
      FIELDS.findIndex(({ path }) => path === a) - FIELDS.findIndex(({ path }) => path === b)
    ),
  );
});

Deno.test("the chart's schema takes the defaults of all fields, and refuses names and kinds that are none", async () => {
  // This validator has the keywords of another draft built in, which are the same for this schema.
  const { $schema: _draft, ...schema } = JSON.parse(
    replaceConfigSchema(await Deno.readTextFile(`${ROOT}/${CHART_SCHEMA_FILE}`)),
  );
  const isValid = new Ajv({ strict: false }).compile(schema);
  const { clientConnection, ...rest } = configToObject(defaultConfig()) as Record<string, unknown>;
  const { kubeconfig: _kubeconfig, ...connection } = clientConnection as Record<string, unknown>;
  const own = [
    "apiVersion",
    "kind",
    "mode",
    "clusterCIDR",
    "metricsBindAddress",
    "detectLocalMode",
    "detectLocal",
  ];
  const fields = Object.fromEntries(Object.entries(rest).filter(([name]) => !own.includes(name)));
  const problems = (config: unknown): string => {
    isValid({ mode: "ipvs", config });
    return (isValid.errors ?? []).map(({ instancePath, message }) => `${instancePath} ${message}`).join("; ");
  };
  assertEquals(problems({ ...fields, clientConnection: connection }), "");
  assertEquals(problems({ conntrack: { max: 5, min: null }, kproxy: null }), "");
  const wrong: readonly (readonly [unknown, RegExp])[] = [
    [{ modes: "ipvs" }, /\/config must NOT have additional properties/],
    [{ ipvs: { shceduler: "rr" } }, /\/config\/ipvs must NOT have additional properties/],
    [{ conntrack: { min: "many" } }, /\/config\/conntrack\/min must be integer/],
    [{ logging: { verbosity: -1 } }, /\/config\/logging\/verbosity must be >= 0/],
    [
      { featureGates: { NFTablesProxyMode: "on" } },
      /\/config\/featureGates\/NFTablesProxyMode must be boolean/,
    ],
    [{ mode: "ipvs" }, /\/config\/mode boolean schema is false/],
  ];
  for (const [config, told] of wrong) assert(told.test(problems(config)), problems(config));
});

Deno.test("a schema without the value is no schema of the chart", { permissions: "none" }, () => {
  assertThrows(() => replaceConfigSchema('{ "properties": {} }'), SyntaxError, '"config"');
});
