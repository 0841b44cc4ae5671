/**
 * IPVS mode on a real kernel, from its first sync over what others left to its removal, inside of the user-mode Linux:
 * `tests/lab/uml.sh 'deno test -A tests/lab/ipvs_in_uml.ts'`.
 *
 * @module
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { readDevices } from "../../lib/kernel/ip_address.ts";
import { besideAudit, kproxy as runKproxy } from "../cli/kproxy.ts";
import { service, slice } from "../flows/objects.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { ipvsTimeouts } from "./ipvs_table.ts";
import { NODE_OBJECT } from "../support/node_lab.ts";
import { until } from "../support/until.ts";
import { IpvsLab, PATIENCE, WEB, webPods } from "./ipvs_lab.ts";
import { refusalSteps } from "./ipvs_refusal_steps.ts";

/** Of connections to an endpoint that leaves: many times what a start, or two changes, take until they are looked at. */
const DEADLINE_SECONDS = 30;
const DUAL = service("shop/dual", { clusterIP: "fd00:10:96::9", ports: ["http:80"] });
const DUAL_PODS = slice("shop/dual.1", ["http:8080"], ["fd00:10:244::91@node-a"]);

/** Virtual servers of others: of another range, by mark, on a port that is no node port, in a range left out. */
const FOREIGN = [
  "-A -t 172.16.0.1:80 -s wlc",
  "-a -t 172.16.0.1:80 -r 172.16.1.1:80 -g -w 5",
  "-A -t 192.0.2.10:9999 -s rr",
  "-A -t 10.96.5.5:80 -s rr",
  "-A -f 7 -s rr",
];
/** What earlier proxies left: stale servers, a weight of 0, another scheduler, a stale address, and an endpoint that is gone. */
const LEFT = [
  "-A -t 10.96.0.1:80 -s wlc",
  "-a -t 10.96.0.1:80 -r 10.244.0.11:8080 -m -w 0",
  "-a -t 10.96.0.1:80 -r 10.244.0.99:8080 -m -w 1",
  "-A -t 10.96.0.99:80 -s rr",
  "-A -u [fd00:10:96::99]:53 -s rr",
];

const WEB_SERVERS = (pods: readonly string[]): string[] =>
  ["10.96.0.1:80", "203.0.113.5:80", "192.0.2.10:30080", "192.168.7.10:30080", "10.244.255.1:30080"].flatMap((
    vip,
  ) => [
    `-A -t ${vip} -s rr`,
    ...pods.map((pod) => `-a -t ${vip} -r ${pod}:8080 -m -w 1`),
  ]);
const DUAL_SERVERS = [
  "-A -t [fd00:10:96::9]:80 -s rr",
  "-a -t [fd00:10:96::9]:80 -r [fd00:10:244::91]:8080 -m -w 1",
];

