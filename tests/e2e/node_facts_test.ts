/**
 * What the cluster says of the node while `kproxy run` serves, from kapi: no Node, a late one, addresses, taints, a
 * deletion; and what kproxy says of itself in Events.
 *
 * @module
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import type { ObjectJson } from "../../lib/source/decode/api_json.ts";
import { runOk, systemExec } from "../../lib/kernel/exec.ts";
import { type ApiJson, service, slice } from "../flows/objects.ts";
import { httpGet } from "../support/http_get.ts";
import { KAPI, Kapi, KAPI_TOKEN } from "../support/kapi.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { LabGateway } from "../support/lab_gateway.ts";
import type { RawApiObject } from "../support/list_watch_server.ts";
import { type Netns, withNetns } from "../support/netns.ts";
import { raw } from "../support/raw_objects.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";
import { eventually } from "../support/until.ts";
import { tempFolder } from "../support/temp_files.ts";

const NEEDS = [
  ROOT_NAMESPACES,
  ...["ip", "sysctl", "conntrack", "iptables", "ip6tables", "curl"].map(program),
  ...KAPI,
];
const HEALTH_PORT = 30201;
const OBJECTS: readonly ApiJson[] = [
  service("default/web", {
    type: "LoadBalancer",
    clusterIP: "10.96.0.11",
    ports: ["http:80:30080"],
    externalTrafficPolicy: "Local",
    healthCheckNodePort: HEALTH_PORT,
  }),
  slice("default/web.1", ["http:8080"], ["10.244.0.11@node-a"]),
];
const FIRST_SYNC = "First sync done, Services are served";
const TAINT = { key: "ToBeDeletedByClusterAutoscaler", effect: "NoSchedule", value: "1" };

function node(addresses: readonly string[] = [], podCIDRs: readonly string[] = []): RawApiObject {
  return {
    apiVersion: "v1",
    kind: "Node",
    metadata: { name: "node-a", labels: { "topology.kubernetes.io/zone": "z1" } },
    spec: podCIDRs[0] === undefined ? {} : { podCIDR: podCIDRs[0], podCIDRs },
    status: { addresses: addresses.map((address) => ({ type: "InternalIP", address })) },
  } satisfies ObjectJson<"Node">;
}

/** A node with a kproxy that follows an API server. */
class Agent {
  constructor(readonly netns: Netns, readonly kapi: Kapi) {}

  start(args: readonly string[], isReady = true): Promise<KproxyProcess> {
    const options = {
      netns: this.netns,
      args: ["--hostname-override=node-a", `--kubeconfig=${this.kapi.kubeconfig}`, ...args],
    };
    return isReady ? KproxyProcess.start(options) : Promise.resolve(KproxyProcess.spawn(options));
  }

  /** Statuses of `/healthz`, `/livez`, `/readyz` and the health check node port; 0 if nothing answers. */
  async statuses(): Promise<number[]> {
    const urls = [...["healthz", "livez", "readyz"].map((path) => `10256/${path}`), `${HEALTH_PORT}/`];
    const answers = urls.map((url) => httpGet(this.netns, `http://127.0.0.1:${url}`));
    return (await Promise.all(answers)).map(({ status }) => status);
  }

  async until(wanted: readonly number[]): Promise<void> {
    await eventually(async () => assertEquals(await this.statuses(), wanted), { everyMs: 50 });
  }

