import { assertEquals } from "@std/assert";
import { recordingLog } from "../../tests/support/recording_log.ts";
import {
  configRefusedEvent,
  destinationRefusedEvent,
  endpointUnreachableEvent,
  healthServerFailedEvent,
  LogEvents,
  metricsServerFailedEvent,
  modeFallbackEvent,
  otherProxyEvent,
  type ProxyEvent,
  serviceHealthFailedEvent,
  serviceQuarantinedEvent,
  startingEvent,
  sysctlsRefusedEvent,
} from "./events.ts";

const SERVICE = { kind: "Service", namespace: "shop", name: "web" } as const;
const NODE = { kind: "Node", name: "node-a" } as const;

const EVENTS: readonly [event: ProxyEvent, wanted: ProxyEvent][] = [
  [
    startingEvent("node-a"),
    { type: "Normal", reason: "Starting", action: "StartKubeProxy", note: "", regarding: NODE },
  ],
  [
    healthServerFailedEvent("node-a", "address in use"),
    {
      type: "Warning",
      reason: "FailedToStartProxierHealthcheck",
      action: "StartKubeProxy",
      note: "address in use",
      regarding: NODE,
    },
  ],
  [
    metricsServerFailedEvent("node-a", "address in use"),
    {
      type: "Warning",
      reason: "FailedToStartMetricServer",
      action: "StartKubeProxy",
      note: "address in use",
      regarding: NODE,
    },
  ],
  [
    serviceHealthFailedEvent("node-a", { service: "shop/web", port: 32000, message: "address in use" }),
    {
      type: "Warning",
      reason: "FailedToStartServiceHealthcheck",
      action: "Listen",
      note: 'node node-a failed to start healthcheck "shop/web" on port 32000: address in use',
      regarding: SERVICE,
    },
  ],
  [
    sysctlsRefusedEvent("node-a", [
      {
        name: "net.netfilter.nf_conntrack_buckets",
        wanted: 32768,
        found: "1024",
        problem: 'sysctl: permission denied on key "net.netfilter.nf_conntrack_buckets", ignoring\n',
      },
      { name: "net.netfilter.nf_conntrack_max", wanted: 131072, found: null, problem: "not there" },
    ]),
    {
      type: "Warning",
      reason: "readOnlySysFS",
      action: "StartKubeProxy",
      note: "/proc/sys or /sys is read-only: cannot modify conntrack limits, problems may arise later: " +
        "net.netfilter.nf_conntrack_buckets is 1024 instead of 32768 " +
        '(permission denied on key "net.netfilter.nf_conntrack_buckets", ignoring); ' +
        "net.netfilter.nf_conntrack_max is unknown instead of 131072 (not there)",
      regarding: NODE,
    },
  ],
  [
    modeFallbackEvent("node-a", { wanted: "ipvs", used: "iptables", why: "no ip_vs module" }),
    {
      type: "Warning",
      reason: "ProxyModeFallback",
      action: "StartKubeProxy",
      note: "cannot run mode ipvs, running mode iptables: no ip_vs module",
      regarding: NODE,
    },
  ],
  [
    configRefusedEvent("node-a", "mode: must be iptables"),
    {
      type: "Warning",
      reason: "ConfigRefused",
      action: "ReloadConfig",
      note: "the changed configuration is refused, the former one stays in force: mode: must be iptables",
      regarding: NODE,
    },
  ],
  [
    serviceQuarantinedEvent("node-a", { service: "shop/web", problem: "line 5 failed" }),
    {
      type: "Warning",
      reason: "ServiceQuarantined",
      action: "Sync",
      note: "node node-a does not serve all of shop/web, because a part of it is refused: line 5 failed",
      regarding: SERVICE,
    },
  ],
  [
    destinationRefusedEvent("node-a", {
      service: "shop/web",
      destination: "external IP 10.96.0.1 port 443/TCP",
      reason: "it belongs to default/kubernetes",
    }),
    {
      type: "Warning",
      reason: "DestinationRefused",
      action: "Sync",
      note: "node node-a does not serve external IP 10.96.0.1 port 443/TCP of shop/web: " +
        "it belongs to default/kubernetes",
      regarding: SERVICE,
    },
  ],
  [
    endpointUnreachableEvent("node-a", {
      service: "shop/web",
      endpoint: "239.1.1.1 of EndpointSlice shop/web-1",
      reason: "it is a multicast address",
    }),
    {
      type: "Warning",
      reason: "EndpointUnreachable",
      action: "Sync",
      note: "node node-a leads no traffic of shop/web to 239.1.1.1 of EndpointSlice shop/web-1: " +
        "it is a multicast address",
      regarding: SERVICE,
    },
  ],
  [
    otherProxyEvent("node-a", ["ip kube-proxy", "ip6 kube-proxy"]),
    {
      type: "Warning",
      reason: "OtherProxy",
      action: "Sync",
      note: "another service proxy writes rules on this node: tables ip kube-proxy, ip6 kube-proxy came back",
      regarding: NODE,
    },
  ],
];

Deno.test("every Event says what, why and about which object", { permissions: "none" }, () => {
  for (const [event, wanted] of EVENTS) assertEquals(event, wanted);
});

Deno.test("without an API server Events go to the log", { permissions: "none" }, () => {
  const { log, lines } = recordingLog();
  const recorder = new LogEvents(log);
  recorder.record(startingEvent("node-a"));
  recorder.record(serviceQuarantinedEvent("node-a", { service: "shop/web", problem: "line 5 failed" }));
  assertEquals(lines, [
    'I "Event" type="Normal" reason="Starting" regarding="Node node-a"',
    'W "Event" type="Warning" reason="ServiceQuarantined" regarding="Service shop/web" ' +
    'note="node node-a does not serve all of shop/web, because a part of it is refused: line 5 failed"',
  ]);
});
