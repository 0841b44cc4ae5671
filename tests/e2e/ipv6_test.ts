/**
 * Nodes on which IPv6 comes first, or alone, and a family that comes and goes while kproxy runs: addresses of the node and of its Node
 * object, and the kernel's switch for IPv6. Clients of the other family do not notice.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { type ApiJson, service, slice } from "../flows/objects.ts";
import { httpGet } from "../support/http_get.ts";
import type { KproxyProcess } from "../support/kproxy_process.ts";
import { IPTABLES, type LabMode, NFTABLES } from "../support/lab_mode.ts";
import { WEB_NEEDS, WEB_PODS, WEB_TARGET_PORT, WebLab } from "../support/lab_web.ts";
import { NODE_ADDRESSES, NODE_OBJECT } from "../support/node_lab.ts";
import { e2eTest, program } from "../support/skip.ts";
import { eventually } from "../support/until.ts";
import { CLUSTER, NODE_PORT } from "../support/web_changes.ts";

const [NODE4, NODE6] = NODE_ADDRESSES.eth0;
const POD6 = "fd00:10:244::11";
const CLUSTER6 = { ip: "fd00:10:96::1", port: 80 };
const NODE_PORT6 = { ip: NODE6, port: 30080 };
const HEALTH_PORT = 30201;
const POLICY_IP6 = "fd00:10:96::2";

/** `shop/web` with these families, the first one first, and `shop/local`, whose health is asked for at a port of its own. */
function services(families: readonly ("IPv6" | "IPv4")[]): readonly ApiJson[] {
  const clusterIPs = families.map((family) => family === "IPv6" ? CLUSTER6.ip : CLUSTER.ip);
  return [
    service("shop/web", {
      type: "NodePort",
      clusterIP: clusterIPs[0]!,
      clusterIPs,
      ipFamilies: families,
      ports: ["http:80:30080"],
    }),
    slice("shop/web.6", [`http:${WEB_TARGET_PORT}`], [`${POD6}@node-a`]),
    ...(families.includes("IPv4")
      ? [slice("shop/web.4", [`http:${WEB_TARGET_PORT}`], [`${WEB_PODS[0]}@node-a`])]
      : []),
    service("shop/local", {
      type: "LoadBalancer",
      clusterIP: POLICY_IP6,
      clusterIPs: [POLICY_IP6],
      ipFamilies: ["IPv6"],
      ports: ["http:80:30081"],
      externalTrafficPolicy: "Local",
      healthCheckNodePort: HEALTH_PORT,
    }),
    slice("shop/local.6", [`http:${WEB_TARGET_PORT}`], [`${POD6}@node-a`]),
  ];
}

function nodeWith(...addresses: readonly string[]): ApiJson {
  const podCIDRs = addresses.map((address) => address === NODE6 ? "fd00:10:244::/64" : "10.244.0.0/24");
  return {
    ...NODE_OBJECT,
    spec: { podCIDRs },
    status: { addresses: addresses.map((address) => ({ type: "InternalIP", address })) },
  };
}

/** The lab's node without IPv4 but for its loopback. */
async function ipv6Only(mode: LabMode): Promise<WebLab> {
  const web = await WebLab.create(mode);
  const { lab } = web;
  await (await lab.host(POD6, "cni0")).call("serve", { protocol: "tcp", ip: POD6, port: WEB_TARGET_PORT });
  for (const device of Object.keys(NODE_ADDRESSES)) {
    await lab.node.netns.run(["ip", "-4", "addr", "flush", "dev", device]);
  }
  await web.manifests.clear();
  await web.manifests.replace("node.json", [nodeWith(NODE6)]);
  await web.manifests.replace("web.json", services(["IPv6"]));
  return web;
}

const HEALTHZ = "http://[::1]:10256/healthz";
const POLICY_HEALTH = `http://[${NODE6}]:${HEALTH_PORT}/`;

/** The status of a server on the node; 0 if nothing answers. */
async function status({ lab }: WebLab, url: string): Promise<number> {
  return (await httpGet(lab.node.netns, url)).status;
}

/** Who answers at an address: a server's address, or what else became of it. */
async function answerAt(
  { client }: WebLab,
  to: { readonly ip: string; readonly port: number },
): Promise<string> {
  const [result] = await client.probe({ protocol: "tcp", to, timeoutMs: 2_000 });
  return result?.kind === "answer" ? result.answer.local.ip : result!.kind;
}

/** Fields of the configuration that may be wrong, as the log has it. */
function doubts({ lines }: KproxyProcess): unknown[] {
  const doubted = lines.filter(({ msg }) => msg === "Configuration may be incomplete or incorrect");
  return doubted.map(({ field }) => field).filter((field) => field !== "nodePortAddresses");
}

