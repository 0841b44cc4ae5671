import { assertEquals } from "@std/assert";
import plugin from "./lint_plugin.ts";

/** Path, source, and the names of the rules that it breaks, in order. */
type Case = readonly [path: string, source: string, rules: readonly string[]];

const CASES: Readonly<Record<string, readonly Case[]>> = {
  "command-fence": [
    ["lib/kernel/exec.ts", 'new Deno.Command("x");', []],
    ["lib/kernel/nft.ts", 'new Deno.Command("x");', ["command-fence"]],
    ["lib/kernel/nft.ts", 'new Deno["Command"]("x");', ["command-fence"]],
    ["main.ts", "const { Command } = Deno;", ["command-fence"]],
    ["lib/kernel/nft.ts", 'import { spawn } from "node:child_process";', ["command-fence"]],
    ["lib/kernel/nft.ts", 'await import("node:child_process");', ["command-fence"]],
    ["lib/kernel/nft_test.ts", 'new Deno.Command("x");', []],
    ["tests/e2e/x_test.ts", 'new Deno.Command("x");', []],
  ],
  "no-empty-catch": [
    ["lib/sync/x.ts", "try { a(); } catch {}", ["no-empty-catch"]],
    ["tests/e2e/x.ts", "try { a(); } catch (error) { /* why */ }", ["no-empty-catch"]],
    ["lib/sync/x.ts", "try { a(); } catch (error) { log(error); }", []],
    ["lib/sync/x.ts", "a().catch(() => {});", ["no-empty-catch"]],
    ["lib/sync/x.ts", "a().catch(function () {});", ["no-empty-catch"]],
    ["lib/sync/x.ts", "a().catch((error) => log(error)); a().catch(() => undefined);", []],
  ],
  "layers": [
    ["lib/model/ip.ts", 'import { a } from "./names.ts";', []],
    ["lib/model/ip.ts", 'import { a } from "../config/types.ts";', ["layers"]],
    ["lib/model/ip.ts", 'import type { A } from "../sync/bounded_frequency_runner.ts";', ["layers"]],
    ["lib/model/ip.ts", 'type A = import("../sync/bounded_frequency_runner.ts").A;', ["layers"]],
    ["lib/model/ip_test.ts", 'import { a } from "../cli/flags.ts";', []],
    ["lib/backend/iptables/plan/plan.ts", 'const y = await import("../apply/proxier.ts");', ["layers"]],
    // Userspace and IPVS are built on iptables; no other mode is built on another.
    ["lib/backend/userspace/apply/proxier.ts", 'import { x } from "../../iptables/store/store.ts";', []],
    ["lib/backend/ipvs/apply/proxier.ts", 'import { x } from "../../iptables/apply/proxier.ts";', []],
    ["lib/backend/iptables/apply/proxier.ts", 'import { x } from "../../userspace/apply/portals.ts";', [
      "layers",
    ]],
    ["lib/backend/nftables/apply/proxier.ts", 'import { x } from "../../iptables/apply/proxier.ts";', [
      "layers",
    ]],
    ["lib/sync/x.ts", 'import "../../tests/support/skip.ts";', ["layers"]],
    ["lib/model/x.ts", 'import { x } from "./ip_test.ts";', ["layers"]],
    ["lib/model/x.ts", 'export const a = 1;\nexport { b } from "./ip.ts";', []],
    ["lib/model/x.ts", 'export { b } from "./ip.ts";', ["layers"]],
    ["lib/model/x.ts", 'export const a = 1;\nexport * from "./ip.ts";', ["layers"]],
    ["lib/other/x.ts", "const a = 1;", ["layers"]],
    ["mod.ts", 'export { a } from "./lib/model/ip.ts";', []],
  ],
  "pure-rows": [
    ["lib/model/x.ts", 'Deno.readTextFileSync("x");', ["pure-rows"]],
    ["lib/model/x.ts", "export function f(file: Deno.FsFile): void {}", ["pure-rows"]],
    ["lib/netfilter/x.ts", 'fetch("http://x");', ["pure-rows"]],
    ["lib/netfilter/x.ts", "setTimeout(f, 1);", ["pure-rows"]],
    ["lib/config/x.ts", "const later = setInterval;", ["pure-rows"]],
    ["lib/source/decode/decode.ts", "const now = Date.now();", ["pure-rows"]],
    ["lib/source/decode/decode_values.ts", "const now = new Date();", ["pure-rows"]],
    ["lib/errors.ts", "const now = Date();", ["pure-rows"]],
    ["lib/backend/iptables/plan/plan.ts", "const x = Math.random();", ["pure-rows"]],
    ["lib/backend/iptables/store/store.ts", "const x = performance.now();", ["pure-rows"]],
    ["lib/backend/iptables/plan/plan.ts", "const x = crypto.randomUUID();", ["pure-rows"]],
    ["lib/model/x.ts", "const x = globalThis;", ["pure-rows"]],
    ["lib/model/x.ts", 'import { readFileSync } from "node:fs";', ["pure-rows"]],
    ["lib/model/x.ts", 'export { readFileSync } from "node:fs";', ["pure-rows"]],
    ["lib/model/x.ts", 'import { createHash } from "node:crypto";', []],
    ["lib/model/x.ts", 'const at = new Date("2026-01-01"); source.fetch(); const o = { fetch: 1 };', []],
    ["lib/model/x_test.ts", "const x = Math.random();", []],
    ["lib/config/file/load.ts", 'Deno.readTextFileSync("x");', []],
    ["lib/backend/iptables/apply/proxier.ts", "const x = performance.now();", []],
    ["lib/kernel/x.ts", "setTimeout(f, 1);", []],
  ],
  "client-node-fence": [
    ["lib/source/decode/decode.ts", 'import type { V1Service } from "@kubernetes/client-node";', []],
    ["lib/source/kube/kube_source.ts", 'import type { V1Status } from "@kubernetes/client-node";', []],
    ["lib/source/kube/kube_source_test.ts", 'import { KubeConfig } from "@kubernetes/client-node";', []],
    ["lib/source/kube/oidc.ts", 'await import("openid-client");', []],
    ["lib/source/kube/tls_transport.ts", 'await import("socks");', []],
    ["lib/source/kube/tls_transport.ts", 'import { SocksClient } from "socks";', ["client-node-fence"]],
    ["lib/source/kube/kube_source.ts", 'await import("openid-client");', ["client-node-fence"]],
    ["lib/source/kube/oidc.ts", 'import * as auth from "@kubernetes/client-node";', [
      "client-node-fence",
    ]],
    ["tests/support/x.ts", 'import { KubeConfig } from "@kubernetes/client-node";', []],
    ...[
      'import { V1Service } from "@kubernetes/client-node";',
      // Whether this import is erased depends on the settings of the compiler.
      'import { type V1Service } from "@kubernetes/client-node";',
      'import * as models from "@kubernetes/client-node";',
      'import "@kubernetes/client-node";',
      'export { V1Service } from "@kubernetes/client-node";',
      'export type { V1Service } from "@kubernetes/client-node";',
      'export * from "@kubernetes/client-node";',
      'await import("@kubernetes/client-node");',
      'import { V1Service } from "npm:@kubernetes/client-node@2.0.1";',
    ].flatMap((source): Case[] =>
      ["lib/source/decode/decode.ts", "lib/source/kube/kube_source.ts", "mod.ts"].map((path) => [
        path,
        source,
        ["client-node-fence"],
      ])
    ),
    ["lib/model/objects.ts", 'import type { V1Service } from "@kubernetes/client-node";', [
      "client-node-fence",
    ]],
    ["lib/source/files/file_source.ts", 'import type { KubeConfig } from "@kubernetes/client-node";', [
      "client-node-fence",
    ]],
    ["lib/cli/commands/run.ts", 'await import("npm:@kubernetes/client-node@2.0.1/dist/config.js");', [
      "client-node-fence",
    ]],
  ],
  "exit-fence": [
    ["main.ts", "Deno.exit(1);", []],
    ["lib/cli/commands/run.ts", "Deno.exit(1);", ["exit-fence"]],
    ["tools/test.ts", "process.exit(1);", ["exit-fence"]],
    ["lib/cli/commands/run.ts", "Deno.exitCode = 1;", []],
  ],
  "seed-fence": [
    ["tests/support/fast_check.ts", 'import fc from "fast-check";', []],
    ["lib/model/x_test.ts", 'import fc from "../../tests/support/fast_check.ts";', []],
    ["lib/model/x_test.ts", 'import fc from "fast-check";', ["seed-fence"]],
    ["tests/support/x.ts", 'await import("npm:fast-check@4.10.2");', ["seed-fence"]],
  ],
};

for (const [rule, cases] of Object.entries(CASES)) {
  Deno.test(`the fence ${rule} stops what it should and nothing else`, () => {
    for (const [path, source, rules] of cases) {
      const found = Deno.lint.runPlugin(plugin, path, source).filter(({ id }) => id === `kproxy/${rule}`);
      assertEquals(found.length, rules.length, `${path}: ${source}`);
    }
  });
}

Deno.test("every fence has a case that it stops", { permissions: "none" }, () => {
  const stopped = new Set(Object.values(CASES).flat().flatMap(([, , rules]) => rules));
  assertEquals(Object.keys(plugin.rules).filter((name) => !stopped.has(name)), []);
});
