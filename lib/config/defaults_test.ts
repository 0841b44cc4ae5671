import { assertEquals } from "@std/assert";
import {
  applyDefaults,
  defaultConfig,
  selectedMasqueradeAll,
  selectedMasqueradeBit,
  selectedPeriods,
} from "./defaults.ts";
import type { ProxyMode } from "./types.ts";

const PURE = { permissions: "none" } as const;

Deno.test("the addresses of the servers follow bindAddress's family", PURE, () => {
  const cases: [string, string, string][] = [
    ["", "0.0.0.0:10256", "127.0.0.1:10249"],
    ["10.0.0.1", "0.0.0.0:10256", "127.0.0.1:10249"],
    ["::", "[::]:10256", "[::1]:10249"],
    ["fd00::1", "[::]:10256", "[::1]:10249"],
    // What is no address at all counts as IPv6, as in kube-proxy.
    ["foo", "[::]:10256", "[::1]:10249"],
  ];
  for (const [bindAddress, healthz, metrics] of cases) {
    const config = applyDefaults(new Map([["bindAddress", bindAddress]]));
    assertEquals([config.healthzBindAddress, config.metricsBindAddress], [healthz, metrics], bindAddress);
  }
});

Deno.test("periods and masquerading come from the section that the mode reads", PURE, () => {
  const config = applyDefaults(
    new Map<string, string | number | boolean>([
      ["iptables.syncPeriod", 10],
      ["iptables.minSyncPeriod", 1],
      ["iptables.masqueradeBit", 11],
      ["iptables.masqueradeAll", true],
      ["ipvs.syncPeriod", 20],
      ["ipvs.minSyncPeriod", 2],
      ["nftables.syncPeriod", 30],
      ["nftables.minSyncPeriod", 3],
      ["nftables.masqueradeBit", 12],
    ]),
  );
  const expected: [ProxyMode, number, number, boolean, number][] = [
    ["iptables", 10, 1, true, 11],
    ["ipvs", 20, 2, true, 11],
    ["nftables", 30, 3, false, 12],
    ["userspace", 10, 1, true, 11],
  ];
  for (const [mode, syncPeriod, minSyncPeriod, all, bit] of expected) {
    const found = { ...config, mode };
    assertEquals(selectedPeriods(found), { syncPeriod, minSyncPeriod });
    assertEquals([selectedMasqueradeAll(found), selectedMasqueradeBit(found)], [all, bit]);
    // A mode chosen from auto counts instead of the configured one.
    assertEquals(selectedPeriods({ ...config, mode: "auto" }, mode), { syncPeriod, minSyncPeriod });
  }
});

Deno.test("two default configurations share nothing", PURE, () => {
  const changed = defaultConfig();
  changed.featureGates.AllAlpha = true;
  changed.kproxy.manifests.push("x");
  changed.conntrack.min = 1;
  assertEquals(defaultConfig().featureGates, {});
  assertEquals(defaultConfig().kproxy.manifests, []);
  assertEquals(defaultConfig().conntrack.min, 131_072);
});
