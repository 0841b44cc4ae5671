/**
 * Which mode a node comes to run: what a node lacks is named, `auto` and `--proxy-mode-fallback` take what works, and the
 * real mode shows in `/proxyMode`, in the metrics and in Events; at the start and when the configuration file changes.
 *
 * @module
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { findProgram } from "../../tools/setup.ts";
import { kproxyArgv } from "../cli/kproxy.ts";
import { ConnectLoop } from "../support/connect_loop.ts";
import { httpGet } from "../support/http_get.ts";
import { KAPI, Kapi } from "../support/kapi.ts";
import { KproxyProcess, type LogLine } from "../support/kproxy_process.ts";
import { LabGateway } from "../support/lab_gateway.ts";
import { WEB_CLUSTER_IP, WEB_NEEDS, WEB_PORT, WebLab } from "../support/lab_web.ts";
import { userspaceRules } from "../support/leftovers.ts";
import { type Netns, withNetns } from "../support/netns.ts";
import { e2eTest, program } from "../support/skip.ts";
import { tempFolder } from "../support/temp_files.ts";

/** Enough for iptables mode, and nothing that nftables and IPVS mode need. */
const IPTABLES_TOOLS = [
  ...["iptables", "ip6tables"].flatMap((tool) => [tool, `${tool}-save`, `${tool}-restore`]),
  ...["sysctl", "conntrack"],
];
const NEEDS = [...WEB_NEEDS, program("curl"), ...IPTABLES_TOOLS.map(program)];

/** A folder with these programs of the machine and no others. */
async function withPrograms(tools: readonly string[], work: (bin: string) => Promise<void>): Promise<void> {
  await using temporary = await tempFolder();
  const bin = temporary.path;
  for (const tool of tools) await Deno.symlink(findProgram(tool) ?? tool, `${bin}/${tool}`);
  await work(bin);
}

/** Runs kproxy with these programs only. */
function withPath(bin: string) {
  return { prefix: [findProgram("env") ?? "env", `PATH=${bin}`], deno: Deno.execPath() };
}

async function page(netns: Netns, path: string): Promise<string> {
  return (await httpGet(netns, `http://127.0.0.1:10249${path}`)).body;
}

function eventsOf(lines: readonly LogLine[], reason: string): readonly LogLine[] {
  return lines.filter((line) => line.msg === "Event" && line["reason"] === reason);
}

/** All choices: `lib/backend/node/choose_mode_test.ts`. */
const SERVED: readonly (readonly [args: readonly string[], note: RegExp | null])[] = [
  [["--proxy-mode=auto"], null],
  [["--proxy-mode=ipvs", "--proxy-mode-fallback"], /^cannot run mode ipvs, running mode iptables: ipvs: ./],
  [
    ["--proxy-mode=bogus", "--proxy-mode-fallback"],
    /^cannot run mode bogus, running mode iptables: bogus: there is no such mode$/,
  ],
];

