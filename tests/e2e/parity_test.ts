/**
 * What `kproxy run` leaves in the kernel, against what kube-proxy leaves there for the same objects: its own restore text and its
 * jumps, loaded by the real tools into another namespace. `iptables-save` must say the same of both, line by line.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import type { ObjectJson } from "../../lib/source/decode/api_json.ts";
import type { IpFamily } from "../../lib/model/objects.ts";
import { goldenNames, loadGolden } from "../support/golden.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { LabManifests } from "../support/lab_manifests.ts";
import { inComparableOrder, saveTable } from "../support/lab_rules.ts";
import { type Netns, withNamespaces, withNetns } from "../support/netns.ts";
import { ROOT } from "../../tools/project_files.ts";
import { kproxy } from "../cli/kproxy.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";

const GOLDEN = new URL("../golden/", import.meta.url);
const TOOLS: readonly [IpFamily, string][] = [["IPv4", "iptables"], ["IPv6", "ip6tables"]];

/** kube-proxy's jumps in the order in which it inserts them, each at the top. */
const JUMPS: readonly string[] = [
  "filter INPUT -m conntrack --ctstate NEW -m comment --comment |kubernetes externally-visible service portals| -j KUBE-EXTERNAL-SERVICES",
  "filter FORWARD -m conntrack --ctstate NEW -m comment --comment |kubernetes externally-visible service portals| -j KUBE-EXTERNAL-SERVICES",
  "filter INPUT -m comment --comment |kubernetes health check service ports| -j KUBE-NODEPORTS",
  "filter FORWARD -m conntrack --ctstate NEW -m comment --comment |kubernetes service portals| -j KUBE-SERVICES",
  "filter OUTPUT -m conntrack --ctstate NEW -m comment --comment |kubernetes service portals| -j KUBE-SERVICES",
  "filter FORWARD -m comment --comment |kubernetes forwarding rules| -j KUBE-FORWARD",
  "filter INPUT -m conntrack --ctstate NEW -m comment --comment |kubernetes load balancer firewall| -j KUBE-PROXY-FIREWALL",
  "filter OUTPUT -m conntrack --ctstate NEW -m comment --comment |kubernetes load balancer firewall| -j KUBE-PROXY-FIREWALL",
  "filter FORWARD -m conntrack --ctstate NEW -m comment --comment |kubernetes load balancer firewall| -j KUBE-PROXY-FIREWALL",
  "nat OUTPUT -m comment --comment |kubernetes service portals| -j KUBE-SERVICES",
  "nat PREROUTING -m comment --comment |kubernetes service portals| -j KUBE-SERVICES",
  "nat POSTROUTING -m comment --comment |kubernetes postrouting rules| -j KUBE-POSTROUTING",
  "filter INPUT -j KUBE-FIREWALL",
  "filter OUTPUT -j KUBE-FIREWALL",
];

/** A jump as arguments; what stands between bars is one. */
function jumpArgs(jump: string): { table: string; args: string[]; target: string } {
  const [table = "", ...rest] = jump.split(" ");
  const [head = "", comment, tail = ""] = rest.join(" ").split("|");
  const words = (text: string): string[] => text.split(" ").filter((word) => word !== "");
  const args = [...words(head), ...(comment === undefined ? [] : [comment]), ...words(tail)];
  return { table, args, target: args.at(-1)! };
}

/** Does what kube-proxy does in its first sync: chains and jumps one by one, canaries, then one restore. */
async function loadAsKubeProxy(netns: Netns, tool: string, text: string): Promise<void> {
  const run = (...args: readonly string[]) => netns.exec.run([tool, "-w", "5", ...args]);
  for (const { table, args, target } of JUMPS.map(jumpArgs)) {
    await run("-t", table, "-N", target); // It may be there.
    await netns.run([tool, "-w", "5", "-t", table, "-I", ...args]);
  }
  for (const table of ["mangle", "nat", "filter"]) {
    await netns.run([tool, "-w", "5", "-t", table, "-N", "KUBE-PROXY-CANARY"]);
  }
  await netns.run([`${tool}-restore`, "-w", "5", "--noflush", "--counters"], { stdin: text });
}

