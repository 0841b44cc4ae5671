import { assertEquals } from "@std/assert";
import { serving } from "../../../tests/support/status_server.ts";
import { defaultConfig } from "../../config/defaults.ts";
import { runningSettings } from "./running_settings.ts";

Deno.test("a running kproxy tells its configuration, with the mode that is in use and its Node's name", async () => {
  await serving(async ({ address }) => {
    const found = await runningSettings({ metricsBindAddress: address });
    assertEquals([found?.where, found?.config.mode, found?.config.clusterCIDR, found?.nodeName], [
      `kproxy on ${address}`,
      "nftables",
      "10.244.0.0/16",
      "node-7",
    ]);
  }, { mode: "nftables", config: { mode: "auto", clusterCIDR: "10.244.0.0/16" }, node: "node-7" });
});

Deno.test("where none runs, or none that tells, there are no settings", async () => {
  assertEquals(await runningSettings({ ...defaultConfig(), metricsBindAddress: "" }), null);
  assertEquals(await runningSettings({ metricsBindAddress: "127.0.0.1:1" }), null);
  await serving(async ({ address }) => {
    assertEquals(await runningSettings({ metricsBindAddress: address }), null);
  }, { statusApi: false });
});
