import { assertEquals, assertMatch } from "@std/assert";
import { recordingLog } from "../../tests/support/recording_log.ts";
import { defaultConfig } from "../config/defaults.ts";
import { withFields } from "../config/fields.ts";
import type { FieldValue } from "../config/setting.ts";
import { SnapshotMetrics } from "../observe/metrics_kproxy.ts";
import { CombinedSource } from "../source/combined_source.ts";
import { FileSource } from "../source/files/file_source.ts";
import { KubeSource } from "../source/kube/kube_source.ts";
import { SnapshotSource } from "../source/snapshot/snapshot_source.ts";
import type { Source } from "../source/source.ts";
import { openSource } from "./source.ts";

const MANIFESTS = new URL("../../examples/", import.meta.url).pathname;

async function opened(
  fields: Readonly<Record<string, FieldValue>>,
  master = "",
): Promise<{ source: Source; lines: string[] }> {
  const { log, lines } = recordingLog();
  const config = withFields(defaultConfig(), new Map(Object.entries(fields)));
  const source = await openSource(config, {
    master,
    allowsInsecureFiles: false,
    nodeName: "n1",
    log,
    onRequest: () => {},
    onAnswer: () => {},
    snapshot: config.kproxy.snapshot === "" ? null : new SnapshotMetrics(),
  });
  return { source, lines };
}

Deno.test("a snapshot stands before the API server, also beside files; with files alone it is of no use", async () => {
  const snapshot = { "kproxy.snapshot": "/var/lib/kproxy/snapshot" };
  const files = { "kproxy.manifests": [MANIFESTS] };
  const master = "http://127.0.0.1:1";
  assertEquals((await opened({}, master)).source instanceof KubeSource, true);
  assertEquals((await opened(snapshot, master)).source instanceof SnapshotSource, true);
  assertEquals((await opened({ ...snapshot, ...files }, master)).source instanceof CombinedSource, true);
  const { source, lines } = await opened({ ...snapshot, ...files });
  assertEquals([source instanceof FileSource, lines.length], [true, 1]);
  assertMatch(lines[0]!, /^W.*kproxy\.snapshot has no effect/);
});
