/**
 * `kproxy check` on rules of a real kernel: each damage is named with its Service, `--repair` mends it and leaves alone what others wrote,
 * and beside a running kproxy nothing is written.
 *
 * @module
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { besideAudit, kproxy, type Run } from "../cli/kproxy.ts";
import { LAB_MODES, type LabMode } from "../support/lab_mode.ts";
import { WEB_CLUSTER_IP, WEB_NEEDS, WEB_PORT, WebLab } from "../support/lab_web.ts";
import type { Netns } from "../support/netns.ts";
import { e2eTest } from "../support/skip.ts";
import { StubProgram } from "../support/stub_program.ts";
import { findProgram } from "../../tools/setup.ts";

/** What somebody does to the rules, and the words by which it is found. */
interface Damage {
  readonly name: string;
  readonly harm: (netns: Netns) => Promise<unknown>;
  readonly finds: RegExp;
}

const nat = (netns: Netns, ...args: readonly string[]): Promise<string> =>
  netns.run(["iptables", "-w", "5", "-t", "nat", ...args]);
const nft = (netns: Netns, text: string): Promise<string> => netns.run(["nft", "-f", "-"], { stdin: text });

async function chainOf(netns: Netns, prefix: string): Promise<string> {
  const saved = await netns.run(["iptables-save", "-t", "nat"]);
  const chain = new RegExp(`^-A (${prefix}\\S+) .*shop/web`, "m").exec(saved)?.[1];
  assert(chain !== undefined, saved);
  return chain;
}

const DAMAGES: Readonly<Record<"iptables" | "nftables", readonly Damage[]>> = {
  iptables: [
    {
      name: "a Service's chain flushed",
      harm: async (netns) => await nat(netns, "-F", await chainOf(netns, "KUBE-SVC-")),
      finds: /Service shop\/web\n {2}iptables nat KUBE-SVC-\S+: the chain is empty/,
    },
    {
      name: "an endpoint's translation changed",
      harm: async (netns) =>
        await nat(
          netns,
          ...["-R", await chainOf(netns, "KUBE-SEP-"), "2", "-p", "tcp", "-j", "DNAT"],
          ...["--to-destination", "10.244.9.9:8080"],
        ),
      finds: /iptables nat KUBE-SEP-\S+: a rule is not as it should be\n.*\n {4}\+ .*10\.244\.9\.9:8080/,
    },
    {
      name: "the table flushed",
      harm: (netns) => nat(netns, "-F"),
      finds: /iptables nat PREROUTING: the jump is missing/,
    },
  ],
  nftables: [
    {
      name: "an element removed",
      harm: (netns) =>
        nft(netns, `delete element ip kproxy service-ips { ${WEB_CLUSTER_IP} . tcp . ${WEB_PORT} }\n`),
      finds: /Service shop\/web\n {2}nftables ip kproxy service-ips: an element is missing/,
    },
    {
      name: "a chain flushed",
      harm: (netns) => nft(netns, "flush chain ip kproxy services\n"),
      finds: /nftables ip kproxy services: the chain is empty/,
    },
    {
      name: "the table deleted",
      harm: (netns) => nft(netns, "delete table ip kproxy\n"),
      finds: /nftables ip kproxy: the table is gone/,
    },
  ],
};

/** A rule of somebody else that no packet of the Service meets. */
const OTHERS = ["-d", "203.0.113.9/32", "-j", "ACCEPT"];

function commandOf(web: WebLab, env: Readonly<Record<string, string>> = {}) {
  const { netns, args } = web.options();
  // How often rules are written does not matter here, and is told to have no effect where the mode has a setting of its own.
  const wanted = args.filter((arg) => !arg.includes("-sync-period"));
  return (...more: readonly string[]): Promise<Run> =>
    kproxy(["check", ...wanted, ...more], { netns: netns.name, env });
}

function damagesOf({ name }: LabMode): readonly Damage[] {
  return name === "iptables" || name === "nftables" ? DAMAGES[name] : [];
}

async function mendsAll(t: Deno.TestContext, web: WebLab, mode: LabMode): Promise<void> {
  const { netns } = web.lab.node;
  const check = commandOf(web);
  const wanted = await web.rules();
  for (const { name, harm, finds } of damagesOf(mode)) {
    await t.step(name, async () => {
      await harm(netns);
      const found = await check();
      assertEquals(found.code, 1, found.out + found.err);
      assertMatch(found.out, finds);
      const mended = await check("--repair");
      assertEquals([mended.code, besideAudit(mended)], [0, ""], mended.out);
      assertStringIncludes(mended.out, "Written anew: the rules of IPv4");
      const after = await check();
      assertEquals([after.code, after.err], [0, ""], after.out);
      if (mode.name === "nftables") assertEquals(await web.rules(), wanted);
    });
  }
}

/** A list that leaves rules out, as nft prints one beside somebody's dry run. */
async function checksTwice(web: WebLab): Promise<void> {
  const lies = `${findProgram("nft")} "$@" | grep -v dnat`;
  for (const [times, code] of [[1, 0], [undefined, 1]] as const) {
    await using nft = await StubProgram.create("nft", "list table ip kproxy", lies, times);
    const check = commandOf(web, { PATH: `${nft.folder}:${Deno.env.get("PATH") ?? ""}` });
    const found = await check();
    assertEquals([found.code, found.err], [code, ""], found.out);
    await nft.started();
  }
}

for (const mode of LAB_MODES) {
  e2eTest(`check names damage to real rules, and --repair mends it, ${mode.name}`, [
    ...WEB_NEEDS,
    ...mode.needs,
  ], async (t) => {
    await using web = await WebLab.create(mode);
    const { netns } = web.lab.node;
    const check = commandOf(web);
    {
      await using running = await web.start();
      const sound = await check();
      assertEquals([sound.code, sound.err], [0, ""], sound.out);
      await t.step("beside a running kproxy nothing is written", async () => {
        const [{ harm } = { harm: null }] = damagesOf(mode);
        await harm?.(netns);
        const refused = await check("--repair");
        assertEquals([refused.code, refused.out], [1, ""], refused.err);
        assertStringIncludes(refused.err, "mends them itself");
      });
      await running.stop();
    }
    const mended = await check("--repair");
    assertEquals([mended.code, besideAudit(mended)], [0, ""], mended.out);
    await nat(netns, "-A", "POSTROUTING", ...OTHERS);
    await mendsAll(t, web, mode);
    if (mode.name === "nftables") {
      await t.step("what only one of two looks finds is not told", () => checksTwice(web));
    }
    await t.step("somebody's redirection in front is named, and stays", async () => {
      const front = [
        "-d",
        `${WEB_CLUSTER_IP}/32`,
        "-p",
        "tcp",
        "-j",
        "DNAT",
        "--to-destination",
        "192.0.2.99:80",
      ];
      await nat(netns, "-I", "PREROUTING", "1", ...front);
      const found = await check("--repair");
      assertEquals(found.code, 1, found.err);
      assertMatch(
        found.out,
        /Service shop\/web\n {2}table nat chain PREROUTING rule 1: a rule of others redirects/,
      );
      assertStringIncludes(found.out, "Nothing of ours was to be mended.");
      assertStringIncludes(await netns.run(["iptables-save", "-t", "nat"]), "--to-destination 192.0.2.99:80");
    });
  });
}
