import { assert, assertEquals, assertMatch } from "@std/assert";
import { DoctorNode } from "../../../tests/support/doctor_node.ts";
import { type Fault, ListWatchServer } from "../../../tests/support/list_watch_server.ts";
import { rawNode, rawService } from "../../../tests/support/raw_objects.ts";
import { eventually } from "../../../tests/support/until.ts";
import { applyModeDefaults, defaultConfig } from "../../config/defaults.ts";
import type { ProxyMode } from "../../config/types.ts";
import { neededRights } from "./api.ts";
import { examine, type ExamineOptions } from "./doctor.ts";
import type { DoctorReport } from "./report.ts";

/** Findings about the API server, without those of the rest of a sound node. */
function ofCluster({ findings }: DoctorReport): readonly string[] {
  const checks = ["API server", "API rights", "node", "clock", "move to mode iptables"];
  return findings.filter(({ check }) => checks.includes(check))
    .map(({ check, level, what, fix }) => `${level} ${check}: ${what}${fix === "" ? "" : ` -> ${fix}`}`);
}

function look(
  server: Pick<ListWatchServer, "url">,
  { mode = "nftables", ...options }: Partial<ExamineOptions> & { readonly mode?: ProxyMode } = {},
): Promise<DoctorReport> {
  const config = applyModeDefaults({ ...defaultConfig(), mode, metricsBindAddress: "" });
  return examine({
    exec: new DoctorNode(),
    config,
    master: server.url,
    nodeName: "n1",
    migrateTo: null,
    isSourceNamed: true,
    lockPath: "/nowhere/xtables.lock",
    limitMs: 60_000,
    ...options,
  });
}

/** A Node with loopback's address, which every machine has. */
function ownNode(name: string, address = "127.0.0.1"): ReturnType<typeof rawNode> {
  return { ...rawNode(name), status: { addresses: [{ type: "InternalIP", address }] } };
}

Deno.test("a server that answers and grants everything is well", async () => {
  await using server = new ListWatchServer();
  server.put(ownNode("n1"));
  server.clockMs = Date.now();
  const [answers, rights, node, clock, ...rest] = ofCluster(await look(server));
  assertMatch(answers ?? "", /^ok API server: http:\/\/127\.0\.0\.1:\d+ answers \(v1\.33\.1\), by --master$/);
  assertEquals(
    rights,
    "ok API rights: may list services, watch services, list endpointslices.discovery.k8s.io, " +
      "watch endpointslices.discovery.k8s.io, list nodes, watch nodes, list servicecidrs.networking.k8s.io, " +
      "watch servicecidrs.networking.k8s.io, create events.events.k8s.io, patch events.events.k8s.io",
  );
  assertMatch(node ?? "", /^ok node: Node n1: 127\.0\.0\.1; IPv4, first IPv4$/);
  assertEquals(clock, "ok clock: agrees with the API server's to within seconds");
  assertEquals(rest, []);
  // Only reads: nothing was written, and no Service was listed.
  const asked = new Set(server.requests.map(({ path }) => path));
  assertEquals(asked.has("/api/v1/services"), false);
});

Deno.test("each right that is missing is named: those that kproxy cannot do without are failures", async () => {
  await using server = new ListWatchServer();
  server.put(ownNode("n1"));
  for (const right of ["watch services", "list nodes", "watch servicecidrs", "create events"]) {
    server.denied.add(right);
  }
  const found = ofCluster(await look(server)).filter((line) => line.includes("may not"));
  assertEquals(found.map((line) => line.split(" -> ")[0]), [
    "failure API rights: may not watch services: no Service can be served",
    "warning API rights: may not list nodes, which is optional: node ports, zones and local networks do not follow the " +
    "Node, and no load balancer is told that it leaves",
    "warning API rights: may not watch servicecidrs.networking.k8s.io, which is optional: packets to addresses of no " +
    "Service travel on instead of being dropped",
    "warning API rights: may not create events.events.k8s.io, which is optional: Events about Services and this node are " +
    "only in the log",
  ]);
  assert(found.every((line) => line.includes(" -> grant ")));
  // Other modes do not need ServiceCIDRs.
  const iptables = ofCluster(await look(server, { mode: "iptables" }));
  assertEquals(iptables.some((line) => line.includes("servicecidrs")), false);
});

Deno.test("a wrong node name is a failure, with the name of the Node that has this machine's address", async () => {
  await using server = new ListWatchServer();
  server.put(ownNode("ip-10-0-0-7"));
  server.put(ownNode("n2", "203.0.113.9"));
  assertEquals(ofCluster(await look(server)).filter((line) => line.includes(" node: ")), [
    "failure node: the cluster has no Node n1: topology, node ports and policy Local go wrong; Node ip-10-0-0-7 has an " +
    "address of this machine -> --hostname-override=ip-10-0-0-7",
  ]);
  const foreign = ofCluster(await look(server, { nodeName: "n2" }));
  assert(
    foreign.some((line) =>
      line.startsWith("warning node: none of the addresses of Node n2 (203.0.113.9) is on this")
    ),
  );
});

Deno.test("without clusterCIDR the likely one is named, by the pod CIDRs of all Nodes", async () => {
  await using server = new ListWatchServer();
  server.put(ownNode("n1"));
  server.put(rawNode("n2", "10.245.7.0/24"));
  const ofTraffic = async (clusterCIDR: string): Promise<string | undefined> => {
    const config = applyModeDefaults({
      ...defaultConfig(),
      mode: "nftables",
      metricsBindAddress: "",
      clusterCIDR,
    });
    const found = (await look(server, { config })).findings.find(({ check }) => check === "local traffic");
    return `${found?.level} ${found?.fix}`;
  };
  assertEquals(
    await ofTraffic(""),
    "warning set clusterCIDR (--cluster-cidr): likely 10.244.0.0/15, by the Nodes' pod CIDRs; " +
      "kube-controller-manager's --cluster-cidr is the right one",
  );
  assertEquals(await ofTraffic("10.244.0.0/15"), "ok ");
});

