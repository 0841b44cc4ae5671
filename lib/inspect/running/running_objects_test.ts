import { assertEquals, assertStringIncludes } from "@std/assert";
import { serving } from "../../../tests/support/status_server.ts";
import { testService } from "../../../tests/support/model_objects.ts";
import { defaultConfig } from "../../config/defaults.ts";
import type { KubeProxyConfiguration } from "../../config/types.ts";
import { askRunning } from "./running.ts";

function at(socket: string): KubeProxyConfiguration {
  const config = defaultConfig();
  return { ...config, kproxy: { ...config.kproxy, socket } };
}

Deno.test("a running kproxy tells its objects, and those that it refuses as they are now", async () => {
  const refusals = [{ where: "/m/web.yaml:7 (document 1)", object: "Service shop/web", message: "spec: no" }];
  await serving(async ({ socket }) => {
    const answer = await askRunning(at(socket), {}, () => {});
    if (typeof answer === "string") throw new Error(answer);
    assertEquals([answer.mode, answer.objects.length, answer.rejected], ["nftables", 1, refusals]);
  }, { objects: [testService()], refusals });
});

Deno.test("a kproxy that cannot be asked is reported, and what answers instead", async () => {
  const reports: string[] = [];
  const ask = async (socket: string): Promise<string> => {
    const answer = await askRunning(
      at(socket),
      {},
      (one) => reports.push(one),
    );
    return typeof answer === "string" ? answer : "answers";
  };
  assertStringIncludes(await ask("/run/nowhere/kproxy.sock"), "/run/nowhere/kproxy.sock is not there");
  assertStringIncludes(await ask(""), "has no socket");
  assertEquals(reports, []);
  await serving(async ({ socket }) => {
    assertStringIncludes(await ask(socket), socket);
  }, { statusApi: false });
  assertEquals(reports.length, 1);
  assertStringIncludes(reports[0] ?? "", "objects are not taken from it");
});
