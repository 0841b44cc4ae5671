/** Wanted servers and set entries for each kind of Service, and the rules of load balancers with source ranges. */
import { assertEquals, assertThrows } from "@std/assert";
import { parseIp } from "../../../model/ip.ts";
import { NODE_A, testEndpoint, testServicePort } from "../../../../tests/support/model_objects.ts";
import type { Endpoint, ServicePort } from "../../../model/state.ts";
import { exampleIpvsOptions } from "../../../../tests/support/golden_ipvs.ts";
import { addVirtualServerLine } from "../../../netfilter/ipvs.ts";
import type { IpvsOptions } from "./ruleset.ts";
import { objectsOfService, type ServiceContext } from "./plan.ts";

const pure = { permissions: "none" } as const;

const NODE_IPS = ["192.0.2.10", "192.168.7.10"];
const CONTEXT: Omit<ServiceContext, "options"> = {
  node: NODE_A,
  nodeIp: parseIp("192.0.2.10"),
  hostIps: new Set(NODE_IPS),
  report: (problem) => {
    throw new Error(problem);
  },
};
/** Differences of a case from the defaults. */
type Changes = Partial<Omit<ServiceContext, "hostIps" | "options"> & Omit<IpvsOptions, "hostIps" | "nodeIp">>;

const LOCAL = testEndpoint("10.244.0.1", { isLocal: true });
const REMOTE = testEndpoint("10.244.1.2");
const [A, B] = [LOCAL.key, REMOTE.key];

function claims(
  port: Partial<ServicePort>,
  endpoints: readonly Endpoint[] = [LOCAL, REMOTE],
  changes: Changes = {},
) {
  const servicePort = testServicePort(port);
  const { node = CONTEXT.node, nodeIp = CONTEXT.nodeIp, report = CONTEXT.report, ...rest } = changes;
  const options = exampleIpvsOptions(rest.family ?? "IPv4", { nodePortIps: NODE_IPS, ...rest });
  const context = { node, nodeIp, report, hostIps: CONTEXT.hostIps, options };
  return objectsOfService([servicePort], new Map([[servicePort.key, endpoints]]), context);
}

/** `-A …` of each server, `bound` if it is to be, and the keys of its real servers. */
function servers(...args: Parameters<typeof claims>): string[] {
  return claims(...args).servers.map(({ server, realServers, bind }) =>
    [addVirtualServerLine(server), ...(bind ? ["bound"] : []), ...realServers].join(" ")
  );
}

/** All entries, sorted; hairpins are of every Service and left out. */
function entries(...args: Parameters<typeof claims>): string[] {
  const made = claims(...args);
  return [...made.servers.flatMap((server) => server.entries), ...made.entries]
    .filter((entry) => !entry.includes("LOOP-BACK")).sort();
}

const CLUSTER = "10.96.0.10,tcp:80";
const EXTERNAL = { externalIPs: ["198.51.100.7"] };
const BALANCED = { loadBalancerVIPs: ["203.0.113.5"] };
const NODE_PORT = { nodePort: 30080 };

