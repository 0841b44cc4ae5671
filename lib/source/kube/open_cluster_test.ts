import { assertEquals, assertRejects } from "@std/assert";
import { putWeb, watching } from "../../../tests/support/kube_fixture.ts";
import { ListWatchServer } from "../../../tests/support/list_watch_server.ts";
import { rawService, rawServiceCidr } from "../../../tests/support/raw_objects.ts";
import { ConfigError } from "../../errors.ts";
import { inform } from "../informer.ts";
import { openCluster } from "./api_access.ts";

Deno.test("the informer tells of a cluster's objects, and of every change until it ends", async () => {
  await using server = new ListWatchServer();
  putWeb(server);
  server.put(rawServiceCidr("kubernetes", ["10.96.0.0/12"]));
  const told: string[] = [];
  const synced = Promise.withResolvers<void>();
  const gone = Promise.withResolvers<void>();
  const waited = new Set(["services", "endpointslices", "nodes", "servicecidrs"]);
  const isSynced = (kind: string) => (): void => {
    waited.delete(kind);
    if (waited.size === 0) synced.resolve();
  };
  const ending = new AbortController();
  const informed = inform(await openCluster({ nodeName: "n1", server: server.url }), {
    services: {
      add: ({ name }) => void told.push(`add ${name}`),
      update: (old, { name, ports }) =>
        void told.push(`update ${name} ${old.ports[0]?.port} ${ports[0]?.port}`),
      delete: ({ name }) => {
        told.push(`delete ${name}`);
        gone.resolve();
      },
      synced: isSynced("services"),
    },
    endpointSlices: { add: ({ name }) => void told.push(`add ${name}`), synced: isSynced("endpointslices") },
    nodes: { add: ({ name }) => void told.push(`add ${name}`), synced: isSynced("nodes") },
    serviceCidrs: { add: ({ cidrs }) => void told.push(`add ${cidrs}`), synced: isSynced("servicecidrs") },
    rejected: ({ message }) => void told.push(`rejected: ${message}`),
  }, ending.signal);
  await synced.promise;
  assertEquals(told.splice(0).sort(), ["add 10.96.0.0/12", "add n1", "add web", "add web-x"]);
  await watching(server);
  server.put(rawService("api", { port: 80 }));
  server.put(rawService("api", { port: 81 }));
  server.remove(rawService("api"));
  await gone.promise;
  assertEquals(told, ["add api", "update api 80 81", "delete api"]);
  ending.abort();
  await informed;
});

Deno.test("a kubeconfig that is not there is reported before anything is asked", async () => {
  await assertRejects(
    () => openCluster({ nodeName: "n1", kubeconfig: "/nowhere/kubeconfig" }),
    ConfigError,
    "/nowhere/kubeconfig",
  );
});