for (const [args, note] of SERVED) {
  e2eTest(
    `a node with the tools of iptables only runs iptables mode for ${args.join(" ")}`,
    NEEDS,
    async () => {
      await withPrograms(IPTABLES_TOOLS, (bin) =>
        withNetns(async (netns) => {
          const folder = `${bin}/objects`;
          await Deno.mkdir(folder);
          const ours = [...args, `--manifests=${folder}`, "--hostname-override=node-a"];
          await using kproxy = await KproxyProcess.start({ netns, args: ours, as: withPath(bin) });
          assertEquals(await page(netns, "/proxyMode"), "iptables");
          assertMatch(await page(netns, "/configz"), /"mode":"iptables"/);
          assertMatch(await page(netns, "/metrics"), /^kubeproxy_sync_proxy_rules_iptables_total\{/m);
          assertMatch((await netns.exec.run(["iptables-save"])).stdout, /^:KUBE-SERVICES /m);
          assertEquals(eventsOf(kproxy.lines, "Starting").length, 1);
          const fallbacks = eventsOf(kproxy.lines, "ProxyModeFallback");
          assertEquals(fallbacks.length, note === null ? 0 : 1, kproxy.log);
          if (note !== null) {
            assertMatch(String(fallbacks[0]?.["note"]), note);
            await kproxy.untilMessage("Running another proxy mode than the configured one");
          }
          assertEquals((await kproxy.stop()).code, 0);
        }));
    },
  );
}

e2eTest("where ipvs gave way to iptables, the leftovers of all modes but iptables go", NEEDS, async () => {
  await withPrograms(IPTABLES_TOOLS, (bin) =>
    withNetns(async (netns) => {
      const folder = `${bin}/objects`;
      await Deno.mkdir(folder);
      await netns.run(["iptables-restore", "--noflush"], { stdin: userspaceRules("IPv4") });
      await netns.run(["iptables", "-N", "KUBE-IPVS-FILTER"]);
      const args = ["--proxy-mode=ipvs", "--proxy-mode-fallback", `--manifests=${folder}`];
      await using kproxy = await KproxyProcess.start({ netns, args, as: withPath(bin) });
      await kproxy.untilMessage("Removed what another mode left");
      const saved = await netns.run(["iptables-save"]);
      assertMatch(saved, /^:KUBE-SERVICES /m);
      assertEquals(saved.match(/KUBE-(PORTALS|IPVS)[-A-Z]*/g), null);
    }));
});

const REFUSALS: readonly (readonly [args: readonly string[], code: number, error: RegExp])[] = [
  [["--proxy-mode=iptables"], 1, /^Error: install iptables \(not on PATH: iptables, [^\n]*\)$/m],
  [["--proxy-mode=ipvs"], 1, /^Error: [^\n]*ipvs/im],
  [["--proxy-mode=nftables"], 1, /^Error: [^\n]*(nftables|nft)/im],
  [["--proxy-mode=userspace"], 1, /^Error: install iptables \(not on PATH: iptables, [^\n]*\)$/m],
  [["--proxy-mode=bogus"], 2, /--proxy-mode: Invalid value: "bogus": must be iptables, /],
  [
    ["--proxy-mode=ipvs", "--proxy-mode-fallback"],
    1,
    /^Error: no proxy mode works here: ipvs: [^\n]+; iptables: install iptables [^\n]+; userspace: install iptables /m,
  ],
];

e2eTest(
  "a mode that the node cannot run ends run with one line that names what is missing",
  NEEDS,
  async () => {
    await withPrograms([], (bin) =>
      withNetns(async (netns) => {
        const folder = `${bin}/objects`;
        await Deno.mkdir(folder);
        const before = await netns.run(["iptables-save"]);
        for (const [args, wanted, error] of REFUSALS) {
          const run = [...kproxyArgv(), "run", "--socket=", `--manifests=${folder}`, ...args];
          const { code, stderr } = await netns.exec.run([...withPath(bin).prefix, Deno.execPath(), ...run]);
          assertEquals(code, wanted, stderr);
          assertMatch(stderr, error);
          assertEquals(stderr.split("\n").filter((line) => line.startsWith("Error: ")).length, 1, stderr);
        }
        assertEquals(await netns.run(["iptables-save"]), before);
      }));
  },
);

interface Wanted {
  readonly mode: string;
  readonly fallback?: boolean;
}

/** kproxy on a node with the tools of iptables only, with a configuration file that a test changes. */
class Reloading {
  private constructor(
    readonly kproxy: KproxyProcess,
    readonly netns: Netns,
    readonly file: string,
    readonly more: string,
  ) {}

  static async with(
    { web, more = "" }: { readonly web: WebLab; readonly more?: string },
    work: (reloading: Reloading) => Promise<void>,
  ): Promise<void> {
    const { netns } = web.lab.node;
    await withPrograms(IPTABLES_TOOLS, async (bin) => {
      const file = `${bin}/config.yaml`;
      await Deno.writeTextFile(file, configText({ mode: "iptables" }, more));
      const args = [`--config=${file}`, "--hostname-override=node-a", `--manifests=${web.manifests.folder}`];
      await using kproxy = await KproxyProcess.start({ netns, args, as: withPath(bin) });
      await work(new Reloading(kproxy, netns, file, more));
      assertEquals((await kproxy.stop()).code, 0);
    });
  }

  /** Writes a mode that is refused; the problem that was told. */
  async refused(wanted: Wanted): Promise<string> {
    const lines = await this.kproxy.refused(() => this.#write(wanted));
    return JSON.stringify(lines.find(({ err }) => err !== undefined));
  }

  /** Writes what begins a new life, and waits until that serves. */
  anew(wanted: Wanted): Promise<readonly LogLine[]> {
    return this.kproxy.anew(() => this.#write(wanted));
  }

  #write(wanted: Wanted): Promise<void> {
    return Deno.writeTextFile(this.file, configText(wanted, this.more));
  }
}

function configText({ mode, fallback = false }: Wanted, more: string): string {
  return [
    "apiVersion: kubeproxy.config.k8s.io/v1alpha1",
    "kind: KubeProxyConfiguration",
    `mode: ${mode}`,
    "clusterCIDR: 10.244.0.0/16,fd00:10:244::/56",
    `kproxy: { proxyModeFallback: ${fallback} }`,
    more,
    "",
  ].join("\n");
}

const FELL_BACK = /^cannot run mode ipvs, running mode iptables: ipvs: ./;

e2eTest(
  "a changed mode is refused where it cannot run, and gives way with the fallback, while clients connect",
  NEEDS,
  async () => {
    await using web = await WebLab.create();
    await Reloading.with({ web }, async (node) => {
      const loop = await ConnectLoop.start(web.pod, { ip: WEB_CLUSTER_IP, port: WEB_PORT });
      await loop.answered(50);
      for (
        const [mode, named] of [
          ["ipvs", /ipvs/i],
          ["nftables", /nft/],
          ["bogus", /config\.yaml:3: mode: .*bogus/],
        ] as const
      ) {
        assertMatch(await node.refused({ mode }), named);
        assertEquals(await page(node.netns, "/proxyMode"), "iptables");
        await loop.answered(20);
      }
      const lines = await node.anew({ mode: "ipvs", fallback: true });
      assertEquals(await page(node.netns, "/proxyMode"), "iptables");
      assertMatch(String(eventsOf(lines, "ProxyModeFallback")[0]?.["note"]), FELL_BACK);
      assertEquals(eventsOf(lines, "Starting").length, 1);
      // A mode of its own again: nothing gives way any more.
      const auto = await node.anew({ mode: "auto" });
      assertEquals(eventsOf(auto, "ProxyModeFallback"), []);
      assertEquals(await page(node.netns, "/proxyMode"), "iptables");
      await loop.answered(50);
      await loop.stopUnbroken();
    });
  },
);

e2eTest("each life's Events arrive at the API server", [...NEEDS, ...KAPI], async () => {
  await using kapi = await Kapi.start();
  await using web = await WebLab.create();
  using _gateway = await LabGateway.open(web.lab.node.netns, kapi.port);
  const more = `clientConnection: { kubeconfig: ${kapi.kubeconfig} }`;
  await Reloading.with({ web, more }, async (node) => {
    await kapi.untilEvents(1, ({ reason }) => reason === "Starting");
    await node.refused({ mode: "ipvs" });
    const [refused] = await kapi.untilEvents(1, ({ reason }) => reason === "ConfigRefused");
    assertMatch(String(refused?.["note"]), /former one stays in force: .*ipvs/i);
    await node.anew({ mode: "ipvs", fallback: true });
    const [fallback] = await kapi.untilEvents(1, ({ reason }) => reason === "ProxyModeFallback");
    assertMatch(String(fallback?.["note"]), FELL_BACK);
    assertEquals(fallback?.["type"], "Warning");
    await kapi.untilEvents(2, ({ reason }) => reason === "Starting");
  });
});

e2eTest(
  "servers that cannot listen are reported as Events, and the proxy serves all the same",
  NEEDS,
  async () => {
    await withPrograms([...IPTABLES_TOOLS], (bin) =>
      withNetns(async (netns) => {
        const folder = `${bin}/objects`;
        await Deno.mkdir(folder);
        const [healthz, metrics] = ["192.0.2.77:10256", "192.0.2.77:10249"];
        const args = [
          `--manifests=${folder}`,
          "--hostname-override=node-a",
          `--healthz-bind-address=${healthz}`,
          `--metrics-bind-address=${metrics}`,
        ];
        await using kproxy = await KproxyProcess.start({ netns, args });
        for (
          const [reason, address] of [
            ["FailedToStartProxierHealthcheck", healthz],
            ["FailedToStartMetricServer", metrics],
          ] as const
        ) {
          const events = eventsOf(kproxy.lines, reason);
          assertEquals(events.length, 1, kproxy.log);
          assert(String(events[0]?.["note"]).startsWith(`cannot listen on ${address}: `), kproxy.log);
          assertEquals(events[0]?.["regarding"], "Node node-a");
        }
        assertEquals((await kproxy.stop()).code, 0);
      }));
  },
);
