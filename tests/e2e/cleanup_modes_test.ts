/**
 * `kproxy cleanup` on a node that ran kube-proxy in every mode and holds much of others: what goes, what stays.
 *
 * @module
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { setNames } from "../../lib/backend/ipvs/plan/sets.ts";
import type { IpFamily } from "../../lib/model/objects.ts";
import { besideAudit, kproxy } from "../cli/kproxy.ts";
import { ipsetText, ipvsRules, nftTables, userspaceRules } from "../support/leftovers.ts";
import { type Netns, withNetns } from "../support/netns.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";

const NEEDS = [ROOT_NAMESPACES, ...["ip", "iptables", "ip6tables", "ipset", "nft"].map(program)];
const TOOLS: readonly (readonly [tool: string, family: IpFamily])[] = [
  ["iptables", "IPv4"],
  ["ip6tables", "IPv6"],
];

/** Kubelet's, a network plugin's and an administrator's, some with names like ours. */
const FOREIGN_RULES = `*mangle
:KUBE-KUBELET-CANARY - [0:0]
COMMIT
*nat
:CNI-HOSTPORT - [0:0]
:KUBE-MARK-DROP - [0:0]
:KUBE-NODE-PORTAL - [0:0]
-A KUBE-MARK-DROP -j MARK --or-mark 0x8000
-A KUBE-NODE-PORTAL -p tcp -m tcp --dport 9 -j ACCEPT
-A PREROUTING -m set --match-set KUBE-OTHERS dst -j KUBE-NODE-PORTAL
-A CNI-HOSTPORT -m comment --comment "like -j KUBE-NODE-PORT" -j RETURN
-A POSTROUTING -j CNI-HOSTPORT
COMMIT
*filter
:KUBE-FIREWALL - [0:0]
-A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP
-A INPUT -j KUBE-FIREWALL
-A OUTPUT -j KUBE-FIREWALL
COMMIT
`;

const FOREIGN_TABLES = `table inet kube-proxy { chain c { type filter hook input priority 0; }; }
table ip kube-proxy-of-others { map m { type ipv4_addr : verdict; }; }
table ip6 firewall { set s { type ipv6_addr; elements = { fd00::1 }; }; }
`;

async function addForeign(netns: Netns): Promise<void> {
  await netns.run(["ipset", "create", "KUBE-OTHERS", "hash:ip"]);
  await netns.run(["ipset", "create", "KUBE-6-OTHERS", "hash:ip", "family", "inet6"]);
  for (const [tool, family] of TOOLS) {
    const text = family === "IPv4" ? FOREIGN_RULES : FOREIGN_RULES.replace("KUBE-OTHERS", "KUBE-6-OTHERS");
    await netns.run([`${tool}-restore`, "--noflush"], { stdin: text });
  }
  await netns.run(["nft", "-f", "-"], { stdin: FOREIGN_TABLES });
}

async function addLeftovers(netns: Netns): Promise<void> {
  for (const [tool, family] of TOOLS) {
    await netns.run(["ipset", "restore"], { stdin: await ipsetText(family) });
    await netns.run([`${tool}-restore`, "--noflush"], { stdin: await ipvsRules(family) });
    await netns.run([`${tool}-restore`, "--noflush"], { stdin: userspaceRules(family) });
  }
  await netns.run(["nft", "-f", "-"], { stdin: nftTables("kube-proxy") });
  for (const name of ["kproxy", "kproxy-next"]) {
    await netns.run(["nft", "-f", "-"], { stdin: nftTables(name) });
  }
}

