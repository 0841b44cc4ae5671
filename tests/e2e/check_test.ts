/**
 * `kproxy check` on rules of a real kernel: beside a running kproxy nothing is written, and a listing that left rules out once is no
 * damage. What it finds and `--repair` fixes: `planted_faults_test.ts`.
 *
 * @module
 */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { findProgram } from "../../tools/setup.ts";
import { besideAudit, kproxy, type Run } from "../cli/kproxy.ts";
import { LAB_MODES } from "../support/lab_mode.ts";
import { WEB_NEEDS, WebLab } from "../support/lab_web.ts";
import { e2eTest } from "../support/skip.ts";
import { StubProgram } from "../support/stub_program.ts";

/** Takes rules of kproxy away, by mode. */
const DAMAGES: Readonly<Record<string, readonly string[]>> = {
  iptables: ["iptables", "-w", "5", "-t", "nat", "-F"],
  nftables: ["nft", "flush", "chain", "ip", "kproxy", "services"],
};

function commandOf(web: WebLab, env: Readonly<Record<string, string>> = {}) {
  const { netns, args } = web.options();
  // How often rules are written does not matter here, and has no effect where the mode has a setting of its own.
  const flags = args.filter((arg) => !arg.includes("-sync-period"));
  return (...more: readonly string[]): Promise<Run> =>
    kproxy(["check", ...flags, ...more], { netns: netns.name, env });
}

/** A listing that leaves rules out, as nft prints one beside a dry run of another process. */
async function checksTwice(web: WebLab): Promise<void> {
  // Beside tables of others each table is listed by itself.
  const others = ["POSTROUTING", "-d", "203.0.113.9/32", "-j", "ACCEPT"];
  await web.lab.node.netns.run(["iptables", "-w", "5", "-t", "nat", "-A", ...others]);
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
  e2eTest(`check beside a running kproxy writes nothing, and fixes once it is gone, ${mode.name}`, [
    ...WEB_NEEDS,
    ...mode.needs,
  ], async (t) => {
    await using web = await WebLab.create(mode);
    const check = commandOf(web);
    {
      await using running = await web.start();
      const sound = await check();
      assertEquals([sound.code, sound.err], [0, ""], sound.out);
      await web.lab.node.netns.run(DAMAGES[mode.name]!);
      const refused = await check("--repair");
      assertEquals([refused.code, refused.out], [1, ""], refused.err);
      assertStringIncludes(refused.err, "fixes them itself");
      await running.stop();
    }
    const fixed = await check("--repair");
    assertEquals([fixed.code, besideAudit(fixed)], [0, ""], fixed.out);
    if (mode.name === "nftables") {
      await t.step("what only one of two listings lacks is not reported", () => checksTwice(web));
    }
  });
}