/** What a start does, and what it leaves alone. */
async function startSteps(t: Deno.TestContext, ipvsLab: IpvsLab): Promise<void> {
  const { node } = ipvsLab;
  await t.step(
    "a scheduler that the kernel does not have ends the start, names its module and leaves nothing",
    async () => {
      const failed = KproxyProcess.spawn({ netns: node, args: ipvsLab.args(["--ipvs-scheduler=nosuch"]) });
      const { code } = await failed.ended();
      assertEquals(code, 1);
      assertStringIncludes(failed.log, "the kernel module ip_vs_nosuch");
      assertEquals(await ipvsLab.table(), []);
      assertEquals((await readDevices(node.exec)).kinds.has("kube-ipvs0"), false);
    },
  );

  await t.step("the first sync takes over what earlier proxies left, and nothing of others", async () => {
    await node.run(["ipvsadm", "-R"], { stdin: [...FOREIGN, ...LEFT].join("\n") + "\n" });
    await node.run(["ip", "link", "add", "kube-ipvs0", "type", "dummy"]);
    for (const address of ["10.96.0.1/32", "10.96.0.99/32", "10.96.5.5/32", "fd00:10:96::99/128"]) {
      await node.run(["ip", "address", "add", address, "dev", "kube-ipvs0"]);
    }
    await ipvsLab.start("--ipvs-strict-arp");
    const expected = [...FOREIGN, ...WEB_SERVERS(["10.244.0.11", "10.244.0.12"]), ...DUAL_SERVERS].sort();
    // What is unwanted loses its weight at once, and goes when it has no connections.
    await until(
      async () => !(await ipvsLab.table()).some((line) => line.includes("10.244.0.99")),
      "the unwanted real server is gone",
      PATIENCE,
    );
    assertEquals(await ipvsLab.table(), expected);
    assertEquals(await ipvsLab.addresses(), ["10.96.0.1", "203.0.113.5", "fd00:10:96::9"]);
  });

  await t.step("sysctls and timeouts are as wanted, and those of an administrator stay", async () => {
    const names = [
      ...["conntrack", "expire_nodest_conn", "expire_quiescent_template", "conn_reuse_mode"].map((name) =>
        `net.ipv4.vs.${name}`
      ),
      ...["ip_forward", "conf.all.arp_ignore", "conf.all.arp_announce"].map((name) => `net.ipv4.${name}`),
    ];
    assertEquals((await node.run(["sysctl", "-n", ...names])).trim().split("\n"), [
      "1",
      "1",
      "1",
      "1",
      "1",
      "1",
      "2",
    ]);
    assertEquals((await ipvsTimeouts(ipvsLab.node.exec)).tcpFinSeconds, 1);
    const chosen = ipvsLab.kproxy.lines.find(({ name }) => name === "net.ipv4.vs.conn_reuse_mode");
    assertEquals(chosen?.msg, "Left sysctl as it is");
  });

  await t.step("a kill and a start change nothing", async () => {
    const before = await ipvsLab.everything();
    await ipvsLab.kproxy.stop("SIGKILL");
    await ipvsLab.start();
    assertEquals(await ipvsLab.everything(), before);
  });
}

/** What changes are followed by. */
async function changeSteps(t: Deno.TestContext, ipvsLab: IpvsLab): Promise<void> {
  const { lab } = ipvsLab;
  await t.step("a change starts only the programs that have something to do", async () => {
    const pods = ["10.244.0.11", "10.244.0.12", "10.244.0.13"];
    // Hairpin entries and servers.
    assertEquals(await ipvsLab.change("pods.json", [webPods(...pods)], "shop/web"), 2);
    const remote = slice("shop/web.2", ["http:8080"], ["10.244.1.21@node-b"]);
    assertEquals(await ipvsLab.change("remote.json", [remote], "shop/web"), 1);
    const none = slice("shop/web.2", ["http:8080"], []);
    assertEquals(await ipvsLab.change("remote.json", [none], "shop/web"), 1);
    await until(
      async () => !(await ipvsLab.table()).some((line) => line.includes("10.244.1.21")),
      "the remote real server is gone",
      PATIENCE,
    );
  });

  await t.step("what listens on the node is not reached through an address of a Service", async () => {
    const pod = await lab.host("10.244.0.5", "cni0");
    await lab.node.call("serve", { protocol: "tcp", ip: "0.0.0.0", port: 2222 });
    const ask = async (ip: string) =>
      (await pod.probe({ protocol: "tcp", timeoutMs: 30_000, to: { ip, port: 2222 } })).map(({ kind }) =>
        kind
      );
    assertEquals(await ask("10.244.255.1"), ["answer"]);
    assertEquals(await ask("10.96.0.1"), ["refused"]);
    assertEquals(await ask("203.0.113.5"), ["refused"]);
    await lab.node.call("unserve", 2222);
  });
}

