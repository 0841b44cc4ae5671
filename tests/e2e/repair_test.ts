/**
 * kproxy among others: what they take away from its rules comes back (`tests/support/web_repairs.ts`; all kinds of damage are in
 * `drift_check_test.ts` of both modes), and what is theirs stays theirs.
 * IPVS mode goes through the same in `tests/lab/ipvs_suites_in_uml.ts`.
 *
 * @module
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { service, slice } from "../flows/objects.ts";
import { LAB_MODES, NFTABLES, nftTables } from "../support/lab_mode.ts";
import { saveAll, saveTable } from "../support/lab_rules.ts";
import { WEB_CLUSTER_IP, WEB_NEEDS, WEB_PODS, WEB_PORT, WebLab, webSlice } from "../support/lab_web.ts";
import { CLUSTER } from "../support/web_changes.ts";
import { e2eTest, program } from "../support/skip.ts";
import { eventually } from "../support/until.ts";
import { type Damage, REPAIR_ARGS, repairs, repairsDamages } from "../support/web_repairs.ts";

/** Of the damages, one in so many is done in the legacy variant. */
const LEGACY_EVERY = 2;

for (const variant of ["nft", "legacy"]) {
  const needs = [...WEB_NEEDS, program(`iptables-${variant}`), program(`ip6tables-${variant}`)];
  e2eTest(`rules that others remove come back, ${variant}`, needs, async (t) => {
    await using web = await WebLab.create();
    const { netns } = web.lab.node;
    const tool = `iptables-${variant}`;
    await netns.run([tool, "-t", "mangle", "-N", "KUBE-IPTABLES-HINT"]);
    const others = `*filter\nCOMMIT\n*nat\nCOMMIT\n`;
    await using kproxy = await web.start(REPAIR_ARGS);
    const nat = await saveTable(netns, tool, "nat");
    const jump = nat.find((line) => line.startsWith("-A PREROUTING"))!;
    const change = (...args: readonly string[]) => () => netns.run([tool, "-w", "5", "-t", "nat", ...args]);
    const [, endpoint = ""] = /:(KUBE-SEP-\w+)/.exec(nat.join("\n")) ?? [];
    const damages: readonly Damage[] = [
      ["table nat flushed", () => netns.run([tool, "-w", "5", "-t", "nat", "-F"])],
      [
        "everything replaced by nothing, chains and all",
        () => netns.run([`${tool}-restore`, "-w", "5"], { stdin: others }),
      ],
      ["one jump gone", () =>
        netns.run([`${tool}-restore`, "-w", "5", "--noflush"], {
          stdin: `*nat\n${jump.replace("-A", "-D")}\nCOMMIT\n`,
        })],
      [
        "what keeps strangers from 127.0.0.0/8 gone",
        () => netns.run([tool, "-w", "5", "-t", "filter", "-D", "KUBE-FIREWALL", "1"]),
      ],
      ["a rule more in the chain that leads to all Services", change("-I", "KUBE-SERVICES", "-j", "RETURN")],
      ["an endpoint's translation gone", change("-D", endpoint, "2")],
      ["IPv6 flushed", () => netns.run([`ip6tables-${variant}`, "-w", "5", "-t", "nat", "-F"])],
    ];
    // Both variants are looked after by the same code: some of each kind show that its programs are the right ones.
    const chosen = damages.filter((_, index) => variant === "nft" || index % LEGACY_EVERY === 0);
    await repairsDamages(t, web, kproxy, chosen, () => saveAll(netns, `-${variant}`));
  });

  e2eTest(`rules and chains of others are left alone, ${variant}`, needs, async () => {
    await using web = await WebLab.create();
    const { netns } = web.lab.node;
    const tool = `iptables-${variant}`;
    const foreign = [
      "*mangle",
      ":KUBE-IPTABLES-HINT - [0:0]",
      ":KUBE-KUBELET-CANARY - [0:0]",
      "COMMIT",
      "*filter",
      ":INPUT ACCEPT [0:0]",
      ":FORWARD ACCEPT [0:0]",
      ":DOCKER-USER - [0:0]",
      ":KUBE-FIREWALL - [0:0]",
      ":KUBE-ROUTER-INPUT - [0:0]",
      "-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT",
      "-A INPUT -j KUBE-ROUTER-INPUT",
      "-A FORWARD -j DOCKER-USER",
      "-A DOCKER-USER -s 203.0.113.66/32 -j DROP",
      "-A KUBE-ROUTER-INPUT -p icmp -j ACCEPT",
      "COMMIT",
      "*nat",
      ":PREROUTING ACCEPT [0:0]",
      ":POSTROUTING ACCEPT [0:0]",
      ":KUBE-HOSTPORTS - [0:0]",
      ":CNI-MASQ - [0:0]",
      "-A PREROUTING -d 192.0.2.10/32 -p tcp -m tcp --dport 8443 -j KUBE-HOSTPORTS",
      "-A POSTROUTING -s 10.244.0.0/24 -j CNI-MASQ",
      "-A KUBE-HOSTPORTS -p tcp -m tcp --dport 8443 -j DNAT --to-destination 10.244.0.11:8443",
      "-A CNI-MASQ -d 10.0.0.0/8 -j ACCEPT",
      "COMMIT",
      "",
    ];
    await netns.run([`${tool}-restore`, "-w", "5"], { stdin: foreign.join("\n") });
    /** Lines that say nothing of our chains, in their order. */
    const theirs = async (): Promise<string[]> => {
      const lines: string[] = [];
      for (const table of ["mangle", "filter", "nat"]) lines.push(...await saveTable(netns, tool, table));
      const own =
        /KUBE-(SERVICES|EXTERNAL-SERVICES|NODEPORTS|POSTROUTING|MARK-MASQ|FORWARD|PROXY-|SVC-|SEP-|EXT-)/;
      return lines.filter((line) => !own.test(line) && !/-j KUBE-FIREWALL|localnet/.test(line));
    };
    const before = await theirs();
    await using kproxy = await web.start(REPAIR_ARGS);
    assertEquals(await theirs(), before);
    await kproxy.change(() => web.manifests.overwrite("endpoints.json", [webSlice(WEB_PODS)]), "shop/web");
    assertEquals(await theirs(), before);
    // What others add while kproxy runs survives a repair, which writes everything again.
    const added = ["-p", "tcp", "-m", "tcp", "--dport", "9999", "-j", "ACCEPT"];
    await netns.run([tool, "-w", "5", "-I", "INPUT", "1", ...added]);
    const later = await theirs();
    const wanted = await saveTable(netns, tool, "nat");
    await netns.run([tool, "-w", "5", "-t", "nat", "-F", "KUBE-MARK-MASQ"]);
    await kproxy.until("a repair", () => repairs(kproxy) > 0);
    await eventually(async () => assertEquals(await saveTable(netns, tool, "nat"), wanted), { everyMs: 50 });
    assertEquals(await theirs(), later);
    await kproxy.stop();
    assertEquals(await theirs(), later);
  });
}

