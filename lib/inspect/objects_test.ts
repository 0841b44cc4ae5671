import { assertEquals } from "@std/assert";
import { ListWatchServer } from "../../tests/support/list_watch_server.ts";
import { rawNode, rawService, rawSlice } from "../../tests/support/raw_objects.ts";
import { defaultConfig } from "../config/defaults.ts";
import { systemExec } from "../kernel/exec.ts";
import { findObjects } from "./objects.ts";

async function listed(
  service?: string,
): Promise<{ readonly names: readonly string[]; readonly asked: readonly string[] }> {
  await using server = new ListWatchServer();
  for (const [at, name] of ["web", "api", "db"].entries()) {
    server.put(rawService(name, { clusterIP: `10.96.0.${at + 1}` }));
    server.put(rawSlice(name, ["10.1.0.3"]));
  }
  server.put(rawNode("n1"));
  const { state: { objects } } = await findObjects({
    config: { ...defaultConfig(), hostnameOverride: "n1" },
    master: server.url,
    isSourceNamed: true,
    exec: systemExec,
    report: () => {},
    ...(service === undefined ? {} : { selection: { services: [service] } }),
  });
  return {
    names: objects.map(({ kind, name }) => `${kind} ${name}`).sort(),
    asked: server.requests.filter(({ watch }) => !watch).map(({ path, query }) =>
      [path, query.get("labelSelector"), query.get("fieldSelector")].filter((one) => one !== null).join(" ")
    ).sort(),
  };
}

Deno.test("of one Service the API server is asked for that Service and its slices", async () => {
  const { names, asked } = await listed("default/api");
  assertEquals(names, ["EndpointSlice api-x", "Node n1", "Service api"]);
  assertEquals(asked.slice(0, 3), [
    "/api/v1/namespaces/default/services !service.kubernetes.io/service-proxy-name spec.clusterIP!=None,metadata.name=api",
    "/api/v1/nodes metadata.name=n1",
    "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices !service.kubernetes.io/headless,kubernetes.io/service-name=api",
  ]);
});

Deno.test("of all Services it is asked for everything", async () => {
  assertEquals((await listed()).names.length, 7);
});
