import { assertEquals } from "@std/assert";
import { changedFields, needsRestart } from "./changes.ts";
import { defaultConfig } from "./defaults.ts";

Deno.test("the fields that differ are named by their paths", { permissions: "none" }, () => {
  const from = defaultConfig();
  const to = structuredClone(from);
  assertEquals(changedFields(from, to), []);
  to.iptables.masqueradeAll = true;
  to.nodePortAddresses = ["primary"];
  to.kproxy.manifests = ["/etc/objects"];
  assertEquals(changedFields(from, to).sort(), [
    "iptables.masqueradeAll",
    "kproxy.manifests",
    "nodePortAddresses",
  ]);
});

Deno.test("the order in which feature gates are written changes nothing", { permissions: "none" }, () => {
  const from = { ...defaultConfig(), featureGates: { A: true, B: false } };
  assertEquals(changedFields(from, { ...from, featureGates: { B: false, A: true } }), []);
  assertEquals(changedFields(from, { ...from, featureGates: { A: true, B: true } }), ["featureGates"]);
});

Deno.test("only the verbosity changes under a running proxy", { permissions: "none" }, () => {
  assertEquals(needsRestart([]), false);
  assertEquals(needsRestart(["logging.verbosity"]), false);
  assertEquals(needsRestart(["logging.format"]), true);
  assertEquals(needsRestart(["logging.verbosity", "iptables.masqueradeAll"]), true);
});
