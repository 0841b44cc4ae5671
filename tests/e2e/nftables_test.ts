/**
 * kproxy in nftables mode as a process: a Service that the kernel refuses or a table that another process owns stops no other
 * Service.
 *
 * @module
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { type ApiJson, service, slice } from "../flows/objects.ts";
import { ConnectLoop } from "../support/connect_loop.ts";
import { httpGet, metricOf } from "../support/http_get.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { nftTableNames } from "../support/lab_mode.ts";
import {
  WEB_CLUSTER_IP,
  WEB_NEEDS,
  WEB_PODS,
  WEB_PORT,
  WEB_TARGET_PORT,
  WebLab,
  webSlice,
} from "../support/lab_web.ts";
import type { Netns } from "../support/netns.ts";
import { withNft } from "../support/nft_stub.ts";
import { e2eTest, program } from "../support/skip.ts";
import { until } from "../support/until.ts";

const NEEDS = [...WEB_NEEDS, program("nft"), program("curl")];
const ARGS = ["--proxy-mode=nftables", "--iptables-sync-period=1s"];
const CLUSTER = { ip: WEB_CLUSTER_IP, port: WEB_PORT };
const FIRST_SYNC = "First sync done, Services are served";

e2eTest(
  "a Service that the kernel refuses is quarantined, and everything else goes in",
  NEEDS,
  async () => {
    await using web = await WebLab.create();
    const { netns } = web.lab.node;
    const BAD = "10.96.6.6";
    const bad = (pods: readonly string[]): ApiJson[] => [
      service("shop/bad", { clusterIP: BAD, ports: [`http:${WEB_PORT}`] }),
      slice("shop/bad.1", [`http:${WEB_TARGET_PORT}`], pods.map((ip) => `${ip}@node-a`)),
    ];
    // The real nft then refuses a verdict that leads nowhere.
    const script = `if [ -e $D/bad ]; then
  sed -i '/^add .*${BAD}/s/goto [a-z0-9-]*/goto nowhere/' $D/input.$$