for (const variant of ["nft", "legacy"]) {
  const needs = [...WEB_NEEDS, program(`iptables-${variant}`)];
  e2eTest(
    `a rule of others that jumps to a chain of a Service holds up no change, ${variant}`,
    needs,
    async () => {
      await using web = await WebLab.create();
      const { netns } = web.lab.node;
      const tool = `iptables-${variant}`;
      const nat = (...args: readonly string[]) => netns.run([tool, "-w", "5", "-t", "nat", ...args]);
      await netns.run([tool, "-t", "mangle", "-N", "KUBE-IPTABLES-HINT"]);
      const old = { "shop/old-a": "10.96.0.7", "shop/old-b": "10.96.0.8" };
      await web.manifests.replace("old.json", [
        ...Object.entries(old).map(([name, clusterIP]) =>
          service(name, { clusterIP, ports: [`http:${WEB_PORT}`] })
        ),
        ...Object.keys(old).map((name) => slice(`${name}.1`, ["http:8080"], [`${WEB_PODS[0]}@node-a`])),
      ]);
      await using kproxy = await web.start(REPAIR_ARGS);
      const before = (await saveTable(netns, tool, "nat")).join("\n");
      const chains = Object.values(old).map((ip) =>
        new RegExp(`-d ${ip}/32 .* -j (KUBE-SVC-\\w+)`).exec(before)![1]!
      );
      await nat("-N", "OTHERS");
      for (const chain of chains) await nat("-A", "OTHERS", "-j", chain);
      await kproxy.change(() => web.manifests.replace("old.json", []), "shop/old-a");
      // Others change as if nothing were wrong, without a sync that fails.
      await kproxy.change(
        () => web.manifests.overwrite("endpoints.json", [webSlice([WEB_PODS[1]])]),
        "shop/web",
      );
      assertEquals(kproxy.lines.filter(({ msg }) => msg.includes("Sync failed")), []);
      const loop = await web.loop(web.pod, CLUSTER);
      await loop.answeredFor(300);
      await loop.stopUnbroken();
      const after = (await saveTable(netns, tool, "nat")).join("\n");
      for (const chain of chains) {
        assertMatch(after, new RegExp(`^:${chain} `, "m"));
        assertEquals(after.match(new RegExp(`^-A ${chain} `, "m")), null, "it must be empty");
      }
      for (const ip of Object.values(old)) assertEquals(after.includes(`${ip}/32`), false);
      const warnings = kproxy.lines.filter(({ msg }) => msg.includes("cannot be deleted"));
      assertEquals(warnings.map(({ chains }) => [...chains as string[]].sort()), [chains.toSorted()]);
      await kproxy.stop();
      // Once they are unused, the next run removes them.
      await nat("-F", "OTHERS");
      await using _next = await web.start(REPAIR_ARGS);
      const last = (await saveTable(netns, tool, "nat")).join("\n");
      for (const chain of chains) assertEquals(last.includes(chain), false);
    },
  );
}

