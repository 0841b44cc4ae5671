/**
 * A node that ran another mode before: kproxy's rules come first, then the other mode's things go, and no connection fails.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { setNames } from "../../lib/backend/ipvs/plan/sets.ts";
import { service, slice } from "../flows/objects.ts";
import { ConnectLoop } from "../support/connect_loop.ts";
import { httpGet } from "../support/http_get.ts";
import type { LabHost } from "../support/lab_host.ts";
import {
  WEB_CLUSTER_IP,
  WEB_NEEDS,
  WEB_PODS,
  WEB_PORT,
  WEB_TARGET_PORT,
  WebLab,
} from "../support/lab_web.ts";
import { ipsetText, ipvsRules, type NftService, nftTables, userspaceRules } from "../support/leftovers.ts";
import { childrenWith } from "../support/processes.ts";
import { e2eTest, program } from "../support/skip.ts";

const NEEDS = [...WEB_NEEDS, program("nft"), program("ipset"), program("curl")];
const CLUSTER = { ip: WEB_CLUSTER_IP, port: WEB_PORT };
const REMOVED = "Removed what another mode left";
const REMOVED_TABLES = "Removed what kube-proxy left";
const DNS = { ip: WEB_CLUSTER_IP, port: 53 };
const DNS_TARGET_PORT = 5353;
const SERVED: readonly NftService[] = [
  { vip: WEB_CLUSTER_IP, port: WEB_PORT, protocol: "tcp", to: `${WEB_PODS[0]}:${WEB_TARGET_PORT}` },
  { vip: WEB_CLUSTER_IP, port: DNS.port, protocol: "udp", to: `${WEB_PODS[0]}:${DNS_TARGET_PORT}` },
];

/** The lab, with the Service's endpoints over UDP beside it. */
async function addDns({ lab, manifests }: WebLab): Promise<LabHost> {
  const pods = WEB_PODS.slice(0, 2);
  for (const ip of pods) {
    const request = { protocol: "udp", ip, port: DNS_TARGET_PORT } as const;
    await (await lab.host(ip, "cni0")).call("serve", request);
  }
  await manifests.replace("dns.json", [
    service("shop/dns", { clusterIP: WEB_CLUSTER_IP, ports: [`dns:${DNS.port}/UDP`] }),
    slice("shop/dns.1", [`dns:${DNS_TARGET_PORT}/UDP`], pods),
  ]);
  return await lab.host("10.244.0.6", "cni0");
}

