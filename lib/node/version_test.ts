import { assertEquals } from "@std/assert";
import project from "../../deno.json" with { type: "json" };
import { rawVersion, VERSION, versionLine } from "./version.ts";

Deno.test("the version is the project's", { permissions: "none" }, () => {
  assertEquals(VERSION, project.version);
  assertEquals(versionLine(), `kproxy ${project.version} (kube-proxy rules 1.30, decisions 1.36)`);
});

Deno.test("the raw version names all parts, for programs", { permissions: "none" }, () => {
  assertEquals(JSON.parse(rawVersion({ deno: "2.9.6", platform: "linux/x86_64" })), {
    version: project.version,
    rulesLevel: "1.30",
    decisionsLevel: "1.36",
    denoVersion: "2.9.6",
    platform: "linux/x86_64",
  });
});
