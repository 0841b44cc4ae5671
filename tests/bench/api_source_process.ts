/**
 * kproxy's source alone, as a process: `api_source_process.ts KUBECONFIG CONTENT_TYPE` lists all kinds and prints what that took.
 *
 * @module
 */
import process from "node:process";
import { silentLogger } from "../../lib/observe/log.ts";
import type { SourceSink } from "../../lib/source/source.ts";
import { KubeSource } from "../../lib/source/kube/kube.ts";
import { loadKubeconfig } from "../../lib/source/kube/kubeconfig.ts";
import { writeErrorLine, writeLine } from "../../tools/output.ts";
import { NODE_NAME } from "./fake_objects.ts";

/** What the lists of one node took it. */
export interface SourceFigures {
  /** Until the last kind was there. */
  readonly syncedMs: number;
  readonly ownCpuMs: number;
  readonly objects: number;
}

/** Processor time of this process so far, in milliseconds. */
export function ownCpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

/** A node's source, as fast as it can; it asks for this form alone. */
export async function nodeSource(kubeconfig: string, contentType: string): Promise<KubeSource> {
  return new KubeSource({
    access: await loadKubeconfig(kubeconfig),
    nodeName: NODE_NAME,
    endpointsSource: "slices",
    configSyncPeriodMs: 900_000,
    qps: -1,
    burst: 10,
    contentTypes: { contentType, acceptContentTypes: "" },
    log: silentLogger,
  });
}

if (import.meta.main) {
  const [kubeconfig = "", contentType = ""] = Deno.args;
  const end = new AbortController();
  const [fromMs, fromCpuMs] = [performance.now(), ownCpuMs()];
  let [kinds, objects] = [0, 0];
  const sink: SourceSink = {
    events(batch) {
      for (const { type } of batch) {
        if (type === "add") objects++;
        if (type !== "synced" || ++kinds < 3) continue;
        const figures: SourceFigures = {
          syncedMs: performance.now() - fromMs,
          ownCpuMs: ownCpuMs() - fromCpuMs,
          objects,
        };
        writeLine(JSON.stringify(figures));
        end.abort();
      }
    },
    rejected: ({ message }) => writeErrorLine(message),
  };
  const source = await nodeSource(kubeconfig, contentType);
  await source.run(sink, end.signal);
  Deno.exit(0);
}
