import { assertEquals } from "@std/assert";
import { serving } from "../../../tests/support/status_server.ts";
import { defaultConfig } from "../../config/defaults.ts";
import type { KubeProxyConfiguration } from "../../config/types.ts";
import { runningSettings } from "./running.ts";

function at(socket: string): Pick<KubeProxyConfiguration, "kproxy"> {
  return { kproxy: { ...defaultConfig().kproxy, socket } };
}

Deno.test("a running kproxy tells its configuration, with the mode that is in use and its Node's name", async () => {
  await serving(async ({ socket }) => {
    const found = await runningSettings(at(socket));
    assertEquals([
      found?.where,
      found?.isTrusted,
      found?.master,
      found?.config.mode,
      found?.config.clusterCIDR,
      found?.nodeName,
    ], [
      `kproxy on ${socket}`,
      true,
      "https://10.0.0.1:6443",
      "nftables",
      "10.244.0.0/16",
      "node-7",
    ]);
  }, { mode: "nftables", config: { mode: "auto", clusterCIDR: "10.244.0.0/16" }, node: "node-7" });
});

Deno.test("where none runs, or none that tells, there are no settings", async () => {
  assertEquals(await runningSettings(at("")), null);
  assertEquals(await runningSettings(at("/run/nowhere/kproxy.sock")), null);
  await serving(async ({ socket }) => {
    assertEquals(await runningSettings(at(socket)), null);
  }, { statusApi: false });
});
