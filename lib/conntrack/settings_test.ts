import { assertEquals } from "@std/assert";
import { defaultConfig } from "../config/defaults.ts";
import type { ConntrackConfig } from "../config/types.ts";
import { conntrackSettings } from "./settings.ts";

const NOTHING: ConntrackConfig = {
  maxPerCore: 0,
  min: 0,
  tcpEstablishedTimeout: 0,
  tcpCloseWaitTimeout: 0,
  tcpBeLiberal: false,
  udpTimeout: 0,
  udpStreamTimeout: 0,
};

/** `name` without its prefix → value. */
function settings(fields: Partial<ConntrackConfig>, cpuCount = 1): Record<string, number> {
  return Object.fromEntries(
    conntrackSettings({ ...NOTHING, ...fields }, cpuCount).map(({ name, value }) => [
      name.replace("net.netfilter.nf_conntrack_", ""),
      value,
    ]),
  );
}

const SIZES: readonly [cpuCount: number, max: number, fields?: Partial<ConntrackConfig>][] = [
  [1, 131072],
  [4, 131072],
  [8, 262144],
  [32, 1048576],
  [64, 1048576],
  [1, 200000, { min: 200000 }],
  [1, 32768, { min: 0 }],
  [2, 7, { maxPerCore: 3, min: 7 }],
  // Scaled beyond the cap, min is not looked at.
  [64, 1048576, { min: 2000000 }],
  [1, 2000000, { min: 2000000 }],
];

Deno.test("the size of the table follows CPUs, floor and cap; the hash size is a quarter of it", {
  permissions: "none",
}, () => {
  const { maxPerCore, min } = defaultConfig().conntrack;
  for (const [cpuCount, max, fields] of SIZES) {
    assertEquals(
      settings({ maxPerCore, min, ...fields }, cpuCount),
      { max, buckets: Math.floor(max / 4) },
      `${cpuCount} CPUs ${JSON.stringify(fields)}`,
    );
  }
});

Deno.test("the defaults set size and TCP timeouts, in this order", { permissions: "none" }, () => {
  assertEquals(conntrackSettings(defaultConfig().conntrack, 2), [
    { name: "net.netfilter.nf_conntrack_max", value: 131072, atLeast: true },
    { name: "net.netfilter.nf_conntrack_buckets", value: 32768, atLeast: true },
    { name: "net.netfilter.nf_conntrack_tcp_timeout_established", value: 86400, atLeast: false },
    { name: "net.netfilter.nf_conntrack_tcp_timeout_close_wait", value: 3600, atLeast: false },
  ]);
});

Deno.test("what is 0 is left alone", { permissions: "none" }, () => {
  assertEquals(settings({}), {});
  assertEquals(settings({ min: 131072 }, 64), {});
});

Deno.test("fractions of a second are rounded up", { permissions: "none" }, () => {
  assertEquals(settings({ udpTimeout: 1, udpStreamTimeout: 1500, tcpCloseWaitTimeout: 1000 }), {
    tcp_timeout_close_wait: 1,
    udp_timeout: 1,
    udp_timeout_stream: 2,
  });
});

Deno.test("tcpBeLiberal sets 1 and never 0", { permissions: "none" }, () => {
  assertEquals(settings({ tcpBeLiberal: true }), { tcp_be_liberal: 1 });
  assertEquals(settings({ tcpBeLiberal: false }), {});
});