const SERVER_ROWS:
  readonly (readonly [string, Partial<ServicePort>, readonly Endpoint[], readonly string[]])[] = [
    ["cluster IP", {}, [LOCAL, REMOTE], [`-A -t 10.96.0.10:80 -s rr bound ${A} ${B}`]],
    ["cluster IP, internal policy Local", { internalPolicyLocal: true }, [LOCAL, REMOTE], [
      `-A -t 10.96.0.10:80 -s rr bound ${A}`,
    ]],
    ["cluster IP, internal policy Local, none local, nothing external", { internalPolicyLocal: true }, [
      REMOTE,
    ], [
      "-A -t 10.96.0.10:80 -s rr bound",
    ]],
    [
      "internal policy Local, none local, but external",
      { internalPolicyLocal: true, ...EXTERNAL },
      [REMOTE],
      [
        `-A -t 10.96.0.10:80 -s rr bound ${B}`,
        `-A -t 198.51.100.7:80 -s rr bound ${B}`,
      ],
    ],
    ["no endpoints", {}, [], ["-A -t 10.96.0.10:80 -s rr bound"]],
    ["external IP", EXTERNAL, [LOCAL, REMOTE], [
      `-A -t 10.96.0.10:80 -s rr bound ${A} ${B}`,
      `-A -t 198.51.100.7:80 -s rr bound ${A} ${B}`,
    ]],
    ["external IP of another device is not bound", { externalIPs: ["192.168.7.10"] }, [REMOTE], [
      `-A -t 10.96.0.10:80 -s rr bound ${B}`,
      `-A -t 192.168.7.10:80 -s rr ${B}`,
    ]],
    ["load-balancer IP of another device is not bound", { loadBalancerVIPs: ["192.0.2.10"] }, [REMOTE], [
      `-A -t 10.96.0.10:80 -s rr bound ${B}`,
      `-A -t 192.0.2.10:80 -s rr ${B}`,
    ]],
    ["external policy Local", { ...EXTERNAL, ...BALANCED, externalPolicyLocal: true }, [LOCAL, REMOTE], [
      `-A -t 10.96.0.10:80 -s rr bound ${A} ${B}`,
      `-A -t 198.51.100.7:80 -s rr bound ${A}`,
      `-A -t 203.0.113.5:80 -s rr bound ${A}`,
    ]],
    ["external policy Local, none local", { ...BALANCED, externalPolicyLocal: true }, [REMOTE], [
      `-A -t 10.96.0.10:80 -s rr bound ${B}`,
      `-A -t 203.0.113.5:80 -s rr bound ${B}`,
    ]],
    ["node port on every node address, never bound", NODE_PORT, [LOCAL, REMOTE], [
      `-A -t 10.96.0.10:80 -s rr bound ${A} ${B}`,
      `-A -t 192.0.2.10:30080 -s rr ${A} ${B}`,
      `-A -t 192.168.7.10:30080 -s rr ${A} ${B}`,
    ]],
    ["node port, external policy Local", { ...NODE_PORT, externalPolicyLocal: true }, [LOCAL, REMOTE], [
      `-A -t 10.96.0.10:80 -s rr bound ${A} ${B}`,
      `-A -t 192.0.2.10:30080 -s rr ${A}`,
      `-A -t 192.168.7.10:30080 -s rr ${A}`,
    ]],
    ["affinity", { stickyMaxAgeSeconds: 600 }, [REMOTE], [`-A -t 10.96.0.10:80 -s rr -p 600 bound ${B}`]],
    ["UDP", { protocol: "UDP" }, [REMOTE], [`-A -u 10.96.0.10:80 -s rr bound ${B}`]],
    ["SCTP", { protocol: "SCTP" }, [REMOTE], [`-A --sctp-service 10.96.0.10:80 -s rr bound ${B}`]],
    ["a draining endpoint while none is ready", {}, [
      testEndpoint("10.244.1.2", { ready: false, terminating: true }),
    ], [
      `-A -t 10.96.0.10:80 -s rr bound ${B}`,
    ]],
  ];

for (const [name, port, endpoints, wanted] of SERVER_ROWS) {
  Deno.test(`virtual servers: ${name}`, pure, () => {
    assertEquals(servers(port, endpoints), wanted);
  });
}

