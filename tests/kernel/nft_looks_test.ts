/**
 * The looks of mode nftables that list no element, with the real nft: they see what is damaged, and do no harm to other programs that list rules.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import type { NftablesProxier } from "../../lib/backend/nftables/apply/proxier.ts";
import type { Exec } from "../../lib/kernel/exec.ts";
import { A, B, nftablesProxier, STICKY, syncRequest } from "../support/nftables_rig.ts";
import { type Netns, withNetns } from "../support/netns.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";

const NEEDS = [ROOT_NAMESPACES, program("nft"), program("ip")];
const OBJECTS = [...A, ...B, ...STICKY];

interface Rig {
  readonly proxier: NftablesProxier;
  /** Of the proxier, so far. */
  readonly lists: () => number;
}

/** A proxier that has synced and lists its table no more, as long as all is well. */
async function rarelyListing(netns: Netns): Promise<Rig> {
  const clock = { nowMs: 0 };
  let lists = 0;
  const exec: Exec = {
    run: (argv, options) => {
      if (argv.join(" ") === "nft -a list table ip kproxy") {
        lists++;
        clock.nowMs += 3_000;
      }
      return netns.exec.run(argv, options);
    },
  };
  const proxier = nftablesProxier(exec, clock);
  await proxier.sync(syncRequest(OBJECTS));
  assertEquals(await proxier.findDamage(), false);
  return { proxier, lists: () => lists };
}

async function nft(netns: Netns, text: string): Promise<void> {
  const { code, stderr } = await netns.exec.run(["nft", "-f", "-"], { stdin: text });
  assertEquals([code, stderr], [0, ""]);
}

/** Has as many rules as a list of them is read in many pieces. */
function tableOfOthers(): string {
  const lines = ["add table ip theirs"];
  for (let chain = 0; chain < 300; chain++) {
    lines.push(`add chain ip theirs c${chain}`);
    for (let at = 1; at <= 4; at++) {
      lines.push(`add rule ip theirs c${chain} ip saddr 10.0.0.${at} tcp dport 80 accept`);
    }
  }
  return `${lines.join("\n")}\n`;
}

e2eTest("whoever lists rules beside looks that list no element sees each rule once", NEEDS, async () => {
  await withNetns(async (netns) => {
    const { proxier, lists } = await rarelyListing(netns);
    await nft(netns, tableOfOthers());
    const list = () => netns.run(["nft", "-a", "list", "ruleset"]);
    const quiet = await list();
    const before = lists();
    let isListing = true;
    const look = async (): Promise<void> => {
      while (isListing) assertEquals(await proxier.findDamage(), false);
    };
    const looks = look();
    try {
      for (let at = 0; at < 40; at++) assert(await list() === quiet, "a list is wrong");
    } finally {
      isListing = false;
      await looks;
    }
    assertEquals(lists(), before);
  });
});

/** What others may do; what comes of it is seen by looks that list no element. */
const DAMAGES: readonly ((listed: string) => string)[] = [
  () => "flush chain ip kproxy services",
  () => "flush chain ip kproxy nat-prerouting",
  () => "flush chain ip kproxy tcp-2",
  () => "flush chain ip kproxy filter-forward\ndelete chain ip kproxy filter-forward",
  (listed) => {
    const [, handle] = /^\tchain services \{.*\n.* # handle (\d+)$/m.exec(listed) ?? [];
    return `delete rule ip kproxy services handle ${handle}`;
  },
  () => "flush map ip kproxy service-ips",
  () => "flush map ip kproxy endpoints-tcp",
  () => "delete table ip kproxy",
];

e2eTest("looks that list no element see in the real kernel what is damaged", NEEDS, async () => {
  await withNetns(async (netns) => {
    const { proxier, lists } = await rarelyListing(netns);
    for (const damage of DAMAGES) {
      const text = damage(await netns.run(["nft", "-a", "list", "table", "ip", "kproxy"]));
      await nft(netns, `${text}\n`);
      const before = lists();
      const found = await proxier.findDamage();
      assert(found !== false, `not seen: ${text}`);
      assertEquals(lists(), before, text);
      await proxier.sync(syncRequest(OBJECTS));
      // The look after the repair lists.
      for (let looks = 0; looks < 2; looks++) assertEquals(await proxier.findDamage(), false, text);
    }
  });
});
