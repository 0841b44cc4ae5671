/**
 * The fake nft against the real one: what one refuses the other refuses for the same reason (what the applier writes: `tests/e2e/fakes_replay_test.ts`).
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import type { ExecResult } from "../../lib/kernel/exec.ts";
import type { ApiObject } from "../../lib/model/objects.ts";
import { parseTable } from "../../lib/netfilter/nft_listing.ts";
import { testPort } from "../support/model_objects.ts";
import { FakeNft } from "../support/fake_nft.ts";
import { A, endStateOf, nftablesProxier, STICKY, syncRequest, TABLE } from "../support/nftables_rig.ts";
import { type Netns, withNetns } from "../support/netns.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";

const NEEDS = [ROOT_NAMESPACES, program("nft"), program("ip")];

/** What both say of a command. */
function outcome({ code, stderr }: ExecResult): unknown {
  const reasons = Array.from(
    stderr.matchAll(/^\S*:(\d+):[\d-]+: Error: (?:Could not process rule: )?([^;\n]*)/gm),
    ([, line, reason]) => `${line} ${reason}`,
  );
  return [code, reasons];
}

async function compareTables(netns: Netns, fake: FakeNft, what: string): Promise<void> {
  const real = await netns.exec.run(["nft", "-a", "list", "table", "ip", "kproxy"]);
  const content = (text: string): unknown => {
    const table = parseTable(text);
    return [endStateOf(table), [...table.chains.keys()].sort()];
  };
  assertEquals(content(fake.listed(TABLE)), content(real.stdout), what);
}

e2eTest("what the real nft refuses, the fake refuses for the same reason", NEEDS, async () => {
  const fake = new FakeNft();
  const start = "add table ip kproxy\n" +
    "add set ip kproxy s { type ipv4_addr ; }\n" +
    "add map ip kproxy m { type ipv4_addr . inet_proto . inet_service : verdict ; }\n" +
    "add chain ip kproxy c\nadd chain ip kproxy d\nadd rule ip kproxy c goto d\n" +
    "add chain ip kproxy h { type nat hook prerouting priority dstnat; policy accept; }\n" +
    "add element ip kproxy m { 10.0.0.1 . tcp . 80 : goto c }\n";
  const texts = [
    "delete table ip other",
    "create table ip kproxy",
    "add table ip kproxy\ncreate chain ip kproxy c\ncreate chain ip kproxy new",
    "add table ip kproxy\ncreate chain ip kproxy newer",
    "add rule ip kproxy nowhere accept",
    "add rule ip kproxy c goto nowhere",
    "add rule ip kproxy c index 1 accept",
    "add rule ip kproxy c index 0 accept",
    "add rule ip kproxy c jump h",
    "add rule ip kproxy h jump h",
    "add rule ip kproxy c index 0 jump h\nadd rule ip kproxy d jump h\ndelete element ip kproxy s { 10.0.0.9 }",
    "add rule ip kproxy c index 7 jump h",
    "flush chain ip kproxy nowhere",
    "delete chain ip kproxy d",
    "delete chain ip kproxy nowhere",
    "add element ip kproxy m { 10.0.0.1 . tcp . 80 : goto d }",
    "add element ip kproxy m { 10.0.0.1 . tcp . 80 : goto c }",
    "add element ip kproxy m { 10.0.0.2 . tcp . 80 : goto nowhere }",
    "add element ip kproxy s { 10.0.0.1 }\nadd element ip kproxy s { 10.0.0.1 }",
    "delete element ip kproxy s { 10.0.0.9 }",
    "delete element ip kproxy m { 10.0.0.1 . tcp . 80 }\ndelete element ip kproxy m { 10.0.0.1 . tcp . 80 }",
    "delete element ip kproxy m { 10.0.0.1 . tcp . 80 }\nadd element ip kproxy m { 10.0.0.1 . tcp . 80 : goto d }",
    "add map ip kproxy m { type ipv4_addr : verdict ; }",
    "flush chain ip kproxy c\ndelete chain ip kproxy d",
    "add chain ip kproxy h\ndelete chain ip kproxy h\n" +
    "add chain ip kproxy h { type nat hook prerouting priority dstnat; policy accept; }",
    "delete element ip kproxy s { 10.0.0.7 }\nadd element ip kproxy s { 10.0.0.8 }\nadd rule ip kproxy nowhere accept",
  ];
  await withNetns(async (netns) => {
    for (const text of [start, ...texts.map((text) => text + "\n")]) {
      for (const argv of [["nft", "-c", "-f", "-"], ["nft", "-f", "-"]]) {
        const options = { stdin: text };
        assertEquals(
          outcome(await fake.run(argv, options)),
          outcome(await netns.exec.run(argv, options)),
          text,
        );
        await compareTables(netns, fake, text);
      }
    }
  });
});

e2eTest("a port that was renamed while kproxy was down has its new name in the kernel", NEEDS, async () => {
  await withNetns(async (netns) => {
    const named = (name: string): readonly ApiObject[] =>
      [...A, ...STICKY].map((object): ApiObject =>
        object.kind === "Service" && object.name === "s1"
          ? { ...object, ports: [testPort({ name })] }
          : object.kind === "EndpointSlice" && object.serviceName === "s1"
          ? { ...object, ports: object.ports.map((port) => ({ ...port, name })) }
          : object
      );
    const comments = async (): Promise<readonly string[]> => {
      const text = await netns.run(["nft", "list", "map", "ip", "kproxy", "service-ips"]);
      return Array.from(text.matchAll(/"(shop\/s1[^"]*)"/g), ([, comment = ""]) => comment);
    };
    await nftablesProxier(netns.exec).sync(syncRequest(named("http")));
    assertEquals(await comments(), ["shop/s1:http"]);
    const next = nftablesProxier(netns.exec);
    const { written } = await next.sync(syncRequest(named('web, "new" : one')));
    // The element goes and comes, and nothing else.
    assertEquals(written, { chains: 0, elements: 2, sets: 0 });
    assertEquals(await comments(), ["shop/s1:web, ?new? : one"]);
    assertEquals(await next.findDamage(), false);
    const again = await nftablesProxier(netns.exec).sync(syncRequest(named('web, "new" : one')));
    assertEquals(again.written, { chains: 0, elements: 0, sets: 0 });
  });
});