const FOREIGN_TABLES = `table inet firewall {
  set blocked { type ipv4_addr; elements = { 203.0.113.66 }; }
  chain input { type filter hook input priority filter; ip saddr @blocked drop; }
}
table ip kproxy-of-others { map m { type ipv4_addr : verdict; }; }
`;

if (LAB_MODES.includes(NFTABLES)) {
  e2eTest(
    "rules that others remove come back, and theirs are left alone, nftables",
    [...WEB_NEEDS, ...NFTABLES.needs],
    async (t) => {
      await using web = await WebLab.create(NFTABLES);
      const { netns } = web.lab.node;
      const nft = (text: string) => netns.run(["nft", "-f", "-"], { stdin: text });
      const theirs = () => nftTables(netns, "others");
      await nft(FOREIGN_TABLES);
      const before = await theirs();
      await using kproxy = await web.start(REPAIR_ARGS);
      const rules = () => web.rules();
      const wanted = await rules();
      assertEquals(await theirs(), before);
      /** What becomes of the second rule of a chain. */
      const second = (chain: string, verb: string, rest = "") => async () => {
        const listed = await netns.run(["nft", "-a", "list", "chain", "ip", "kproxy", chain]);
        const handles = [...listed.matchAll(/^\t\t.* # handle (\d+)$/gm)].map(([, handle]) => handle);
        assert(handles.length > 1, listed);
        await nft(`${verb} rule ip kproxy ${chain} handle ${handles[1]} ${rest}`);
      };
      const texts: readonly [name: string, text: string][] = [
        ["the table is gone", "delete table ip kproxy"],
        ["the table of IPv6 is gone", "delete table ip6 kproxy"],
        ["a rule more in the chain that leads to all Services", "insert rule ip kproxy services return"],
        [
          "a base chain more, which drops",
          "add chain ip kproxy theirs { type filter hook forward priority 0; policy drop; }",
        ],
        ["an element more in a map", "add element ip kproxy service-ips { 10.96.9.9 . tcp . 1 : drop }"],
        [
          "an endpoint, with another in its place",
          [
            `delete element ip kproxy endpoints-tcp { ${WEB_CLUSTER_IP} . ${WEB_PORT} . 0 }`,
            `add element ip kproxy endpoints-tcp { ${WEB_CLUSTER_IP} . ${WEB_PORT} . 0 : 10.9.9.9 . 1 }`,
          ].join("\n"),
        ],
      ];
      const damages: readonly Damage[] = [
        ...texts.map(([name, text]): Damage => [name, () => nft(text)]),
        ["one rule of several", second("masquerading", "delete")],
        ["a rule, with another in its place", second("masquerading", "replace", "return")],
      ];
      await repairsDamages(t, web, kproxy, damages);
      await kproxy.stop();
      await t.step("a start also takes away what others added", async () => {
        await nft(
          "add rule ip6 kproxy services drop\nadd element ip kproxy service-ips { 10.96.9.9 . tcp . 1 : drop }",
        );
        await using _kproxy = await web.start();
        assertEquals(await rules(), wanted);
      });
      assertEquals(await theirs(), before);
    },
  );
}
