/**
 * What the proxier of mode iptables makes of what the real programs list, refuse, and wait for. What it writes is compared with the
 * kernel's by `tests/e2e/fakes_replay_test.ts`; adoption and repair under traffic are in `tests/e2e`.
 */
import { assert, assertEquals } from "@std/assert";
import { IptablesProxier } from "../../lib/backend/iptables/apply/proxier.ts";
import { type Exec, wholeText } from "../../lib/kernel/exec.ts";
import { Iptables, type IptablesVariant } from "../../lib/kernel/iptables.ts";
import { probeIptables } from "../../lib/kernel/iptables_variant.ts";
import type { IpFamily } from "../../lib/model/objects.ts";
import { silentLogger } from "../../lib/observe/log.ts";
import { signalChild } from "../../tools/end_programs.ts";
import { defaultSettings, type ServiceSizes, stateOf } from "../support/fake_iptables_state.ts";
import { iptablesLines } from "../support/iptables_rig.ts";
import { withNetns } from "../support/netns.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";

const NEEDS = [ROOT_NAMESPACES, program("iptables")];
const VARIANTS: readonly IptablesVariant[] = ["nft", "legacy"];

interface Rig {
  readonly iptables: Iptables;
  readonly proxier: IptablesProxier;
  sync(sizes: ServiceSizes, changed?: readonly string[]): ReturnType<IptablesProxier["sync"]>;
}

async function rig(
  exec: Exec,
  family: IpFamily,
  variant: IptablesVariant,
  largeChains?: number,
): Promise<Rig> {
  const iptables = new Iptables(exec, await probeIptables(exec, family, variant));
  const settings = defaultSettings(family);
  const proxier = new IptablesProxier({
    iptables,
    settings,
    interfaceIps: () => [],
    logger: silentLogger,
    ...(largeChains === undefined ? {} : { largeChains }),
  });
  return {
    iptables,
    proxier,
    sync: (sizes, changed) =>
      proxier.sync({
        state: stateOf(family, sizes),
        changed: changed === undefined ? "all" : new Set(changed.map((name) => `shop/${name}`)),
      }),
  };
}

async function freshEndState(
  sizes: ServiceSizes,
  family: IpFamily,
  variant: IptablesVariant,
): Promise<string[]> {
  return await withNetns(async ({ exec }) => {
    const { iptables, sync } = await rig(exec, family, variant);
    await sync(sizes);
    return iptablesLines(await iptables.save());
  });
}

/** Chain → a line that damages it. */
function damages(nat: string): [chain: string, line: string][] {
  const [service = "", endpoint = ""] = ["SVC", "SEP"].map((kind) =>
    new RegExp(`^:(KUBE-${kind}-\\S+)`, "m").exec(nat)?.[1]
  );
  return [
    ["KUBE-SERVICES", "-D KUBE-SERVICES 1"],
    ["KUBE-SERVICES", "-I KUBE-SERVICES -j RETURN"],
    ["KUBE-SERVICES", "-F KUBE-SERVICES"],
    [service, `-F ${service}`],
    [endpoint, `-D ${endpoint} 2`],
    [endpoint, `-A ${endpoint} -j RETURN`],
    [service, `-R ${service} 1 -j RETURN`],
  ];
}