const ENTRY_ROWS: readonly (readonly [string, Partial<ServicePort>, readonly string[]])[] = [
  ["cluster IP", {}, [`KUBE-CLUSTER-IP ${CLUSTER}`]],
  ["external IP", EXTERNAL, [`KUBE-CLUSTER-IP ${CLUSTER}`, "KUBE-EXTERNAL-IP 198.51.100.7,tcp:80"]],
  ["external IP, external policy Local", { ...EXTERNAL, externalPolicyLocal: true }, [
    `KUBE-CLUSTER-IP ${CLUSTER}`,
    "KUBE-EXTERNAL-IP-LOCAL 198.51.100.7,tcp:80",
  ]],
  ["load-balancer IP", BALANCED, [`KUBE-CLUSTER-IP ${CLUSTER}`, "KUBE-LOAD-BALANCER 203.0.113.5,tcp:80"]],
  ["load-balancer IP, external policy Local", { ...BALANCED, externalPolicyLocal: true }, [
    `KUBE-CLUSTER-IP ${CLUSTER}`,
    "KUBE-LOAD-BALANCER 203.0.113.5,tcp:80",
    "KUBE-LOAD-BALANCER-LOCAL 203.0.113.5,tcp:80",
  ]],
  ["source ranges with the node in them", {
    ...BALANCED,
    loadBalancerSourceRanges: ["192.0.2.0/24", "198.18.0.0/15"],
  }, [
    `KUBE-CLUSTER-IP ${CLUSTER}`,
    "KUBE-LOAD-BALANCER 203.0.113.5,tcp:80",
    "KUBE-LOAD-BALANCER-FW 203.0.113.5,tcp:80",
    "KUBE-LOAD-BALANCER-SOURCE-CIDR 203.0.113.5,tcp:80,192.0.2.0/24",
    "KUBE-LOAD-BALANCER-SOURCE-CIDR 203.0.113.5,tcp:80,198.18.0.0/15",
    "KUBE-LOAD-BALANCER-SOURCE-IP 203.0.113.5,tcp:80,203.0.113.5",
  ]],
  ["a source range of one address", { ...BALANCED, loadBalancerSourceRanges: ["198.51.100.77/32"] }, [
    `KUBE-CLUSTER-IP ${CLUSTER}`,
    "KUBE-LOAD-BALANCER 203.0.113.5,tcp:80",
    "KUBE-LOAD-BALANCER-FW 203.0.113.5,tcp:80",
    "KUBE-LOAD-BALANCER-SOURCE-CIDR 203.0.113.5,tcp:80,198.51.100.77",
  ]],
  ["source ranges without a load-balancer IP", { loadBalancerSourceRanges: ["192.0.2.0/24"] }, [
    `KUBE-CLUSTER-IP ${CLUSTER}`,
  ]],
  ["node port", NODE_PORT, [`KUBE-CLUSTER-IP ${CLUSTER}`, "KUBE-NODE-PORT-TCP 30080"]],
  ["node port, external policy Local", { ...NODE_PORT, externalPolicyLocal: true }, [
    `KUBE-CLUSTER-IP ${CLUSTER}`,
    "KUBE-NODE-PORT-LOCAL-TCP 30080",
    "KUBE-NODE-PORT-TCP 30080",
  ]],
  ["UDP node port", { ...NODE_PORT, protocol: "UDP", externalPolicyLocal: true }, [
    "KUBE-CLUSTER-IP 10.96.0.10,udp:80",
    "KUBE-NODE-PORT-LOCAL-UDP 30080",
    "KUBE-NODE-PORT-UDP 30080",
  ]],
  ["SCTP node port", { ...NODE_PORT, protocol: "SCTP", externalPolicyLocal: true }, [
    "KUBE-CLUSTER-IP 10.96.0.10,sctp:80",
    "KUBE-NODE-PORT-LOCAL-SCTP-HASH 192.0.2.10,sctp:30080",
    "KUBE-NODE-PORT-LOCAL-SCTP-HASH 192.168.7.10,sctp:30080",
    "KUBE-NODE-PORT-SCTP-HASH 192.0.2.10,sctp:30080",
    "KUBE-NODE-PORT-SCTP-HASH 192.168.7.10,sctp:30080",
  ]],
  ["health-check node port", { ...BALANCED, healthCheckNodePort: 32000 }, [
    `KUBE-CLUSTER-IP ${CLUSTER}`,
    "KUBE-HEALTH-CHECK-NODE-PORT 32000",
    "KUBE-LOAD-BALANCER 203.0.113.5,tcp:80",
  ]],
];

for (const [name, port, wanted] of ENTRY_ROWS) {
  Deno.test(`entries: ${name}`, pure, () => {
    assertEquals(entries(port), wanted);
  });
}

Deno.test("hairpin entries: local endpoints only, whatever their readiness", pure, () => {
  const unready = testEndpoint("10.244.0.3", { isLocal: true, ready: false, serving: false });
  assertEquals(claims({}, [LOCAL, REMOTE, unready]).entries, [
    "KUBE-LOOP-BACK 10.244.0.1,tcp:8080,10.244.0.1",
    "KUBE-LOOP-BACK 10.244.0.3,tcp:8080,10.244.0.3",
  ]);
});

Deno.test(
  "without node addresses a node port is left out, and a health-check node port with it",
  pure,
  () => {
    const none = { nodePortIps: [] };
    assertEquals(entries({ ...NODE_PORT, healthCheckNodePort: 32000 }, [REMOTE], none), [
      `KUBE-CLUSTER-IP ${CLUSTER}`,
    ]);
    assertEquals(servers(NODE_PORT, [REMOTE], none).length, 1);
    assertEquals(entries({ healthCheckNodePort: 32000 }, [REMOTE], none), [
      `KUBE-CLUSTER-IP ${CLUSTER}`,
      "KUBE-HEALTH-CHECK-NODE-PORT 32000",
    ]);
  },
);

