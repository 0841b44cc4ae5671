/**
 * The applier and the cleanup on the real kernel: adoption of rules that are there under traffic, failures, flushes.
 */
import { assert, assertEquals, assertGreater } from "@std/assert";
import { IptablesProxier } from "../../lib/backend/iptables/apply/proxier.ts";
import { cleanupIptables, cleanupTargets } from "../../lib/backend/node/iptables_leftovers.ts";
import { JUMP_RULES } from "../../lib/backend/iptables/plan/base_rules.ts";
import { type Exec, wholeText } from "../../lib/kernel/exec.ts";
import { Iptables, type IptablesVariant } from "../../lib/kernel/iptables.ts";
import { probeIptables } from "../../lib/kernel/iptables_variant.ts";
import type { IpFamily } from "../../lib/model/objects.ts";
import { silentLogger } from "../../lib/observe/log.ts";
import { parseIptablesSave } from "../../lib/netfilter/iptables_save.ts";
import { signalChild } from "../../tools/end_programs.ts";
import { defaultSettings, type ServiceSizes, stateOf } from "../support/fake_iptables_state.ts";
import { iptablesLines } from "../support/iptables_rig.ts";
import { type Netns, withNetns } from "../support/netns.ts";
import type { ConnectReport } from "../support/netns_connect_loop.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";

const NEEDS = [ROOT_NAMESPACES, program("iptables")];
const VARIANTS: readonly IptablesVariant[] = ["nft", "legacy"];
const LOOP = new URL("../support/netns_connect_loop.ts", import.meta.url).pathname;

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