/** What becomes of connections to endpoints that leave. */
async function leavingSteps(t: Deno.TestContext, ipvsLab: IpvsLab): Promise<void> {
  await t.step(
    "a long connection to an endpoint that leaves goes on, also through a kill and a start",
    async () => {
      await using _server = await ipvsLab.serving("10.244.0.14");
      await ipvsLab.change("pods.json", [webPods("10.244.0.14")], "shop/web");
      await until(
        async () => Object.keys(await ipvsLab.weights()).length === 1,
        "one real server is left",
        PATIENCE,
      );
      await using connection = await ipvsLab.connected();
      await ipvsLab.change("pods.json", [webPods("10.244.0.12")], "shop/web");
      assertEquals(await ipvsLab.weights(), { "10.244.0.14:8080": 0, "10.244.0.12:8080": 1 });
      await ipvsLab.kproxy.stop("SIGKILL");
      await ipvsLab.start(`--ipvs-termination-deadline=${DEADLINE_SECONDS}s`);
      assertEquals(await ipvsLab.weights(), { "10.244.0.14:8080": 0, "10.244.0.12:8080": 1 });
      await connection.answered(5);
      const { "10.244.0.14:8080": _, ...others } = await ipvsLab.weights();
      assertEquals(others, { "10.244.0.12:8080": 1 });
      await connection.close();
    },
  );

  await t.step("one that comes back keeps its connections, and at the deadline they are cut", async () => {
    await using _server = await ipvsLab.serving("10.244.0.11");
    await ipvsLab.change("pods.json", [webPods("10.244.0.11")], "shop/web");
    await until(
      async () => (await ipvsLab.weights())["10.244.0.12:8080"] !== 1,
      "others get no new connections",
      PATIENCE,
    );
    await using connection = await ipvsLab.connected();
    await ipvsLab.change("pods.json", [webPods("10.244.0.12")], "shop/web");
    assertEquals((await ipvsLab.weights())["10.244.0.11:8080"], 0);
    await ipvsLab.change("pods.json", [webPods("10.244.0.11", "10.244.0.12")], "shop/web");
    assertEquals((await ipvsLab.weights())["10.244.0.11:8080"], 1);
    await connection.answered(5);
    const removedAtMs = performance.now();
    await ipvsLab.change("pods.json", [webPods("10.244.0.12")], "shop/web");
    await connection.lost();
    assert(performance.now() - removedAtMs > DEADLINE_SECONDS * 1_000 - 100, "cut before its time was up");
    // By now the time of the first one is up, too; its connection was closed, which IPVS remembers for two minutes.
    assertEquals(await ipvsLab.weights(), { "10.244.0.12:8080": 1 });
  });
}

/** When an endpoint that leaves is given up before its deadline. */
async function givenUpSteps(t: Deno.TestContext, ipvsLab: IpvsLab): Promise<void> {
  await t.step("one whose connections have ended is deleted", async () => {
    await using _server = await ipvsLab.serving("10.244.0.15");
    await ipvsLab.start();
    await ipvsLab.change("pods.json", [webPods("10.244.0.15")], "shop/web");
    await using connection = await ipvsLab.connected();
    await ipvsLab.change("pods.json", [webPods("10.244.0.12")], "shop/web");
    assertEquals((await ipvsLab.weights())["10.244.0.15:8080"], 0);
    // A connection that ends by a reset is forgotten after ten seconds.
    await connection.close(true);
    await until(async () => !("10.244.0.15:8080" in await ipvsLab.weights()), "it is deleted", PATIENCE);
    assertEquals(await ipvsLab.weights(), { "10.244.0.12:8080": 1 });
  });

  await t.step("connections to an endpoint that leaves are cut where the Service asks for it", async () => {
    await using _server = await ipvsLab.serving("10.244.0.15");
    const annotations = { "kproxy.io/ipvs-graceful-termination": "false" };
    const hasty = { ...WEB, metadata: { namespace: "shop", name: "web", annotations } };
    await ipvsLab.change("web.json", [hasty], "shop/web");
    await ipvsLab.change("pods.json", [webPods("10.244.0.15")], "shop/web");
    assertEquals(await ipvsLab.weights(), { "10.244.0.15:8080": 1 });
    await using connection = await ipvsLab.connected();
    await ipvsLab.change("pods.json", [webPods("10.244.0.12")], "shop/web");
    assertEquals(await ipvsLab.weights(), { "10.244.0.12:8080": 1 });
    await connection.lost();
    await ipvsLab.change("web.json", [WEB], "shop/web");
  });
}