fi`;
    const metric = () => metricOf(netns, 'kproxy_quarantined_services{ip_family="IPv4"}');
    await withNft(script, async (bin) => {
      await Deno.writeTextFile(`${bin}/bad`, "");
      await web.manifests.replace("bad.json", bad([WEB_PODS[0]]));
      await using kproxy = await KproxyProcess.start({ ...web.options(ARGS), path: bin });
      const loop = await ConnectLoop.start(web.pod, CLUSTER);
      await loop.answered(50);
      assertEquals(await metric(), 1);
      const events = kproxy.lines.filter((line) => line["reason"] === "ServiceQuarantined");
      assertEquals(events.map(({ regarding }) => regarding), ["Service shop/bad"]);
      assertMatch(
        String(events[0]?.["note"]),
        /No such file or directory: add element ip kproxy service-ips/,
      );
      // The others go on following their endpoints.
      await kproxy.change(() => web.manifests.replace("endpoints.json", [webSlice(WEB_PODS)]), "shop/web");
      // And it comes in with its next change.
      await Deno.remove(`${bin}/bad`);
      await kproxy.change(() => web.manifests.replace("bad.json", bad([WEB_PODS[1]])), "shop/bad");
      await kproxy.untilMessage("Service is no longer quarantined");
      assertEquals(await metric(), 0);
      const released = await ConnectLoop.start(web.client, { ip: "192.0.2.10", port: 30080 });
      await released.answered(20);
      await released.stopUnbroken();
      // From then on a change that is refused leaves what was there.
      await Deno.writeTextFile(`${bin}/bad`, "");
      await web.manifests.replace("bad.json", bad([WEB_PODS[0], WEB_PODS[1]]));
      await kproxy.until(
        "the quarantine",
        (lines) => lines.filter((line) => line["reason"] === "ServiceQuarantined").length === 2,
      );
      const list = await netns.run(["nft", "list", "map", "ip", "kproxy", "endpoints-tcp"]);
      assert(list.includes(`${BAD} . 80 . 0 : ${WEB_PODS[1]} . ${WEB_TARGET_PORT}`), list);
      assert(!list.includes(`${BAD} . 80 . 1`), list);
      assertEquals(await metric(), 1);
      await loop.stopUnbroken();
    });
  },
);

/** Claims table `ip kproxy` for a process that holds it until it is disposed of. */
async function ownTable(netns: Netns): Promise<AsyncDisposable> {
  const owner = new Deno.Command("ip", {
    args: ["netns", "exec", netns.name, "nft", "-i"],
    stdin: "piped",
    stdout: "null",
    stderr: "null",
  }).spawn();
  const writer = owner.stdin.getWriter();
  await writer.write(new TextEncoder().encode("create table ip kproxy { flags owner; }\n"));
  await until(async () => (await nftTableNames(netns)).includes("table ip kproxy"), "its table");
  let hasEnded = false;
  return {
    async [Symbol.asyncDispose]() {
      if (hasEnded) return;
      hasEnded = true;
      owner.kill("SIGKILL");
      await owner.status;
      // It is not read any more.
      await writer.abort();
    },
  };
}

e2eTest(
  "a table that another process owns is reported while Services are served beside it",
  NEEDS,
  async () => {
    await using web = await WebLab.create();
    const { netns } = web.lab.node;
    const readyz = async () => (await httpGet(netns, "http://127.0.0.1:10256/readyz")).body;
    const problem = "IPv4: table ip kproxy belongs to another process (nft) (flags owner)";
    await using owner = await ownTable(netns);
    await using kproxy = await KproxyProcess.start(web.options(ARGS), 1);
    const isTold = ({ msg, err }: { msg: string; err?: unknown }): boolean =>
      msg.startsWith("Sync failed") && String(err).includes(problem);
    await kproxy.until("the problem", (lines) => lines.some(isTold));
    const loop = await ConnectLoop.start(web.pod, CLUSTER);
    await loop.answered(20);
    assertStringIncludes(await readyz(), problem);
    const said = kproxy.lines.length;
    await web.manifests.replace("endpoints.json", [webSlice([WEB_PODS[2]])]);
    await kproxy.until("the change", (lines) => lines.some(isTold), said);
    const beside = await netns.run(["nft", "list", "table", "ip", "kproxy-next"]);
    assertEquals([beside.includes(WEB_PODS[1]), beside.includes(WEB_PODS[2])], [false, true]);

    const from = kproxy.lines.length;
    await owner[Symbol.asyncDispose]();
    await kproxy.until(
      "IPv4",
      (lines) => lines.some(({ msg, family }) => msg === FIRST_SYNC && family === "IPv4"),
      from,
    );
    assertStringIncludes(await readyz(), '"ready":true');
    assertEquals(await nftTableNames(netns), "table ip kproxy\ntable ip6 kproxy");
    await loop.answered(20);
    await loop.stopUnbroken();
    assertEquals((await kproxy.stop()).code, 0);
  },
);

e2eTest("a tenant takes no cluster IP, before and after a crash, and that is logged", NEEDS, async () => {
  await using web = await WebLab.create();
  const tenant = service("a/tenant", {
    createdAt: "2020-01-01T00:00:00Z",
    clusterIP: "10.96.6.6",
    externalIPs: [CLUSTER.ip, "169.254.169.254"],
    ports: [`http:${WEB_PORT}`],
  });
  const PROBLEMS = [
    `external IP ${CLUSTER.ip} port ${WEB_PORT}/TCP: it belongs to shop/web`,
    "external IP 169.254.169.254: it is a link-local address",
  ];
  const told = (kproxy: KproxyProcess): readonly unknown[] => [
    kproxy.lines.filter(({ msg }) => msg === "Part of a Service is not served")
      .map(({ destination, reason }) => `${destination}: ${reason}`).sort(),
    kproxy.lines.filter(({ reason }) => reason === "DestinationRefused")
      .map(({ regarding }) => regarding),
  ];
  const onEach = [PROBLEMS, ["Service a/tenant", "Service a/tenant"]];
  const loop = await (async () => {
    await using kproxy = await web.start(ARGS);
    const loop = await ConnectLoop.start(web.pod, CLUSTER);
    await kproxy.change(() => web.manifests.replace("tenant.json", [tenant]), "a/tenant");
    await loop.answered(50);
    assertEquals(told(kproxy), onEach);
    await kproxy.stop("SIGKILL");
    return loop;
  })();
  await using kproxy = await web.start(ARGS);
  await kproxy.change(() => web.manifests.replace("endpoints.json", [webSlice(WEB_PODS)]), "shop/web");
  await loop.answered(50);
  assertEquals(told(kproxy), onEach);
  await loop.stopUnbroken();
  // With the winner gone, the address is the tenant's, which has no endpoint.
  await kproxy.change(() => web.manifests.replace("web.json", []), "a/tenant");
  await kproxy.untilMessage("Part of a Service is no longer refused");
  const [refused] = await web.pod.probe({ protocol: "tcp", source: "10.244.0.5", to: CLUSTER });
  assertEquals(refused?.kind, "refused");
});
