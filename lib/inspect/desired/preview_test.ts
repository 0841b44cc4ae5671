import { assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { ConfigError, UnsupportedError, UsageError } from "../../errors.ts";
import type { ApiObject } from "../../model/objects.ts";
import { decodeObject } from "../../source/decode/decode.ts";
import { previewNode } from "./preview.ts";

const HEADER = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";

function service(name: string, spec: Readonly<Record<string, unknown>>): unknown {
  return { apiVersion: "v1", kind: "Service", metadata: { namespace: "shop", name }, spec };
}

const OBJECTS: readonly ApiObject[] = [
  service("web", {
    type: "NodePort",
    clusterIP: "10.96.10.1",
    externalTrafficPolicy: "Local",
    ports: [{ port: 80, nodePort: 30080 }],
  }),
  service("late", { clusterIP: "10.96.10.2", externalIPs: ["203.0.113.7"], ports: [{ port: 80 }] }),
  service("early", { clusterIP: "10.96.10.3", externalIPs: ["203.0.113.7"], ports: [{ port: 80 }] }),
  {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: { namespace: "shop", name: "web-1", labels: { "kubernetes.io/service-name": "web" } },
    addressType: "IPv4",
    ports: [{ port: 8080 }],
    endpoints: [
      { addresses: ["10.244.0.11"], nodeName: "node-a" },
      { addresses: ["10.244.1.12"], nodeName: "node-b" },
    ],
  },
  {
    apiVersion: "v1",
    kind: "Node",
    metadata: { name: "node-a" },
    status: { addresses: [{ type: "InternalIP", address: "192.0.2.10" }] },
  },
].flatMap((raw) => decodeObject(raw, "test", { manifest: true }).objects);

Deno.test(
  "a preview tells the rules and the ways of packets alike in each mode",
  { permissions: "none" },
  () => {
    const endpointIn = {
      iptables: "--to-destination 10.244.0.11:8080",
      nftables: "10.244.0.11 . 8080",
      ipvs: "-r 10.244.0.11:8080",
    };
    for (const mode of ["iptables", "nftables", "ipvs"] as const) {
      const node = previewNode(OBJECTS, { nodeName: "node-a", mode });
      assertEquals([node.mode, node.families, node.problems], [mode, ["IPv4"], []]);
      assertStringIncludes(node.render("IPv4"), endpointIn[mode]);
      assertEquals(node.unserved.map(({ service, destination }) => `${service} ${destination}`), [
        "shop/late external IP 203.0.113.7 port 80/TCP",
      ], mode);
      const pod = node.trace("10.244.0.5", "web.shop.svc:80");
      assertEquals(pod.service, "shop/web");
      assertEquals(pod.outcome, "10.244.0.11:8080 (1/2) | 10.244.1.12:8080 (1/2), masquerade no");
      assertEquals(node.trace("world", "192.0.2.10:30080").outcome, "10.244.0.11:8080, masquerade no");
    }
  },
);

Deno.test("another node's preview has other local endpoints, and says that its Node is missing", {
  permissions: "none",
}, () => {
  const node = previewNode(OBJECTS, { nodeName: "node-c", mode: "nftables" });
  const { outcome, notes } = node.trace("world", "192.0.2.10:30080");
  assertEquals(outcome === "10.244.0.11:8080, masquerade no", false);
  assertStringIncludes(notes.join("\n"), "node-c");
});

Deno.test("the configuration decides, and its mistakes are reported", {
  // The reader of YAML looks into the environment.
  permissions: { env: ["LOG_TOKENS", "LOG_STREAM"] },
}, () => {
  const masquerading = `${HEADER}mode: nftables\nnftables: { masqueradeAll: true }\n`;
  const node = previewNode(OBJECTS, { nodeName: "node-a", configuration: masquerading });
  assertEquals(node.mode, "nftables");
  assertStringIncludes(node.trace("10.244.0.5", "shop/web").outcome, "masquerade yes");
  assertThrows(
    () => previewNode(OBJECTS, { nodeName: "node-a", configuration: `${HEADER}mode: nonsense\n` }),
    ConfigError,
    "mode",
  );
  assertThrows(
    () => previewNode(OBJECTS, { nodeName: "node-a", configuration: `${HEADER}mode: userspace\n` }),
    UnsupportedError,
    "Previewing proxy mode userspace is not possible",
  );
  assertThrows(() => node.trace("10.244.0.5", "nowhere"), UsageError, "is no destination");
});
