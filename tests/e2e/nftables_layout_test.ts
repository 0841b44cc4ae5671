/**
 * kproxy in nftables mode on a node with a table of another layout, as a former release left it: while it is replaced, and where a
 * crash comes between, clients connect and keep their endpoints.
 *
 * @module
 */
import { assertEquals, assertMatch } from "@std/assert";
import { service } from "../flows/objects.ts";
import { ConnectLoop } from "../support/connect_loop.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { NFTABLES, nftTableNames } from "../support/lab_mode.ts";
import { WEB_CLUSTER_IP, WEB_NEEDS, WEB_PODS, WEB_PORT, WebLab } from "../support/lab_web.ts";
import type { Netns } from "../support/netns.ts";
import { withNft } from "../support/nft_stub.ts";
import { e2eTest, program } from "../support/skip.ts";

const NEEDS = [...WEB_NEEDS, program("nft")];
const ARGS = ["--proxy-mode=nftables"];
const CLUSTER = { ip: WEB_CLUSTER_IP, port: WEB_PORT };

/** Puts a table of the layout of an older release in the place of the one that is there, with rules of the same effect. */
async function makeOlder(netns: Netns): Promise<void> {
  for (const family of ["ip", "ip6"]) {
    const text = await netns.run(["nft", "list", "table", family, "kproxy"]);
    const older = text.replace(/kproxy layout \d+/, "kproxy layout 0").replaceAll(/\blayout-\d+/g, "layout-0")
      .replaceAll("service-ips", "older-ips").replaceAll("endpoints-tcp", "older-endpoints")
      .replaceAll(/\btcp-(\d)/g, "older-$1");
    await netns.run(["nft", "-f", "-"], { stdin: `delete table ${family} kproxy\n${older}` });
  }
}

/** For {@linkcode withNft}: kills kproxy before a transaction, the first being number 1. */
function killBefore(transaction: number): string {
  return `case "$*" in "-f -")
  echo >> $D/count
  [ $(wc -l < $D/count) -ge ${transaction} ] && { kill -9 $PPID; exit 1; };;
esac`;
}

e2eTest(
  "a table of another layout is replaced while clients connect, also when a crash comes between",
  NEEDS,
  async () => {
    await using web = await WebLab.create();
    const { netns } = web.lab.node;
    let wanted = "";
    {
      await using kproxy = await web.start(ARGS);
      await kproxy.stop();
      wanted = await NFTABLES.rules(netns);
    }
    const loop = await ConnectLoop.start(web.pod, CLUSTER);
    await loop.answered(20);
    const upgrade = async (path?: string): Promise<void> => {
      await makeOlder(netns);
      assertMatch(await NFTABLES.rules(netns), /older-ips/);
      await loop.answered(20);
      if (path !== undefined) {
        await using kproxy = KproxyProcess.spawn({ ...web.options(ARGS), path });
        assertEquals((await kproxy.ended()).code, 137, kproxy.log);
        await loop.answered(20);
      }
      await using kproxy = await web.start(ARGS);
      assertEquals(await NFTABLES.rules(netns), wanted);
      assertEquals(await nftTableNames(netns), "table ip kproxy\ntable ip6 kproxy");
      await loop.answered(20);
      await kproxy.stop();
    };
    await upgrade();
    // Killed before one of the transactions: with a half built table, with two that serve, without the old one, and so on.
    for (const kill of [3, 6, 9, 10]) {
      await withNft(killBefore(kill), upgrade);
    }
    await loop.stopUnbroken();
  },
);

e2eTest("clients keep their endpoints when a layout is replaced, also after a crash", NEEDS, async () => {
  await using web = await WebLab.create();
  const { netns } = web.lab.node;
  await web.manifests.replace("web.json", [
    service("shop/web", {
      clusterIP: CLUSTER.ip,
      sessionAffinity: "ClientIP",
      ports: [`http:${WEB_PORT}`],
    }),
  ]);
  // That all choose the same of two endpoints again by chance happens once in a million times.
  const sources = Array.from({ length: 20 }, (_, index) => `10.244.0.${100 + index}`);
  await web.lab.lend(web.pod, sources, "cni0");
  const servers = async (): Promise<readonly string[]> => {
    const answers = sources.map(async (source) => {
      const [result] = await web.pod.probe({ protocol: "tcp", source, to: CLUSTER });
      return result?.kind === "answer" ? result.answer.server : JSON.stringify(result);
    });
    return await Promise.all(answers);
  };
  let wanted: readonly string[] = [];
  {
    await using kproxy = await web.start(ARGS);
    wanted = await servers();
    assertEquals([...new Set(wanted)].sort(), WEB_PODS.slice(0, 2));
    await kproxy.stop();
  }
  // 8: somewhere in the middle, as above.
  for (const kill of [null, 8]) {
    await makeOlder(netns);
    if (kill !== null) {
      await withNft(killBefore(kill), async (path) => {
        await using kproxy = KproxyProcess.spawn({ ...web.options(ARGS), path });
        assertEquals((await kproxy.ended()).code, 137, kproxy.log);
      });
    }
    await using kproxy = await web.start(ARGS);
    assertEquals(await servers(), wanted, `${kill}`);
    assertEquals(await nftTableNames(netns), "table ip kproxy\ntable ip6 kproxy");
    await kproxy.stop();
  }
});
