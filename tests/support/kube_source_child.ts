/**
 * Runs the API server source by itself, under the permissions that it was started with: one JSON object per line for each
 * batch, `[[event, identity]…]`; log lines on standard error. Arguments: kubeconfig, master, node name.
 *
 * @module
 */
import { createLogger } from "../../lib/observe/log.ts";
import { identityOf } from "../../lib/source/source.ts";
import { KubeSource } from "../../lib/source/kube/kube_source.ts";
import { apiAccess } from "../../lib/source/kube/api_access.ts";

const [kubeconfig = "", master = "", nodeName = "n1"] = Deno.args;
const encoder = new TextEncoder();
const log = createLogger({
  format: "text",
  verbosity: 2,
  write: (line) => Deno.stderr.writeSync(encoder.encode(line)),
  nowMs: () => Date.now(),
  pid: Deno.pid,
});
const source = new KubeSource({
  access: await apiAccess({ kubeconfig, master, env: Deno.env }),
  nodeName,
  qps: 5,
  burst: 10,
  log,
});
const handler = {
  events: (batch: Parameters<Parameters<typeof source.run>[0]["events"]>[0]): void => {
    const story = batch.map((event) =>
      event.type === "synced"
        ? ["synced", event.kind]
        : [event.type, identityOf(event.type === "delete" ? event.old : event.object)]
    );
    Deno.stdout.writeSync(encoder.encode(`${JSON.stringify(story)}\n`));
  },
  rejected: (rejection: unknown): void => log.warn("Rejected", { rejection: JSON.stringify(rejection) }),
};
await source.run(handler, new AbortController().signal);