for (const [name, mode] of [["iptables", IPTABLES], ["nftables", NFTABLES]] as const) {
  const needs = [...WEB_NEEDS, ...mode.needs, program("curl")];
  e2eTest(
    `a node with IPv6 alone, then first, is served, ${name}`,
    needs,
    async (t) => {
      await using web = await ipv6Only(mode);
      const { lab, manifests } = web;
      const { netns } = lab.node;
      const pod6 = await lab.host("fd00:10:244::5", "cni0");
      const client6 = await lab.host("fd00:51::9");
      await using kproxy = await web.start([
        "--detect-local-mode=NodeCIDR",
        "--cluster-cidr=fd00:10:244::/56",
      ]);
      const loops = [await web.loop(pod6, CLUSTER6), await web.loop(client6, NODE_PORT6)];

      await t.step("IPv6 alone: cluster IP, node port and health, and no word about IPv4", async () => {
        await loops[1]!.answeredFor(500);
        for (const url of [HEALTHZ, POLICY_HEALTH]) {
          await eventually(async () => assertEquals(await status(web, url), 200));
        }
        assertEquals(doubts(kproxy), []);
      });
      await t.step("the node gets a second address, of IPv4, and serves there, too", async () => {
        await netns.run(["ip", "addr", "add", `${NODE4}/24`, "dev", "eth0"]);
        await netns.run(["ip", "addr", "add", `${NODE_ADDRESSES.cni0[0]}/32`, "dev", "cni0"]);
        await netns.run(["ip", "route", "replace", "default", "via", "192.0.2.1"]);
        await lab.node.netns.run(["ip", "route", "replace", WEB_PODS[0], "dev", "cni0"]);
        await manifests.replace("node.json", [nodeWith(NODE6, NODE4)]);
        await kproxy.change(() => manifests.replace("web.json", services(["IPv6", "IPv4"])), "shop/web");
        await eventually(async () => assertEquals(await answerAt(web, NODE_PORT), WEB_PODS[0]));
      });
      await t.step("IPv4 leaves again", async () => {
        await manifests.replace("node.json", [nodeWith(NODE6)]);
        await kproxy.change(() => manifests.replace("web.json", services(["IPv6"])), "shop/web");
        await eventually(async () => assert(await answerAt(web, NODE_PORT) !== WEB_PODS[0]));
        await netns.run(["ip", "addr", "del", `${NODE4}/24`, "dev", "eth0"]);
      });
      for (const loop of loops) await loop.stopUnbroken();

      assertEquals((await kproxy.stop()).code, 0);
    },
  );

  e2eTest(
    `IPv6 switched off and on again while kproxy runs: IPv4 is served all the time, IPv6 as soon as it is back, ${name}`,
    needs,
    async (t) => {
      await using web = await WebLab.create(mode);
      const { lab, manifests } = web;
      await (await lab.host(POD6, "cni0")).call("serve", {
        protocol: "tcp",
        ip: POD6,
        port: WEB_TARGET_PORT,
      });
      const client6 = await lab.host("fd00:51::9");
      const answers6 = async (): Promise<void> => {
        const [result] = await client6.probe({ protocol: "tcp", to: NODE_PORT6, timeoutMs: 2_000 });
        assertEquals(result?.kind === "answer" ? result.answer.local.ip : result?.kind, POD6);
      };
      const ipv6 = (isOff: boolean): Promise<string> =>
        lab.node.netns.run(["sysctl", "-qw", `net.ipv6.conf.all.disable_ipv6=${isOff ? 1 : 0}`]);
      await manifests.clear();
      await manifests.replace("node.json", [NODE_OBJECT]);
      await manifests.replace("web.json", services(["IPv4", "IPv6"]));
      await using kproxy = await web.start(["--iptables-sync-period=1s"]);
      await eventually(answers6);
      const loops = [await web.loop(web.pod, CLUSTER), await web.loop(web.client, NODE_PORT)];
      const rules = await web.rules();

      await t.step("off: Services of both families come and go", async () => {
        await ipv6(true);
        const more = service("shop/more", { clusterIPs: ["10.96.0.9", "fd00:10:96::9"], ports: ["http:80"] });
        await kproxy.change(() => manifests.replace("more.json", [more]), "shop/more", 2);
        await kproxy.change(() => manifests.remove("more.json"), "shop/more", 2);
        await loops[0]!.answeredFor(500);
      });
      await t.step("on again: the same rules as before, and they are served", async () => {
        await ipv6(false);
        await lab.restoreIpv6();
        await eventually(answers6);
        // Chains that are no longer used go a second later.
        await eventually(async () => assertEquals(await web.rules(), rules));
        await eventually(async () => assertEquals(await status(web, HEALTHZ), 200));
      });
      for (const loop of loops) await loop.stopUnbroken();
      assert(!/"Sync failed/.test(kproxy.log), kproxy.log);
      assertEquals((await kproxy.stop()).code, 0);
    },
  );
}