for (const variant of VARIANTS) {
  for (const family of ["IPv4", "IPv6"] as const) {
    for (
      const [how, largeChains] of [["everything each time", 1_000], [
        "what packets cannot do without",
        0,
      ]] as const
    ) {
      e2eTest(
        `${variant} ${family}: looks at ${how} mind nothing and see what others did`,
        NEEDS,
        async () => {
          await withNetns(async ({ exec }) => {
            const { iptables, proxier, sync } = await rig(exec, family, variant, largeChains);
            const sizes = { "s1": 2, "s2-np": 3, "s3": 0, "s4": 2 };
            await sync(sizes);
            const wanted = iptablesLines(await iptables.save());
            // What -S prints must be taken for the same as what iptables-save prints.
            for (let looks = 0; looks < 4; looks++) assertEquals(await proxier.findDamage(), false);
            for (const [chain, rule] of damages(await iptables.save("nat"))) {
              if (largeChains === 0 && chain !== "KUBE-SERVICES") continue;
              await iptables.restore(`*nat\n${rule}\nCOMMIT\n`, { counters: false });
              assertEquals(await proxier.findDamage(), [`nat ${chain}`]);
              await sync(sizes);
              assertEquals(await proxier.findDamage(), false, "the look after the repair");
              assertEquals(iptablesLines(await iptables.save()), wanted);
            }
          });
        },
      );
    }
  }

  for (const by of ["program", "kernel"] as const) {
    e2eTest(
      `${variant}: what the real ${by} refuses of a Service costs only that Service`,
      NEEDS,
      async () => {
        // An endpoint of s5, as a port that no program takes, or as a target that the kernel does not know in table nat.
        let endpoint = "10.128.0.81";
        const spoilt = (text: string): string =>
          by === "program"
            ? text.replaceAll(`--to-destination ${endpoint}:8080`, `--to-destination ${endpoint}:70000`)
            : text.replaceAll(`-j DNAT --to-destination ${endpoint}:8080`, "-j REJECT");
        await withNetns(async ({ exec }) => {
          let isRefusing = true;
          const spoiling: Exec = {
            run: (argv, options = {}) => {
              const { stdin } = options;
              if (!isRefusing || stdin === undefined) return exec.run(argv, options);
              return exec.run(argv, { ...options, stdin: spoilt(wholeText(stdin)) });
            },
          };
          const { iptables, proxier, sync } = await rig(spoiling, "IPv4", variant);
          const others = { "s1": 2, "s2-np": 3, "s3": 0 };
          const first = await sync({ ...others, "s5": 1 });
          assertEquals(first.quarantined?.map(({ service }) => service), ["shop/s5"]);
          assertEquals(iptablesLines(await iptables.save()), await freshEndState(others, "IPv4", variant));
          isRefusing = false;
          const all = { ...others, "s5": 1 };
          assertEquals((await sync(all, ["s5"])).quarantined, []);
          isRefusing = true;
          endpoint = "10.128.0.82";
          // It changes together with another: that goes in, and this one keeps what it had.
          const changed = { ...all, "s1": 1, "s5": 2 };
          await iptables.restore("*nat\n-F KUBE-NODEPORTS\nCOMMIT\n");
          const report = await sync(changed);
          assertEquals(report.quarantined?.map(({ service }) => service), ["shop/s5"]);
          assertEquals(
            iptablesLines(await iptables.save()),
            await freshEndState({ ...all, "s1": 1 }, "IPv4", variant),
          );
          assertEquals(await proxier.findDamage(), false);
        });
      },
    );
  }
}

e2eTest("legacy: a lock held for longer than the program waits is waited for all the same", [
  ...NEEDS,
  program("flock"),
], async () => {
  await withNetns(async (netns) => {
    // A lock file of our own, because the real one is shared by all namespaces.
    const lockFile = await Deno.makeTempFile({ prefix: "kproxy-xtables-lock-" });
    const exec: Exec = {
      run: (argv, options) => netns.exec.run(["env", `XTABLES_LOCKFILE=${lockFile}`, ...argv], options),
    };
    const { iptables, sync } = await rig(exec, "IPv4", "legacy");
    const holder = new Deno.Command("flock", {
      args: [lockFile, "sh", "-c", "echo held; cat"],
      stdin: "piped",
      stdout: "piped",
    }).spawn();
    try {
      const said = holder.stdout.getReader();
      await said.read();
      await said.cancel();
      let isSynced = false;
      const synced = sync({ "s1": 1 }).then(() => isSynced = true);
      // It waits for 5 s.
      await new Promise((resolve) => setTimeout(resolve, 6_000));
      assertEquals(isSynced, false);
      await holder.stdin.close();
      await synced;
      assert((await iptables.save("nat")).includes("KUBE-SVC-"));
    } finally {
      await end(holder);
      await Deno.remove(lockFile);
    }
  });
});

async function end(child: Deno.ChildProcess): Promise<void> {
  signalChild(child);
  await child.status;
}
