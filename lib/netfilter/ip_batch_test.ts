import { assertEquals, assertThrows } from "@std/assert";
import {
  addAddressLine,
  addDummyLine,
  deleteAddressLine,
  parseDeviceAddresses,
  parseDeviceSettings,
  parseLinks,
  parseRoutes,
} from "./ip_batch.ts";

const permissions = "none";

Deno.test("lines for ip -batch", { permissions }, () => {
  assertEquals(addDummyLine("kube-ipvs0"), "link add kube-ipvs0 type dummy");
  assertEquals(addAddressLine("kube-ipvs0", "10.96.10.4"), "address add 10.96.10.4/32 dev kube-ipvs0");
  assertEquals(
    deleteAddressLine("kube-ipvs0", "fd00:10:96::9"),
    "address del fd00:10:96::9/128 dev kube-ipvs0",
  );
});

Deno.test("addresses of all devices are read", { permissions }, () => {
  const text = JSON.stringify([
    {
      ifname: "lo",
      addr_info: [
        { family: "inet", local: "127.0.0.1", prefixlen: 8, scope: "host" },
        { family: "inet6", local: "::1", prefixlen: 128, scope: "host" },
      ],
    },
    {},
    {
      ifname: "eth0",
      addr_info: [
        { family: "inet6", local: "fe80:0::1", prefixlen: 64, scope: "link" },
        {},
      ],
    },
    { ifname: "tun0" },
  ]);
  assertEquals(parseDeviceAddresses(text), [
    { device: "lo", family: "IPv4", address: "127.0.0.1", prefixLength: 8, scope: "host" },
    { device: "lo", family: "IPv6", address: "::1", prefixLength: 128, scope: "host" },
    { device: "eth0", family: "IPv6", address: "fe80::1", prefixLength: 64, scope: "link" },
  ]);
  assertEquals(parseDeviceAddresses(""), []);
  assertThrows(() => parseDeviceAddresses("{}"), SyntaxError);
});

Deno.test("what devices are is read", { permissions }, () => {
  const text = JSON.stringify([{ ifname: "eth0", mtu: 1500, flags: ["BROADCAST", "UP"] }, {}, {
    ifname: "kube-ipvs0",
    mtu: -1,
    linkinfo: { info_kind: "dummy" },
  }]);
  assertEquals(parseLinks(text), [
    { device: "eth0", kind: "", mtu: 1500, isUp: true, addresses: [] },
    { device: "kube-ipvs0", kind: "dummy", mtu: 0, isUp: false, addresses: [] },
  ]);
});

Deno.test("routes are read, with all devices that they leave by", { permissions }, () => {
  const text = JSON.stringify([
    { dst: "default", gateway: "10.0.0.1", dev: "eth0", metric: 100 },
    { dst: "10.1.0.0/16", nexthops: [{ dev: "a" }, {}, { dev: "b" }] },
    { dst: "10.2.0.7", dev: "c" },
    { type: "unreachable", dst: "default", dev: "lo", metric: 4294967295 },
    { dev: "d" },
  ]);
  assertEquals(parseRoutes(text, "IPv4"), [
    { family: "IPv4", network: "0.0.0.0/0", devices: ["eth0"], metric: 100 },
    { family: "IPv4", network: "10.1.0.0/16", devices: ["a", "b"], metric: 0 },
    { family: "IPv4", network: "10.2.0.7/32", devices: ["c"], metric: 0 },
    { family: "IPv4", network: "0.0.0.0/0", devices: [], metric: 4294967295 },
  ]);
  assertThrows(() => parseRoutes("Dump terminated", "IPv6"), SyntaxError);
});

Deno.test("settings of devices are read by sysctl's names; what else there is is left out", {
  permissions: "none",
}, () => {
  const text = JSON.stringify([
    { family: "inet", interface: "eth0.100", forwarding: true, rp_filter: "strict", mc_forwarding: false },
    { family: "inet6", interface: "lo", forwarding: false },
    { family: "mpls", interface: "lo", input: false },
    { family: "inet", interface: "all", rp_filter: "loose" },
    { family: "inet", rp_filter: "off" },
  ]);
  assertEquals([...parseDeviceSettings(text)], [
    ["net.ipv4.conf.eth0/100.forwarding", "1"],
    ["net.ipv4.conf.eth0/100.rp_filter", "1"],
    ["net.ipv6.conf.lo.forwarding", "0"],
    ["net.ipv4.conf.all.rp_filter", "2"],
  ]);
  assertThrows(() => parseDeviceSettings("Dump terminated"), SyntaxError);
});