  /** Without comments, which hold the time of day. */
  async natRules(): Promise<string> {
    return (await this.netns.run(["iptables-save", "-t", "nat"])).replace(/^#.*\n/gm, "");
  }
}

async function withAgent(kapi: Kapi, work: (agent: Agent) => Promise<void>): Promise<void> {
  await withNetns(async (netns) => {
    for (const address of ["192.0.2.10", "192.0.2.20"]) {
      await netns.run(["ip", "addr", "add", `${address}/32`, "dev", "lo"]);
    }
    using _gateway = await LabGateway.open(netns, kapi.port);
    for (const object of OBJECTS) await kapi.put(raw(object));
    await work(new Agent(netns, kapi));
    await kapi.clear();
  });
}

async function nodeComesAndGoes(t: Deno.TestContext, kapi: Kapi): Promise<void> {
  await withAgent(kapi, async (agent) => {
    await using kproxy = await agent.start(["--iptables-min-sync-period=0s"]);

    await t.step("no Node: said, served, healthy", async () => {
      await agent.until([200, 200, 200, 200]);
      assertMatch(kproxy.log, /There is no Node of this name/);
    });
    await t.step("a Node that comes late is taken over", async () => {
      await kapi.put(node(["192.0.2.10"], ["10.244.7.0/24"]));
      await kproxy.untilMessage("The own Node has addresses now");
      await agent.until([200, 200, 200, 200]);
    });
    await t.step("without clusterCIDR the likely one is said, by the Node's pod CIDR", async () => {
      await kproxy.until(
        "it to be said",
        (lines) => lines.some(({ likelyClusterCIDR }) => likelyClusterCIDR === "10.244.0.0/16"),
      );
    });
    await t.step(
      "the autoscaler's taint sends load balancers away, the proxy is alive and serves",
      async () => {
        await kapi.patch(node(), { spec: { taints: [TAINT] } });
        await agent.until([503, 200, 200, 200]);
        await kapi.patch(node(), { spec: { taints: null } });
        await agent.until([200, 200, 200, 200]);
      },
    );
    await t.step("a zone that changes is taken over without an end of the process", async () => {
      const from = kproxy.lines.length;
      await kapi.patch(node(), { metadata: { labels: { "topology.kubernetes.io/zone": "z2" } } });
      await nodeChangeSynced(kproxy, from);
    });
    await t.step("a Node that is deleted is no longer eligible, its Services are served", async () => {
      const before = await agent.natRules();
      await kapi.remove(node());
      await kproxy.untilMessage("Own Node is gone, its last known facts stay in force");
      await agent.until([503, 200, 200, 200]);
      assertEquals(await agent.natRules(), before);
    });
    assertEquals((await kproxy.stop()).code, 0);
  });
}

/** Resolves when IPv4 has had its first sync, which may be after IPv6's. */
async function firstSynced(kproxy: KproxyProcess): Promise<void> {
  await kproxy.until(
    "the first sync of IPv4",
    (lines) => lines.some(({ msg, family }) => msg === FIRST_SYNC && family === "IPv4"),
  );
}

/** Resolves when IPv4 has synced what a change of the Node, told after line `from`, changed. */
async function nodeChangeSynced(kproxy: KproxyProcess, from: number): Promise<void> {
  await kproxy.until("the sync of a changed Node", (lines) => {
    const told = lines.findIndex(({ msg, families }) =>
      msg === "Node changed what the rules depend on" && String(families).includes("IPv4")
    );
    return told >= 0 &&
      lines.slice(told).some(({ msg, family }) => msg === "Synced rules" && family === "IPv4");
  }, from);
}

async function primaryAddressMoves(_t: Deno.TestContext, kapi: Kapi): Promise<void> {
  await withAgent(kapi, async (agent) => {
    const args = ["--nodeport-addresses=primary", "--iptables-min-sync-period=0s"];
    await using kproxy = await agent.start(args, false);
    await kproxy.untilMessage("There is no Node of this name, so nothing is known of its addresses and zone");
    await new Promise((resolve) => setTimeout(resolve, 500));
    assert(!(await agent.natRules()).includes("KUBE-NODEPORTS"), "node ports would be open on every address");
    await kapi.put(node(["192.0.2.10", "fd00::10"]));
    await firstSynced(kproxy);
    const jump = (address: string): RegExp => new RegExp(`-d ${address}/32 .*-j KUBE-NODEPORTS`);
    assertMatch(await agent.natRules(), jump("192.0.2.10"));
    const from = kproxy.lines.length;
    await kapi.put(node(["192.0.2.20", "fd00::10"]));
    await nodeChangeSynced(kproxy, from);
    const rules = await agent.natRules();
    assertMatch(rules, jump("192.0.2.20"));
    assert(!jump("192.0.2.10").test(rules), rules);
  });
}

async function podCidrsChange(_t: Deno.TestContext, kapi: Kapi): Promise<void> {
  await withAgent(kapi, async (agent) => {
    await kapi.put(node(["192.0.2.10"]));
    const args = ["--detect-local-mode=NodeCIDR", "--iptables-min-sync-period=0s"];
    await using kproxy = await agent.start(args, false);
    await kproxy.untilMessage("Watching");
    await new Promise((resolve) => setTimeout(resolve, 300));
    assert(!(await agent.natRules()).includes("KUBE-SVC-"), "rules without knowing what is local");
    await kapi.patch(node(), { spec: { podCIDR: "10.244.7.0/24", podCIDRs: ["10.244.7.0/24"] } });
    await firstSynced(kproxy);
    assertMatch(await agent.natRules(), /! -s 10\.244\.7\.0\/24 /);
    // An API server lets clients change them only by a new Node.
    const from = kproxy.lines.length;
    await kapi.remove(node());
    await kapi.put(node(["192.0.2.10"], ["10.244.8.0/24"]));
    await nodeChangeSynced(kproxy, from);
    assertMatch(await agent.natRules(), /! -s 10\.244\.8\.0\/24 /);
    assertEquals((await kproxy.stop()).code, 0);
  });
}

async function podCidrsOfTheOtherFamily(_t: Deno.TestContext, kapi: Kapi): Promise<void> {
  await withAgent(kapi, async (agent) => {
    await kapi.put(node(["192.0.2.10"], ["fd00:244:7::/64"]));
    await using kproxy = await agent.start(["--detect-local-mode=NodeCIDR"], false);
    assertEquals((await kproxy.ended()).code, 1, kproxy.log);
    assertMatch(
      kproxy.lines.at(-1)?.msg ?? "",
      /^Error: kube-proxy configuration is incorrect: cluster is IPv4-primary but node\.spec\.podCIDRs contains only IPv6 addresses/,
    );
    assert(!(await agent.natRules()).includes("KUBE-SVC-"), "rules without knowing what is local");
  });
}

/** Reasons of the Events that the API server has, sorted. */
async function reasonsOf({ kapi }: Agent): Promise<string[]> {
  const curl = [
    "curl",
    "-s",
    "--noproxy",
    "*",
    "--cacert",
    kapi.ca,
    "-H",
    `authorization: Bearer ${KAPI_TOKEN}`,
  ];
  const text = await runOk(systemExec, [...curl, `${kapi.url}/apis/events.k8s.io/v1/events`]);
  const { items } = JSON.parse(text) as { readonly items: readonly { readonly reason: string }[] };
  return items.map(({ reason }) => reason).sort();
}

async function eventsArrive(_t: Deno.TestContext, kapi: Kapi): Promise<void> {
  await withAgent(kapi, async (agent) => {
    const { netns } = agent;
    await using temporary = await tempFolder();
    const folder = temporary.path;
    const write = (more: Readonly<Record<string, unknown>>): Promise<void> =>
      Deno.writeTextFile(
        `${folder}/config.yaml`,
        JSON.stringify({
          apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
          kind: "KubeProxyConfiguration",
          clientConnection: { kubeconfig: agent.kapi.kubeconfig },
          // No namespace but the machine's own may set the size of the table.
          conntrack: { min: 3_000_000, maxPerCore: 1 },
          healthzBindAddress: `0.0.0.0:${HEALTH_PORT}`,
          ...more,
        }),
      );
    await write({});
    await using kproxy = await KproxyProcess.start({
      netns,
      args: ["--hostname-override=node-a", `--config=${folder}/config.yaml`],
    });
    const from = kproxy.lines.length;
    await write({ mode: "bogus" });
    await kproxy.untilMessage("Changed configuration refused, the former one stays in force", from);
    assertEquals((await kproxy.stop()).code, 0);
    assertEquals(await reasonsOf(agent), [
      "ConfigRefused",
      "FailedToStartServiceHealthcheck",
      "Starting",
      "readOnlySysFS",
    ]);
  });
}

const PARTS: readonly (readonly [name: string, run: (t: Deno.TestContext, kapi: Kapi) => Promise<void>])[] = [
  // First, because a server keeps what it is told.
  ["what an operator must act on is an Event, also when it is the last that kproxy says", eventsArrive],
  ["without a Node it serves and is healthy; one that comes, leaves or is deleted counts", nodeComesAndGoes],
  ["node ports on the primary address open when the Node has one, and move with it", primaryAddressMoves],
  ["in mode NodeCIDR rules wait for pod CIDRs, and follow other ones", podCidrsChange],
  ["in mode NodeCIDR pod CIDRs of the other family alone end the start", podCidrsOfTheOtherFamily],
];

e2eTest("kproxy run and the cluster's word on its node, by kapi", NEEDS, async (t) => {
  await using kapi = await Kapi.start();
  for (const [name, run] of PARTS) await t.step(name, (step) => run(step, kapi));
});
