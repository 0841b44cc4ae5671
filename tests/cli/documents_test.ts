/**
 * What commands print for programs has the kind and the fields that docs/operations.md lists.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { doctorReport } from "../../lib/inspect/doctor/report.ts";
import { reportDocument } from "../../lib/inspect/selftest/report.ts";
import { STATUS_FIELDS } from "../../lib/serve/status/status_document.ts";
import { ROOT } from "../../tools/project_files.ts";
import { service, slice } from "../flows/objects.ts";
import { inFolder, kproxy } from "./kproxy.ts";

/** Kind → fields, as listed. */
async function listed(): Promise<ReadonlyMap<string, readonly string[]>> {
  const text = await Deno.readTextFile(`${ROOT}/docs/operations.md`);
  const rows = text.slice(text.indexOf("### Documents for programs")).split("\n### ", 1)[0] ?? "";
  return new Map(
    [...rows.matchAll(/^\| `kproxy [a-z ]+` +\| `(\w+)` +\| ([^|]+)\|/gm)].map((
      [, kind = "", fields = ""],
    ) => [
      kind,
      [...fields.split(/[:;]/)[0]!.matchAll(/`(\w+)`/g)].map(([, name = ""]) => name).sort(),
    ]),
  );
}

function fieldsOf(document: object): readonly string[] {
  return Object.keys(document).filter((name) => name !== "apiVersion" && name !== "kind").sort();
}

/** What the commands print without a node to look at. */
async function printed(): Promise<readonly Record<string, unknown>[]> {
  const items = [
    service("shop/web", { clusterIP: "10.96.0.1", ports: ["http:80"] }),
    slice("shop/web.1", ["http:8080"], ["10.244.0.11@node-a"]),
  ];
  const files = {
    "objects.json": JSON.stringify({ apiVersion: "v1", kind: "List", items }),
    "live.rules": "*nat\nCOMMIT\n",
  };
  return await inFolder(files, async (folder) => {
    const looking = [`--manifests=${folder}/objects.json`, `--live-from=${folder}/live.rules`, "-o", "json"];
    const commands = [
      ["trace", "world", "10.96.0.1:80", ...looking],
      ["service", "list", ...looking],
      ["service", "get", "shop/web", ...looking],
      ["check", ...looking],
      ["status", "--socket=/run/nowhere/kproxy.sock", "-o", "json"],
    ];
    return await Promise.all(commands.map(async (argv) => JSON.parse((await kproxy(argv)).out)));
  });
}

Deno.test("documents for programs have the kinds and fields that are listed", async () => {
  const wanted = await listed();
  const documents = [
    ...await printed(),
    doctorReport({ node: "n", mode: "iptables", findings: [], migration: null }),
    reportDocument({
      wantedMode: "auto",
      mode: null,
      families: [],
      checks: [],
      notes: [],
      tookMs: 0,
    }) as object,
    { apiVersion: "kproxy/v1", kind: "Status", ...STATUS_FIELDS },
    // tests/cli/sysdump_test.ts reads it from an archive.
    { apiVersion: "kproxy/v1", kind: "SysdumpParts", parts: [] },
  ] as readonly { readonly apiVersion: string; readonly kind: string }[];
  assertEquals(documents.map(({ apiVersion }) => apiVersion), documents.map(() => "kproxy/v1"));
  const found = new Map(documents.map((document) => [document.kind, fieldsOf(document)]));
  assertEquals(Object.fromEntries([...found].sort()), Object.fromEntries([...wanted].sort()));
});