for (
  const { mode, cleanupIpvs } of [
    // From ipvs to iptables: tests/lab/ipvs_in_uml.ts.
    { mode: "iptables", cleanupIpvs: false },
    { mode: "nftables", cleanupIpvs: true },
  ]
) {
  const name = cleanupIpvs ? "all other modes" : "all other modes but IPVS";
  e2eTest(
    `leftovers of ${name} go after the new rules of mode ${mode} are in force, and no connection fails`,
    NEEDS,
    async () => {
      await using web = await WebLab.create();
      const { netns } = web.lab.node;
      for (const [tool, family] of [["iptables", "IPv4"], ["ip6tables", "IPv6"]] as const) {
        await netns.run(["ipset", "restore"], { stdin: await ipsetText(family) });
        await netns.run([`${tool}-restore`, "--noflush"], { stdin: await ipvsRules(family) });
        await netns.run([`${tool}-restore`, "--noflush"], { stdin: userspaceRules(family) });
      }
      await netns.run(["nft", "-f", "-"], { stdin: nftTables("kube-proxy", SERVED) });
      await netns.run(["nft", "add", "table", "ip", "others"]);
      const loops = [
        await ConnectLoop.start(web.pod, CLUSTER),
        await ConnectLoop.start(await addDns(web), DNS, "udp"),
      ];
      for (const loop of loops) await loop.answered(100);
      await using kproxy = await web.start([
        ...[`--proxy-mode=${mode}`, `--cleanup-ipvs=${cleanupIpvs}`, "--oom-score-adj=500"],
      ]);
      // Each family's own, each in its turn. In mode nftables other tables are no other mode's, and go by other words.
      await kproxy.until(
        "the end of both families' tables",
        (lines) =>
          lines.filter(({ msg, what }) =>
            msg === REMOVED_TABLES || (msg === REMOVED && what === "tables of nft")
          )
            .length === 2,
      );
      for (const loop of loops) {
        await loop.answered(200);
        const { byServer } = await loop.stopUnbroken();
        assertEquals(
          Object.keys(byServer).length,
          2,
          "both endpoints answer under the new rules, one did before",
        );
      }

      const tables = await netns.run(["nft", "list", "tables"]);
      assert(!tables.includes("kube-proxy") && tables.includes("table ip others"), tables);
      const sets = await netns.run(["ipset", "list", "-name"]);
      const wanted = cleanupIpvs ? [] : [...setNames("IPv4"), ...setNames("IPv6")];
      assertEquals(sets.split("\n").filter((line) => line !== "").sort(), [...wanted].sort());
      for (const tool of ["iptables-save", "ip6tables-save"]) {
        const saved = await netns.run([tool]);
        assert(!saved.includes("KUBE-PORTALS") && !saved.includes("KUBE-NODEPORT-"), saved);
        assertEquals(saved.includes("KUBE-IPVS-FILTER"), !cleanupIpvs, saved);
        const own = [":KUBE-MARK-MASQ ", "-j KUBE-NODEPORTS"].map((part) => saved.includes(part));
        assertEquals(own, [mode === "iptables", mode === "iptables"], saved);
      }
      const order = kproxy.lines.map(({ msg }) => msg);
      assert(order.indexOf("First sync done, Services are served") < order.indexOf(REMOVED), kproxy.log);
      assertEquals(await Deno.readTextFile(`/proc/${kproxy.pid}/oom_score_adj`), "500\n");
      // In mode nftables one waits for the next change.
      if (mode === "nftables") return;
      assertEquals(await childrenWith(kproxy.pid, "nft -f -"), [], "an nft that waits for what never comes");
    },
  );
}

// Under connect loops, there and back: migration_test.ts.
e2eTest(
  "tables of kube-proxy that come back while kproxy runs are reported and left alone",
  NEEDS,
  async () => {
    await using web = await WebLab.create();
    const { netns } = web.lab.node;
    const tables = async (): Promise<string[]> =>
      (await netns.run(["nft", "list", "tables"])).trim().split("\n").sort();
    const readiness = async () => (await httpGet(netns, "http://127.0.0.1:10256/readyz")).body;
    const comes = (): Promise<string> => netns.run(["nft", "-f", "-"], { stdin: nftTables("kube-proxy") });
    await comes();
    await using kproxy = await web.start(["--proxy-mode=nftables", "--iptables-sync-period=1s"]);
    await kproxy.until(
      "the end of what was left",
      (lines) => lines.filter(({ msg }) => msg === REMOVED_TABLES).length === 2,
    );
    assert((await readiness()).includes('"ready":true'), await readiness());
    await comes();
    // A check may fall between the two families.
    await kproxy.until(
      "word of both tables",
      (lines) =>
        lines.some(({ msg, tables }) =>
          msg === "Another service proxy writes rules on this node" &&
          String(tables) === "ip kube-proxy,ip6 kube-proxy"
        ),
    );
    const answer = await readiness();
    assert(
      answer.includes('"ready":false') && answer.includes("tables ip kube-proxy, ip6 kube-proxy"),
      answer,
    );
    assertEquals(
      await tables(),
      ["ip", "ip6"].flatMap((ip) => [`table ${ip} kproxy`, `table ${ip} kube-proxy`]),
    );
    for (const ip of ["ip", "ip6"]) await netns.run(["nft", "delete", "table", ip, "kube-proxy"]);
    await kproxy.untilMessage("The tables of the other service proxy are gone");
    assert((await readiness()).includes('"ready":true'), await readiness());
    assertEquals(kproxy.lines.filter(({ reason }) => reason === "OtherProxy").length, 1);
  },
);
