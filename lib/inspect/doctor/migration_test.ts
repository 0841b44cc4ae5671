import { assertEquals } from "@std/assert";
import { testServicePort } from "../../../tests/support/model_objects.ts";
import { applyModeDefaults, defaultConfig } from "../../config/defaults.ts";
import type { KubeProxyConfiguration } from "../../config/types.ts";
import type { IpFamily } from "../../model/objects.ts";
import type { ProxyState, ServicePort } from "../../model/state.ts";
import type { RenderedMode } from "../desired/desired.ts";
import { compareModes, type Migration } from "./migration.ts";

function stateOf(family: IpFamily, ports: readonly Partial<ServicePort>[]): ProxyState {
  return {
    family,
    node: { name: "a", zone: "" },
    services: new Map([["shop/web", ports.map((port) => testServicePort(port))]]),
    endpoints: new Map(),
    endpointCount: 0,
    tooLarge: new Map(),
  };
}

function migrate(
  from: RenderedMode,
  to: RenderedMode,
  ports: readonly Partial<ServicePort>[],
  change: (config: KubeProxyConfiguration) => KubeProxyConfiguration = (config) => config,
): Migration {
  const config = change(applyModeDefaults({ ...defaultConfig(), mode: from }));
  return compareModes({
    from,
    to,
    config,
    states: new Map([["IPv4", stateOf("IPv4", ports)]]),
    objectsFrom: "a test",
  });
}

/** `topic: now -> then` for the only Service; empty if nothing changes. */
function differences(...args: Parameters<typeof migrate>): readonly string[] {
  return migrate(...args).services.flatMap((service) => service.differences)
    .map(({ topic, from, to }) => `${topic}: ${from} -> ${to}`);
}

const NODE_PORT = { nodePort: 30080 };
const VIP = { loadBalancerVIPs: ["203.0.113.5"] };

/** A port → topics that change, by direction of the migration. */
const CASES: readonly (readonly [
  name: string,
  port: Partial<ServicePort>,
  topics: Readonly<Record<string, readonly string[]>>,
])[] = [
  ["a cluster IP alone", {}, { "iptables ipvs": [], "iptables nftables": [], "ipvs nftables": [] }],
  ["a node port", NODE_PORT, {
    "iptables nftables": ["node port 30080 (IPv4)", "node port 30080 on 127.0.0.1"],
    "nftables iptables": ["node port 30080 (IPv4)", "node port 30080 on 127.0.0.1"],
    "iptables ipvs": ["node port 30080 on 127.0.0.1"],
    "ipvs nftables": ["node port 30080 (IPv4)"],
  }],
  ["affinity", { stickyMaxAgeSeconds: 60 }, {
    "iptables ipvs": ["affinity of clients for 60 s"],
    "nftables ipvs": ["affinity of clients for 60 s"],
    "iptables nftables": [],
  }],
  ["external policy Local without a way from outside", { externalPolicyLocal: true }, {
    "iptables ipvs": [],
  }],
  ["external policy Local", { ...VIP, externalPolicyLocal: true }, {
    "iptables ipvs": ["externalTrafficPolicy Local", "addresses 203.0.113.5"],
    "iptables nftables": [],
  }],
  ["internal policy Local", { internalPolicyLocal: true }, {
    "iptables ipvs": ["internalTrafficPolicy Local"],
    "iptables nftables": [],
  }],
  ["source ranges", { ...VIP, loadBalancerSourceRanges: ["10.0.0.0/8"] }, {
    "iptables nftables": ["loadBalancerSourceRanges"],
    "iptables ipvs": ["loadBalancerSourceRanges", "addresses 203.0.113.5"],
    "nftables ipvs": ["loadBalancerSourceRanges", "addresses 203.0.113.5"],
  }],
  ["source ranges of no address", { loadBalancerSourceRanges: ["10.0.0.0/8"] }, {
    "iptables nftables": [],
  }],
  ["a scheduler of its own", { ipvs: { scheduler: "lc", graceful: true } }, {
    "ipvs nftables": ["annotation kproxy.io/ipvs-scheduler"],
    "iptables ipvs": ["annotation kproxy.io/ipvs-scheduler"],
    "iptables nftables": [],
  }],
  ["no graceful termination", { ipvs: { scheduler: "", graceful: false } }, {
    "ipvs iptables": ["annotation kproxy.io/ipvs-graceful-termination: false"],
  }],
  ["SCTP", { protocol: "SCTP" }, { "iptables ipvs": ["SCTP"], "iptables nftables": [] }],
  ["UDP", { protocol: "UDP" }, { "iptables ipvs": [], "iptables nftables": [] }],
];