Deno.test("a clock that is wrong is a warning with the seconds", async () => {
  await using server = new ListWatchServer();
  server.put(ownNode("n1"));
  server.clockMs = Date.now() - 3_600_000;
  const [ahead] = ofCluster(await look(server)).filter((line) => line.includes(" clock: "));
  assertMatch(
    ahead ?? "",
    /^warning clock: 3(599|6\d\d) s ahead of the API server's.* -> set it: timedatectl/,
  );
});

const isVersion = ({ path }: { readonly path: string }): boolean => path === "/version";
const isReview = ({ path }: { readonly path: string }): boolean => path.includes("selfsubjectaccessreviews");

const FAULTS: readonly (readonly [
  name: string,
  matches: (request: { readonly path: string }) => boolean,
  fault: Fault,
  said: RegExp,
])[] = [
  [
    "a version that is refused",
    isVersion,
    { status: 403 },
    /^warning API server version: could not be looked at: GET \/version: status 403: planned/,
  ],
  [
    "a review that is refused",
    isReview,
    { status: 403, text: "<html>no" },
    /^warning API rights: could not be looked at: POST .*status 403: <html>no/,
  ],
  [
    "a review that is garbage",
    isReview,
    { status: 200, text: "{" },
    /^warning API rights: could not be looked at: /,
  ],
  [
    "a review without an answer",
    isReview,
    { status: 200, text: "{}" },
    /^warning API rights: could not be looked at: the answer says neither/,
  ],
  [
    "a review that hangs",
    isReview,
    { hang: true },
    /^warning API rights: could not be looked at: it took longer than 1 s/,
  ],
  [
    "a Node that is garbage",
    ({ path }) => path.endsWith("/nodes"),
    { status: 200, text: `{"items":[7]}` },
    /^warning node: could not be looked at: /,
  ],
  [
    "a Node that is cut off",
    ({ path }) => path.endsWith("/nodes"),
    { cutAfterBytes: 5 },
    /^warning node: could not be looked at: /,
  ],
];

for (const [name, matches, fault, said] of FAULTS) {
  const isWarned = async (): Promise<void> => {
    await using server = new ListWatchServer();
    server.put(ownNode("n1"));
    server.plan(matches, fault);
    const report = await look(server, { limitMs: "hang" in fault ? 1_000 : 60_000 });
    const all = report.findings.map(({ check, level, what }) => `${level} ${check}: ${what}`);
    assert(all.some((line) => said.test(line)), all.join("\n"));
    assert(all.some((line) => /^ok API rights: may (list|watch) services/.test(line)), all.join("\n"));
  };
  // If the machine stalls for as long as the limit, other facts are unknown, too.
  Deno.test(
    `${name} is a warning of its own`,
    "hang" in fault ? () => eventually(isWarned, { limitMs: 60_000 }) : isWarned,
  );
}

Deno.test("a server that is not there, or silent, is a failure within the limit", async () => {
  const closed = new ListWatchServer();
  const { url } = closed;
  await closed[Symbol.asyncDispose]();
  const [gone, ...rest] = ofCluster(await look({ url }));
  assertMatch(
    gone ?? "",
    /^failure API server: http:\S+ \(--master\) does not answer as it should: .* -> try it: curl -k/,
  );
  assertEquals(rest, []);
  await using server = new ListWatchServer();
  for (let count = 0; count < 50; count++) server.plan(() => true, { hang: true });
  const [silent, ...others] = ofCluster(await look(server, { limitMs: 1_000 }));
  assertMatch(silent ?? "", /^failure API server: .*it took longer than 1 s/);
  assertEquals(others, []);
});

Deno.test("Services of the API server are compared, and one that cannot be listed is a warning", async () => {
  await using server = new ListWatchServer();
  server.put(ownNode("n1"));
  const web = rawService("web");
  const ports = [{ name: "http", protocol: "TCP", port: 80, targetPort: 8080, nodePort: 30080 }];
  server.put({ ...web, spec: { ...Object(web["spec"]), type: "NodePort", ports } });
  const report = await look(server, { migrateTo: "iptables" });
  assertEquals(report.migration?.services.map(({ name }) => name), ["web"]);
  assertEquals(report.migration?.objectsFrom, server.url);
  server.forbidden.add("services");
  const refused = await look(server, { migrateTo: "iptables" });
  assertEquals(refused.migration, null);
  assert(
    ofCluster(refused).some((line) =>
      line.startsWith("warning move to mode iptables: could not be looked at: API server")
    ),
  );
});

Deno.test("rights to ask who clients are are missed only where that is configured", () => {
  const reviews = (delegatedAuthentication: boolean): string[] => {
    const config = defaultConfig();
    const serving = { ...config.kproxy.serving, delegatedAuthentication };
    return neededRights({ ...config, kproxy: { ...config.kproxy, serving } }, "n")
      .map(({ verb, group, resource }) => `${verb} ${resource}.${group}`)
      .filter((right) => right.includes("reviews"));
  };
  assertEquals(reviews(false), []);
  assertEquals(reviews(true), [
    "create tokenreviews.authentication.k8s.io",
    "create subjectaccessreviews.authorization.k8s.io",
  ]);
});
