import { assertEquals, assertStringIncludes } from "@std/assert";
import { serving } from "../../tests/support/status_server.ts";
import { testService } from "../../tests/support/model_objects.ts";
import { defaultConfig } from "../config/defaults.ts";
import { askRunning } from "./running_objects.ts";

Deno.test("a running kproxy tells its objects, and those that it refuses as they are now", async () => {
  const refusals = [{ where: "/m/web.yaml:7 (document 1)", object: "Service shop/web", message: "spec: no" }];
  await serving(async ({ address }) => {
    const answer = await askRunning({ ...defaultConfig(), metricsBindAddress: address }, {}, () => {});
    if (typeof answer === "string") throw new Error(answer);
    assertEquals([answer.mode, answer.objects.length, answer.rejected], ["nftables", 1, refusals]);
  }, { objects: [testService()], refusals });
});

Deno.test("who cannot be asked is told in words, and who answers instead is reported", async () => {
  const reports: string[] = [];
  const ask = async (metricsBindAddress: string): Promise<string> => {
    const answer = await askRunning(
      { ...defaultConfig(), metricsBindAddress },
      {},
      (one) => reports.push(one),
    );
    return typeof answer === "string" ? answer : "answers";
  };
  assertStringIncludes(await ask("127.0.0.1:1"), "no kproxy answers on 127.0.0.1:1");
  assertStringIncludes(await ask(""), "has no metrics server");
  assertEquals(reports, []);
  await serving(async ({ address }) => {
    assertStringIncludes(await ask(address), address);
  }, { statusApi: false });
  assertEquals(reports.length, 1);
  assertStringIncludes(reports[0] ?? "", "objects are not taken from it");
});