function services(count: number, size: number): Record<string, number> {
  return Object.fromEntries(Array.from({ length: count }, (_, i) => [`s${i}`, size]));
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

/** The rules of a former run, with its jumps in the places where kube-proxy has them: each inserted singly at the top. */
async function leaveRules(
  netns: Netns,
  family: IpFamily,
  variant: IptablesVariant,
  sizes: ServiceSizes,
) {
  const { iptables, sync } = await rig(netns.exec, family, variant);
  await sync(sizes);
  for (const table of ["filter", "nat"] as const) {
    const jumps = JUMP_RULES.filter((jump) => jump.table === table);
    const lines = [
      ...jumps.map(({ chain, args }) => `-D ${chain} ${args}`),
      ...jumps.map(({ chain, args }) => `-I ${chain} ${args}`),
    ];
    await iptables.restore([`*${table}`, ...lines, "COMMIT", ""].join("\n"));
  }
}

for (const variant of VARIANTS) {
  for (const family of ["IPv4", "IPv6"] as const) {
    e2eTest(
      `${variant} ${family}: events on the real kernel end in the rules of a fresh sync`,
      NEEDS,
      async () => {
        const last = { "s3": 1, "s4-np": 1, "s6-np": 2 };
        await withNetns(async ({ exec }) => {
          const { iptables, proxier, sync } = await rig(exec, family, variant);
          await sync({ "s1": 2, "s2-np": 3, "s3": 0 });
          await sync({ "s1": 4, "s2-np": 3, "s3": 1 }, ["s1", "s3"]);
          await sync({ "s1": 4, "s3": 1 }, ["s2-np"]);
          assertEquals(await proxier.findDamage(), false);
          // Another process takes a rule away that the next change deletes: refused, counted, and everything is written at once.
          await iptables.restore("*nat\n-F KUBE-SERVICES\nCOMMIT\n");
          const { isChangeRefused } = await sync({ "s3": 1, "s4-np": 1 }, ["s1", "s4-np"]);
          assertEquals(isChangeRefused, true);
          const report = await sync(last, ["s6-np"]);
          assertEquals(report.commands, 1);
          assertEquals(iptablesLines(await iptables.save()), await freshEndState(last, family, variant));
        });
      },
    );
  }

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
              assertEquals(await proxier.findDamage(), { services: "all", found: [`nat ${chain}`] });
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

  e2eTest(`${variant}: a flush of any table is noticed and repaired`, NEEDS, async () => {
    await withNetns(async ({ exec }) => {
      const { iptables, proxier, sync } = await rig(exec, "IPv4", variant);
      const sizes = { "s1": 2, "s2-np": 1, "s3": 0 };
      await sync(sizes);
      const before = iptablesLines(await iptables.save());
      for (const flushed of [["nat"], ["filter"], ["mangle"], ["nat", "filter", "mangle"]]) {
        for (const action of ["-F", "-X"]) {
          for (const table of flushed) {
            const argv = [`iptables-${variant}`, "-w", "5", action, "-t", table];
            assertEquals((await exec.run(argv)).code, 0, argv.join(" "));
          }
        }
        const damage = await proxier.findDamage();
        assertEquals(damage && damage.services, "all", flushed.join());
        await sync(sizes);
        assertEquals(await proxier.findDamage(), false);
        assertEquals(iptablesLines(await iptables.save()), before);
      }
    });
  });

  e2eTest(`${variant}: rules that are there are adopted under traffic, then cleaned`, NEEDS, async () => {
    await withNetns(async (netns) => {
      const before = services(150, 10);
      await leaveRules(netns, "IPv4", variant, before);
      const after: Record<string, number> = { ...before, "s3": 4, "s200-np": 2 };
      delete after["s5"];
      // All ten endpoints of s1 are addresses of this namespace: 10.128.0.17 to .26.
      for (let i = 17; i <= 26; i++) await netns.run(["ip", "addr", "add", `10.128.0.${i}/32`, "dev", "lo"]);
      await netns.run(["ip", "route", "add", "default", "dev", "lo"]);
      const { iptables, sync } = await rig(netns.exec, "IPv4", variant);
      const { report, events } = await underTraffic(netns, "10.96.0.1", async () => {
        for (let i = 0; i < 3; i++) await sync(after);
      });
      assertGreater(report.connections, 20);
      assertEquals(report.failures, []);
      const gaps = events.split("\n").filter((line) =>
        /delete rule ip nat (PREROUTING|OUTPUT|POSTROUTING)|delete chain ip nat KUBE-(SERVICES|NODEPORTS)/
          .test(line)
      );
      assertEquals(gaps, []);
      assert(variant === "legacy" || events.includes("KUBE-SVC-"), "the monitor saw the syncs");
      assertEquals(iptablesLines(await iptables.save()), await freshEndState(after, "IPv4", variant));

      const jump = 'OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES';
      const gap = await underTraffic(netns, "10.96.0.1", async (begun) => {
        await iptables.restore(`*nat\n-D ${jump}\nCOMMIT\n`);
        await begun(10);
        await iptables.restore(`*nat\n-I ${jump}\nCOMMIT\n`);
        // Those of the gap never come.
      }, 3_000);
      assertGreater(gap.report.failures.length, 0, "the client would have noticed a gap");

      const cleaned = await cleanupIptables(await cleanupTargets(netns.exec));
      assertEquals([cleaned.failed, cleaned.kept], [[], []]);
      const left = parseIptablesSave(await iptables.save());
      const chains = [...left].flatMap(([table, found]) =>
        [...found].filter(([, { policy }]) => policy === "-").map(([name]) => `${table} ${name}`)
      );
      assertEquals(chains, []);
    });
  });
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

/**
 * Runs `work` while a client connects 100 times a second, and while `nft monitor` listens. What `work` is given resolves when so many
 * more connections have begun.
 */
async function underTraffic(
  netns: Netns,
  ip: string,
  work: (begun: (count: number) => Promise<void>) => Promise<void>,
  ...patienceMs: readonly number[]
): Promise<{ report: ConnectReport; events: string }> {
  const start = (argv: readonly string[], stdin: "piped" | "null" = "null") =>
    new Deno.Command("ip", { args: ["netns", "exec", netns.name, ...argv], stdin, stdout: "piped" }).spawn();
  const deno = [Deno.execPath(), "run", "--no-config", "-A", LOOP];
  const server = start([...deno, "server", "0.0.0.0", "8080"]);
  const monitor = start(["nft", "monitor"]);
  const monitored = new Response(monitor.stdout).text();
  try {
    const reader = server.stdout.getReader();
    await reader.read();
    await reader.cancel();
    const client = start([...deno, "client", ip, "80", ...patienceMs.map(String)], "piped");
    let printed = "";
    const ended = (async () => {
      for await (const text of client.stdout.pipeThrough(new TextDecoderStream())) printed += text;
      await client.status;
    })();
    const begun = async (count: number): Promise<void> => {
      const wanted = printed.length + count;
      while (printed.length < wanted) await new Promise((resolve) => setTimeout(resolve, 10));
    };
    await begun(30);
    await work(begun);
    await client.stdin.close();
    await ended;
    const report = JSON.parse(printed.slice(printed.indexOf("\n"))) as ConnectReport;
    monitor.kill("SIGTERM");
    return { report, events: await monitored };
  } finally {
    for (const child of [server, monitor]) await end(child);
    await monitored;
  }
}

async function end(child: Deno.ChildProcess): Promise<void> {
  signalChild(child);
  await child.status;
}