/** Services that are out of the ordinary. */
async function oddSteps(t: Deno.TestContext, ipvsLab: IpvsLab): Promise<void> {
  const { manifests } = ipvsLab;
  await t.step("an address of two Services stays until the second one goes", async () => {
    const other = (ingress: readonly { ip: string }[]) => [
      service("shop/other", { type: "LoadBalancer", clusterIP: "10.96.0.7", ingress, ports: ["alt:81"] }),
      slice("shop/other.1", ["alt:8081"], ["10.244.0.31@node-a"]),
    ];
    await ipvsLab.change("other.json", other([{ ip: "203.0.113.5" }]), "shop/other");
    assertEquals((await ipvsLab.table()).filter((line) => line.startsWith("-A -t 203.0.113.5")), [
      "-A -t 203.0.113.5:80 -s rr",
      "-A -t 203.0.113.5:81 -s rr",
    ]);
    await ipvsLab.change("other.json", other([]), "shop/other");
    assertEquals((await ipvsLab.table()).filter((line) => line.startsWith("-A -t 203.0.113.5")), [
      "-A -t 203.0.113.5:80 -s rr",
    ]);
    assert((await ipvsLab.addresses()).includes("203.0.113.5"));
  });

  await t.step(
    "a Service may have a scheduler of its own, and one that the kernel lacks is logged",
    async () => {
      const annotated = (scheduler: string) => [{
        ...service("shop/lc", { clusterIP: "10.96.0.8", ports: [":80"] }),
        metadata: { namespace: "shop", name: "lc", annotations: { "kproxy.io/ipvs-scheduler": scheduler } },
      }];
      await ipvsLab.change("lc.json", annotated("lc"), "shop/lc");
      assert((await ipvsLab.table()).includes("-A -t 10.96.0.8:80 -s lc"));
      await ipvsLab.change("lc.json", annotated("twos"), "shop/lc");
      assert((await ipvsLab.table()).includes("-A -t 10.96.0.8:80 -s rr"));
      assertStringIncludes(ipvsLab.kproxy.log, "twos, which this kernel does not have");
    },
  );

  await t.step(
    "load-balancer IPs that nothing can have keep no other Service from being served",
    async () => {
      const odd = service("shop/odd", {
        type: "LoadBalancer",
        clusterIP: "10.96.0.9",
        clusterIPs: ["10.96.0.9", "fd00:10:96::9:9"],
        ipFamilies: ["IPv4", "IPv6"],
        ingress: ["0.0.0.0", "127.0.0.1", "224.0.0.1", "::", "::1", "ff05::1", "203.0.113.9"].map((ip) => ({
          ip,
        })),
        ports: [":89"],
      });
      const lines = await ipvsLab.kproxy.change(() => manifests.replace("odd.json", [odd]), "shop/odd", 2);
      assertEquals(lines.filter(({ msg }) => msg.includes("failed")), []);
      assertEquals((await ipvsLab.table()).filter((line) => line.includes(":89 ")), [
        "-A -t 10.96.0.9:89 -s rr",
        "-A -t 203.0.113.9:89 -s rr",
        "-A -t [fd00:10:96::9:9]:89 -s rr",
      ]);
      assertStringIncludes(ipvsLab.kproxy.log, "load-balancer IP 0.0.0.0");
    },
  );
}