Deno.test("rule 14: only source ranges without the node in them keep the node out", pure, () => {
  const rules = (ranges: readonly string[], context: Changes = {}): string[] =>
    claims({ ...BALANCED, loadBalancerSourceRanges: ranges }, [REMOTE], context).servers
      .map(({ outFilter }) => outFilter).filter((rule) => rule !== "");
  const rule = "-s 203.0.113.5 -m ipvs --vaddr 203.0.113.5 --vproto tcp --vport 80 -j DROP";
  assertEquals(rules([]), []);
  assertEquals(rules(["192.0.2.0/24", "198.18.0.0/15"]), []);
  assertEquals(rules(["198.18.0.0/15"]), [rule]);
  assertEquals(rules(["192.0.2.0/24"], { nodeIp: null }), [rule]);
  assertThrows(() => rules(["nonsense"]), RangeError, "must be a CIDR");
});

Deno.test(
  "an address that is external IP and load-balancer IP is one server with the entries of both",
  pure,
  () => {
    const both = claims({
      externalIPs: ["203.0.113.5"],
      loadBalancerVIPs: ["203.0.113.5"],
      loadBalancerSourceRanges: ["198.18.0.0/15"],
    }, [REMOTE]).servers;
    assertEquals(both.length, 2);
    assertEquals(both[1]?.entries.map((entry) => entry.split(" ")[0]), [
      "KUBE-EXTERNAL-IP",
      "KUBE-LOAD-BALANCER",
      "KUBE-LOAD-BALANCER-FW",
      "KUBE-LOAD-BALANCER-SOURCE-CIDR",
    ]);
    assertEquals(both[1]?.outFilter.includes("-j DROP"), true);
  },
);

Deno.test("IPv6: names of sets, entries without brackets, servers with them", pure, () => {
  const endpoint = testEndpoint("fd00::1", { key: "[fd00::1]:8080", isLocal: true });
  const port = {
    clusterIP: "fd00:10:96::9",
    loadBalancerVIPs: ["fd00:203::5"],
    loadBalancerSourceRanges: ["fd00:1::/64"],
  };
  const context: Changes = { family: "IPv6", nodeIp: parseIp("fd00:2::1"), nodePortIps: [] };
  assertEquals(servers(port, [endpoint], context), [
    "-A -t [fd00:10:96::9]:80 -s rr bound [fd00::1]:8080",
    "-A -t [fd00:203::5]:80 -s rr bound [fd00::1]:8080",
  ]);
  assertEquals(entries(port, [endpoint], context), [
    "KUBE-6-CLUSTER-IP fd00:10:96::9,tcp:80",
    "KUBE-6-LOAD-BALANCER fd00:203::5,tcp:80",
    "KUBE-6-LOAD-BALANCER-FW fd00:203::5,tcp:80",
    "KUBE-6-LOAD-BALANCER-SOURCE-CID fd00:203::5,tcp:80,fd00:1::/64",
  ]);
  assertEquals(claims(port, [endpoint], context).entries, ["KUBE-6-LOOP-BACK fd00::1,tcp:8080,fd00::1"]);
});

Deno.test(
  "schedulers: mh hashes the port too, a Service may choose, one the kernel lacks is reported",
  pure,
  () => {
    assertEquals(servers({ stickyMaxAgeSeconds: 600 }, [], { scheduler: "mh" }), [
      "-A -t 10.96.0.10:80 -s mh -p 600 -b mh-port bound",
    ]);
    const asks = { ipvs: { scheduler: "lc", graceful: false } };
    assertEquals(servers(asks, []), ["-A -t 10.96.0.10:80 -s lc bound"]);
    assertEquals(claims(asks).servers.map(({ graceful }) => graceful), [false]);
    const problems: string[] = [];
    const lacking = { schedulers: ["rr"], report: (problem: string) => void problems.push(problem) };
    assertEquals(servers(asks, [], lacking), ["-A -t 10.96.0.10:80 -s rr bound"]);
    assertEquals(problems, [
      "Service port shop/web asks for IPVS scheduler lc, which this kernel does not have; rr is used",
    ]);
  },
);
