import { assert, assertEquals, assertThrows } from "@std/assert";
import { testEndpoint, testServicePort } from "../../../../tests/support/model_objects.ts";
import { formatMark } from "../../family_settings.ts";
import { chainHash, endpointChain, isServiceChain, serviceChains } from "./chains.ts";

for (
  const [text, hash] of [
    ["ns1/svc1:p80tcp", "XPGD46QRK7WJZT7O"],
    ["ns1/svc1:p80tcp10.180.0.1:80", "SXIVWICOYRO3J4NJ"],
    ["shop/web:httptcp", "67NZLRHBNDSAWJRO"],
    ["shop/web:httptcp10.244.0.11:8080", "GXKVICYM64SODBWJ"],
    ["shop/carttcp", "N5W5PH5NLY2BP4HG"],
    ["shop/web6:httptcp[fd00:10:244::91]:8080", "EKVVSP3OTHBVCBN5"],
    ["kube-system/dns:dnsudp", "2KKYJRIGYGQNRODB"],
    ["kube-system/dns:dns-tcptcp", "3RVWGMRXZPMMAFG6"],
  ] as const
) {
  Deno.test(`chain hash of ${text}`, { permissions: "none" }, () => assertEquals(chainHash(text), hash));
}

Deno.test("the chains of a ServicePort share its hash", { permissions: "none" }, () => {
  const web = testServicePort({ text: "shop/web:http", portName: "http" });
  assertEquals(serviceChains(web), {
    cluster: "KUBE-SVC-67NZLRHBNDSAWJRO",
    local: "KUBE-SVL-67NZLRHBNDSAWJRO",
    external: "KUBE-EXT-67NZLRHBNDSAWJRO",
    firewall: "KUBE-FW-67NZLRHBNDSAWJRO",
  });
  assertEquals(endpointChain(web, testEndpoint("10.244.0.11")), "KUBE-SEP-GXKVICYM64SODBWJ");
  assertEquals(
    serviceChains(testServicePort({ text: "kube-system/dns:dns", protocol: "UDP" })).cluster,
    "KUBE-SVC-2KKYJRIGYGQNRODB",
  );
});

Deno.test("node port, addresses and port number do not enter the names", { permissions: "none" }, () => {
  const moved = testServicePort({
    clusterIP: "10.96.0.99",
    port: 81,
    nodePort: 30000,
    externalIPs: ["192.0.2.1"],
  });
  assertEquals(serviceChains(moved), serviceChains(testServicePort()));
});

Deno.test("no name is longer than iptables allows", { permissions: "none" }, () => {
  assert(endpointChain(testServicePort(), testEndpoint("10.0.0.1")).length <= 28);
});

for (
  const [bit, text] of [[0, "0x00000001"], [14, "0x00004000"], [20, "0x00100000"], [
    31,
    "0x80000000",
  ]] as const
) {
  Deno.test(`mark of bit ${bit}`, { permissions: "none" }, () => assertEquals(formatMark(2 ** bit), text));
}

for (const mark of [0, -1, 3, 0.5, 2 ** 32, NaN]) {
  Deno.test(`${mark} is no mark`, { permissions: "none" }, () => {
    assertThrows(() => formatMark(mark), RangeError, "one bit");
  });
}

for (
  const [name, is] of [
    ["KUBE-SVC-A", true],
    ["KUBE-SVL-A", true],
    ["KUBE-EXT-A", true],
    ["KUBE-FW-A", true],
    ["KUBE-SEP-A", true],
    ["KUBE-XLB-A", true],
    ["KUBE-PROXY-CANARY", false],
    ["KUBE-SERVICES", false],
    ["KUBE-FIREWALL", false],
    ["KUBE-FORWARD", false],
    ["CILIUM-KUBE-SVC-A", false],
  ] as const
) {
  Deno.test(`${name} is ${is ? "" : "not "}a Service's chain`, { permissions: "none" }, () => {
    assertEquals(isServiceChain(name), is);
  });
}