async function comparable(netns: Netns, tool: string): Promise<string[]> {
  const lines: string[] = [];
  for (const table of ["filter", "nat"]) {
    lines.push(...inComparableOrder(await saveTable(netns, tool, table)));
  }
  return lines;
}

/** The node of kube-proxy's captures has one address, of IPv4. */
const NODE = {
  apiVersion: "v1",
  kind: "Node",
  metadata: { name: "node-a" },
  status: { addresses: [{ type: "InternalIP", address: "192.0.2.10" }] },
} satisfies ObjectJson<"Node">;

async function runOn(netns: Netns, name: string): Promise<void> {
  await using manifests = await LabManifests.create();
  const text = (file: string) => Deno.readTextFile(new URL(`${name}/${file}`, GOLDEN));
  const { before } = loadGolden(name);
  await manifests.replace("node.json", [NODE]);
  await manifests.replaceText("objects.yaml", await text(before === null ? "objects.yaml" : "before.yaml"));
  await using kproxy = await KproxyProcess.start({
    netns,
    args: [
      "--hostname-override=node-a",
      "--cluster-cidr=10.244.0.0/16",
      "--iptables-min-sync-period=0s",
      `--manifests=${manifests.folder}`,
    ],
  });
  if (before !== null) {
    const from = kproxy.lines.length;
    await manifests.replaceText("objects.yaml", await text("objects.yaml"));
    await kproxy.untilMessage("Synced rules", from);
  }
  assertEquals((await kproxy.stop()).code, 0);
}

for (const variant of ["nft", "legacy"]) {
  const needs = [ROOT_NAMESPACES, ...["ip", `iptables-${variant}`, `ip6tables-${variant}`].map(program)];
  e2eTest(`iptables-save says of kproxy what it says of kube-proxy, ${variant}`, needs, async (t) => {
    for (const name of goldenNames()) {
      await t.step(name, () =>
        withNamespaces(2, async ([own, original]) => {
          await own!.run([`iptables-${variant}`, "-w", "5", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT"]);
          await runOn(own!, name);
          const { expected } = loadGolden(name);
          for (const [family, tool] of TOOLS) {
            const text = expected[family];
            if (text === undefined) continue;
            await loadAsKubeProxy(original!, `${tool}-${variant}`, text);
            assertEquals(
              await comparable(own!, `${tool}-${variant}`),
              await comparable(original!, `${tool}-${variant}`),
            );
          }
        }));
    }
  });
}

e2eTest(
  "what render prints of the examples is loaded by the real tools",
  [
    ROOT_NAMESPACES,
    ...["ip", "iptables-nft", "ip6tables-nft", "iptables-legacy", "ip6tables-legacy"].map(program),
  ],
  async (t) => {
    const folders = [...Deno.readDirSync(`${ROOT}/examples`)].filter(({ isDirectory }) => isDirectory);
    for (const { name } of folders) {
      await t.step(name, () =>
        withNetns(async (netns) => {
          const { code, out, err } = await kproxy(["render", `--manifests=${ROOT}/examples/${name}`]);
          assertEquals([code, err], [0, ""]);
          // The text of the second family, if there is one, begins with a comment.
          const [four = "", six = ""] = out.split(/^(?=# IPv6:)/m);
          const texts = [["iptables", four], ["ip6tables", six]].filter(([, text]) => text !== "");
          assert(four.includes("*nat"), out);
          for (const variant of ["nft", "legacy"]) {
            for (const [tool, text] of texts) {
              await netns.run([`${tool}-${variant}-restore`, "--test", "--noflush"], { stdin: text! });
            }
          }
        }));
    }
  },
);