/** A bridge that comes after us, a virtual address that another program moves from node to node. */
async function nodeAddressStep(t: Deno.TestContext, ipvsLab: IpvsLab): Promise<void> {
  const { node } = ipvsLab;
  await t.step("what addresses the node has is looked at every sync period", async () => {
    const before = await ipvsLab.everything();
    const come = ["192.0.2.77", "203.0.113.5"];
    for (const ip of come) await node.run(["ip", "address", "add", `${ip}/32`, "dev", "eth0"]);
    await until(
      async () => (await ipvsLab.table()).includes("-A -t 192.0.2.77:30080 -s rr"),
      "node ports are served there",
      PATIENCE,
    );
    await until(
      async () => !(await ipvsLab.addresses()).includes("203.0.113.5"),
      "ours has only those that no other device has",
      PATIENCE,
    );
    for (const ip of come) await node.run(["ip", "address", "del", `${ip}/32`, "dev", "eth0"]);
    await until(async () => await ipvsLab.everything() === before, "all is as before", PATIENCE);
  });
}

/** How the mode goes for good. */
async function cleanupStep(t: Deno.TestContext, ipvsLab: IpvsLab): Promise<void> {
  const { node } = ipvsLab;
  await t.step("cleanup lists and removes what is ours", async () => {
    await ipvsLab.kproxy.stop("SIGTERM");
    const before = await ipvsLab.everything();
    const dry = await runKproxy(["cleanup", "--dry-run"], { netns: node.name });
    assertEquals(await ipvsLab.everything(), before);
    for (
      const line of [
        "ipvs: -D -t 10.96.0.1:80",
        "kube-ipvs0: link del kube-ipvs0",
        "ipset: destroy KUBE-6-LOOP-BACK",
      ]
    ) {
      assertStringIncludes(dry.out, `${line}\n`);
    }
    assertEquals(dry.out.includes("172.16.0.1"), false);
    const cleaned = await runKproxy(["cleanup"], { netns: node.name });
    assertEquals([cleaned.code, besideAudit(cleaned)], [0, ""]);
    assertStringIncludes(cleaned.out, "IPVS virtual servers\n");
    assertEquals(await ipvsLab.everything(), [...FOREIGN].sort().join("\n"));
  });
}

/** How it goes for another mode, and how a cleanup takes everything. */
async function endSteps(t: Deno.TestContext, ipvsLab: IpvsLab): Promise<void> {
  const { node } = ipvsLab;
  await t.step("another mode takes over and removes what is ours, and nothing of others", async () => {
    await ipvsLab.kproxy.stop("SIGTERM");
    await ipvsLab.start("--proxy-mode=iptables", "--iptables-min-sync-period=0s");
    await until(
      async () => (await ipvsLab.table()).join() === [...FOREIGN].sort().join(),
      "our servers are gone",
      PATIENCE,
    );
    await until(
      async () => !(await readDevices(node.exec)).kinds.has("kube-ipvs0"),
      "the device is gone",
      PATIENCE,
    );
    await until(async () => await node.run(["ipset", "list", "-name"]) === "", "the sets are gone", PATIENCE);
    assertEquals((await node.run(["iptables-save"])).includes("match-set"), false);
  });

  await t.step("a cleanup takes virtual servers of others only when asked", async () => {
    await ipvsLab.kproxy.stop("SIGTERM");
    const flushed = await runKproxy(["cleanup", "--flush-ipvs"], { netns: node.name });
    assertEquals(flushed.code, 0);
    assertStringIncludes(flushed.out, "Removed 4 IPVS virtual servers\n");
    assertEquals(await ipvsLab.table(), []);
  });
}

Deno.test("IPVS mode on a real kernel", async (t) => {
  await using ipvsLab = await IpvsLab.create();
  const { manifests } = ipvsLab;
  await manifests.replace("node.json", [NODE_OBJECT]);
  await manifests.replace("web.json", [WEB]);
  await manifests.replace("pods.json", [webPods("10.244.0.11", "10.244.0.12")]);
  await manifests.replace("dual.json", [DUAL, DUAL_PODS]);
  await startSteps(t, ipvsLab);
  await changeSteps(t, ipvsLab);
  await leavingSteps(t, ipvsLab);
  await givenUpSteps(t, ipvsLab);
  await oddSteps(t, ipvsLab);
  await nodeAddressStep(t, ipvsLab);
  await cleanupStep(t, ipvsLab);
  await refusalSteps(t, ipvsLab);
  await endSteps(t, ipvsLab);
});