/** Everything that a cleanup could touch, without counters. */
async function everything(netns: Netns): Promise<string> {
  const texts = [];
  for (const [tool] of TOOLS) texts.push(await netns.run([`${tool}-save`]));
  texts.push(await netns.run(["ipset", "save"]), await netns.run(["nft", "list", "tables"]));
  return texts.join("").replaceAll(/\[\d+:\d+\]|^#.*$/gm, "").replaceAll(/\n+/g, "\n");
}

e2eTest("cleanup removes what every mode left, in both families, and nothing of others", NEEDS, async () => {
  await withNetns(async (netns) => {
    await addForeign(netns);
    const before = await everything(netns);
    await addLeftovers(netns);
    const full = await everything(netns);
    const options = { netns: netns.name };
    const listed = await kproxy(["cleanup", "--dry-run"], options);
    assertEquals([listed.code, listed.err], [0, ""]);
    assertEquals(await everything(netns), full, "a dry run changes nothing");
    const lines = listed.out.trimEnd().split("\n");
    for (const family of ["IPv4", "IPv6"] as const) {
      for (const chain of ["KUBE-NODE-PORT", "KUBE-PORTALS-HOST", "KUBE-SERVICES", "KUBE-MARK-MASQ"]) {
        assertMatch(listed.out, new RegExp(`^${family} (nft|legacy) nat: -X ${chain}$`, "m"));
      }
      for (const name of setNames(family)) assertStringIncludes(listed.out, `ipset: destroy ${name}\n`);
    }
    for (const table of ["ip kube-proxy", "ip6 kube-proxy", "ip kproxy", "ip6 kproxy", "ip6 kproxy-next"]) {
      assertStringIncludes(listed.out, `nft: delete table ${table}\n`);
    }
    const { code, out, ...told } = await kproxy(["cleanup"], options);
    assertEquals([code, besideAudit({ code, out, ...told })], [0, ""]);
    const counts = [...out.matchAll(/^Removed (\d+) /gm)].map(([, count]) => Number(count));
    assertEquals(counts.reduce((sum, count) => sum + count, 0), lines.length, out);
    assertEquals(await everything(netns), before);
    assertEquals(await kproxy(["cleanup"], options), { code: 0, out: "Nothing to remove\n", err: "" });
  });
});

e2eTest(
  "cleanup of one mode leaves the others' things, and all modes one by one leave nothing",
  NEEDS,
  async () => {
    await withNetns(async (netns) => {
      await addForeign(netns);
      const before = await everything(netns);
      await addLeftovers(netns);
      const options = { netns: netns.name };
      const left = async (): Promise<Record<string, boolean>> => {
        const text = await everything(netns);
        return {
          userspace: text.includes("KUBE-PORTALS-CONTAINER"),
          nftables: text.includes("table ip kproxy"),
          ipvs: text.includes("KUBE-NODE-PORT "),
          sets: text.includes("create KUBE-CLUSTER-IP "),
          shared: text.includes(":KUBE-MARK-MASQ "),
        };
      };
      const all = { userspace: true, nftables: true, ipvs: true, sets: true, shared: true };
      assertEquals(await left(), all);
      // What IPVS mode filled is not iptables mode's, by whatever name.
      const none = await kproxy(["cleanup", "--only=iptables"], options);
      assertEquals(none, { code: 0, out: "Nothing to remove\n", err: "" });
      assertEquals((await kproxy(["cleanup", "--only=nftables", "--only=userspace"], options)).code, 0);
      assertEquals(await left(), { ...all, userspace: false, nftables: false });
      assertEquals((await kproxy(["cleanup", "--cleanup-ipvs=false"], options)).out, "Nothing to remove\n");
      assertEquals((await kproxy(["cleanup", "--only=ipvs"], options)).code, 0);
      assertEquals(await everything(netns), before);
      const wrong = await kproxy(["cleanup", "--only=ipsv"], options);
      assertEquals(wrong.code, 2);
      assertMatch(wrong.err, /--only.*iptables, ipvs, nftables or userspace.*ipvs/);
    });
  },
);

e2eTest("cleanup of one proxy leaves the other's things, as far as they are told apart", NEEDS, async () => {
  await withNetns(async (netns) => {
    await addForeign(netns);
    await addLeftovers(netns);
    const options = { netns: netns.name };
    const left = async (): Promise<readonly boolean[]> => {
      const text = await everything(netns);
      return [
        " ip kproxy\n",
        " ip6 kproxy-next\n",
        " ip kube-proxy\n",
        ":KUBE-PORTALS-HOST ",
        ":KUBE-NODE-PORT ",
      ]
        .map((part) => text.includes(part));
    };
    const ours = await kproxy(["cleanup", "--of=kproxy"], options);
    assertEquals([ours.code, ours.out], [0, "Removed 4 tables of nft\n"]);
    assertMatch(
      ours.err,
      /^Warning: --of=kproxy leaves what there is of modes iptables, ipvs and userspace: .* use the same names there/,
    );
    assertEquals(await left(), [false, false, true, true, true]);
    await netns.run(["nft", "-f", "-"], { stdin: nftTables("kproxy") });
    const theirs = await kproxy(
      ["cleanup", "--of=kube-proxy", "--only=nftables", "--only=userspace"],
      options,
    );
    assertEquals(theirs.code, 0);
    assertMatch(theirs.err, /^Warning: --of=kube-proxy leaves what there is of mode userspace: /);
    assertEquals(await left(), [true, false, false, true, true]);
    const wrong = await kproxy(["cleanup", "--of=proxy"], options);
    assertEquals(wrong.code, 2);
    assertMatch(wrong.err, /--of.*kproxy or kube-proxy.*proxy/);
  });
});

e2eTest("a set that a rule of others uses stays and is named; the other sets go", NEEDS, async () => {
  await withNetns(async (netns) => {
    await netns.run(["ipset", "restore"], { stdin: await ipsetText("IPv4") });
    const foreign = [
      "PREROUTING",
      "-m",
      "set",
      "--match-set",
      "KUBE-LOOP-BACK",
      "dst,dst,src",
      "-j",
      "ACCEPT",
    ];
    await netns.run(["iptables", "-t", "nat", "-A", ...foreign]);
    const run = await kproxy(["cleanup"], { netns: netns.name });
    const { code, out } = run;
    assertEquals([code, out], [0, `Removed ${setNames("IPv4").length - 1} sets of ipset\n`]);
    assertEquals(
      besideAudit(run),
      "Warning: ipset: destroy KUBE-LOOP-BACK left out: a rule still uses this set\n",
    );
    assertEquals(await netns.run(["ipset", "list", "-name"]), "KUBE-LOOP-BACK\n");
    await netns.run(["iptables", "-t", "nat", "-D", ...foreign]);
    assertEquals((await kproxy(["cleanup"], { netns: netns.name })).code, 0);
    assertEquals(await netns.run(["ipset", "list", "-name"]), "");
  });
});

e2eTest(
  "a device of the name of IPVS mode that is none of it stays and is reported; the rest is cleaned",
  NEEDS,
  async () => {
    await withNetns(async (netns) => {
      await netns.run(["ip", "link", "add", "kube-ipvs0", "type", "veth", "peer", "name", "peer"]);
      await netns.run(["nft", "-f", "-"], { stdin: nftTables("kube-proxy") });
      const { code, out, err } = await kproxy(["cleanup"], { netns: netns.name });
      assertEquals([code, out], [1, "Removed 2 tables of nft\n"]);
      assertMatch(
        err,
        /^Error: Cannot clean up kube-ipvs0: the device is of kind veth, not dummy: it is not a proxy's$/m,
      );
      assertEquals((await kproxy(["cleanup", "--cleanup-ipvs=false"], { netns: netns.name })).code, 0);
      assert((await netns.run(["ip", "-o", "link"])).includes("kube-ipvs0"));
    });
  },
);