for (const [name, port, ways] of CASES) {
  for (const [way, topics] of Object.entries(ways)) {
    Deno.test(`${name}, ${way.replace(" ", " to ")}`, { permissions: "none" }, () => {
      const [from, to] = way.split(" ") as [RenderedMode, RenderedMode];
      assertEquals(
        differences(from, to, [port]).map((line) => line.split(": ").slice(0, -1).join(": ")).map((line) =>
          topics.find((topic) => line.startsWith(topic)) ?? line
        ),
        topics,
      );
    });
  }
}

Deno.test("what is configured decides", { permissions: "none" }, () => {
  const addresses = (nodePortAddresses: string[] | null) => (config: KubeProxyConfiguration) => ({
    ...config,
    nodePortAddresses,
  });
  assertEquals(differences("iptables", "nftables", [NODE_PORT], addresses(["10.0.0.0/8"])), []);
  assertEquals(differences("iptables", "nftables", [NODE_PORT], addresses(["127.0.0.0/8"])), [
    "node port 30080 on 127.0.0.1: answers -> does not answer",
  ]);
  const closed = (config: KubeProxyConfiguration) => ({
    ...config,
    iptables: { ...config.iptables, localhostNodePorts: false },
  });
  assertEquals(differences("iptables", "ipvs", [NODE_PORT], closed), []);
});

Deno.test("a Service of several ports and families says each thing once, and Services are in order", {
  permissions: "none",
}, () => {
  const config = applyModeDefaults({ ...defaultConfig(), mode: "iptables" });
  const state = stateOf("IPv4", [{ stickyMaxAgeSeconds: 60 }, {
    stickyMaxAgeSeconds: 60,
    port: 81,
  }]);
  const services = new Map([...state.services, ["shop/api", state.services.get("shop/web") ?? []]]);
  const states = new Map([["IPv4", { ...state, services }], ["IPv6", { ...state, family: "IPv6" }]] as const);
  const { services: changed, serviceCount } = compareModes({
    from: "iptables",
    to: "ipvs",
    config,
    states,
    objectsFrom: "",
  });
  assertEquals(serviceCount, 2);
  assertEquals(
    changed.map(({ namespace, name, differences }) => `${namespace}/${name} ${differences.length}`),
    [
      "shop/api 1",
      "shop/web 1",
    ],
  );
});

Deno.test("what counts for every Service is reported once, and nothing of it to the same mode", {
  permissions: "none",
}, () => {
  const topics = (from: RenderedMode, to: RenderedMode) =>
    migrate(from, to, []).everyService.map(({ topic }) => topic);
  assertEquals(topics("iptables", "nftables"), [
    "other ports of a cluster IP, and ping",
    "addresses of ServiceCIDRs that no Service has",
    "packets that connection tracking calls invalid",
    "a chain FORWARD of the node that drops",
  ]);
  assertEquals(topics("iptables", "ipvs").includes("TCP connections to an endpoint that leaves"), true);
  for (const mode of ["iptables", "ipvs", "nftables"] as const) {
    assertEquals(topics(mode, mode), []);
    assertEquals(differences(mode, mode, [{ ...VIP, ...NODE_PORT, stickyMaxAgeSeconds: 5 }]), []);
  }
});
