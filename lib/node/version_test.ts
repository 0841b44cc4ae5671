import { assertEquals } from "@std/assert";
import project from "../../deno.json" with { type: "json" };
import { rawVersion, VERSION, versionLine, versionLines } from "./version.ts";

const FACTS = { commit: "unknown", deno: "2.9.6", platform: "linux/x86_64" };

Deno.test("the version is the project's", { permissions: "none" }, () => {
  assertEquals(VERSION, project.version);
  assertEquals(versionLine(), `kproxy ${project.version} (kube-proxy rules 1.30, decisions 1.36)`);
  assertEquals(versionLines(FACTS), [versionLine(), "commit unknown", "Deno 2.9.6 on linux/x86_64"]);
});

Deno.test("the raw version names all parts, for programs", { permissions: "none" }, () => {
  assertEquals(JSON.parse(rawVersion(FACTS)), {
    version: project.version,
    commit: "unknown",
    rulesLevel: "1.30",
    decisionsLevel: "1.36",
    denoVersion: "2.9.6",
    platform: "linux/x86_64",
  });
});
