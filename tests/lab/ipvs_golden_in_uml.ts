/**
 * What the tools say after a first sync of IPVS mode, beside what they said after kube-proxy's, inside of the user-mode Linux:
 * `tests/lab/uml.sh 'deno test -A tests/lab/ipvs_golden_in_uml.ts'`.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import type { ObjectJson } from "../../lib/source/decode/api_json.ts";
import { readDevices } from "../../lib/kernel/ip_address.ts";
import { parseIptablesSave } from "../../lib/netfilter/iptables_save.ts";
import {
  canonicalChains,
  expectedChains,
  IPVS_GOLDEN_NAMES,
  ipvsGoldenUrl,
  linesOf,
  loadCreateLines,
  loadIpvsGolden,
  serversByKey,
} from "../support/golden_ipvs.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { LabManifests } from "../support/lab_manifests.ts";
import { withNetns } from "../support/netns.ts";

const NODE = {
  apiVersion: "v1",
  kind: "Node",
  metadata: { name: "node-a" },
  status: { addresses: [{ type: "InternalIP", address: "192.0.2.10" }] },
} satisfies ObjectJson<"Node">;

/** The `create` lines of `ipset save`, sorted, without what the kernel says of its own memory. */
function createLinesOf(sets: string): string[] {
  return linesOf(sets, "create ").map((line) => line.replace(/ bucketsize \d+ initval 0x[0-9a-f]+$/, ""))
    .sort();
}

for (const name of IPVS_GOLDEN_NAMES) {
  Deno.test(`the kernel holds what kube-proxy makes of ${name}`, async () => {
    const golden = loadIpvsGolden(name);
    await using manifests = await LabManifests.create();
    await manifests.replaceText(
      "objects.yaml",
      await Deno.readTextFile(ipvsGoldenUrl(`${name}/objects.yaml`)),
    );
    await manifests.replace("node.json", [NODE]);
    await withNetns(async (netns) => {
      await netns.run(["ip", "link", "add", "eth0", "type", "dummy"]);
      for (const address of ["192.0.2.10/24", "2001:db8:2::10/64"]) {
        await netns.run(["ip", "address", "add", address, "dev", "eth0"]);
      }
      await netns.run(["ip", "link", "set", "eth0", "up"]);
      await using _kproxy = await KproxyProcess.start({
        netns,
        args: [
          ...["--proxy-mode=ipvs", "--hostname-override=node-a", "--cluster-cidr=10.244.0.0/16"],
          `--manifests=${manifests.folder}`,
        ],
      });
      assertEquals(serversByKey(await netns.run(["ipvsadm", "-Sn"])), serversByKey(golden.ipvsadm));
      const sets = await netns.run(["ipset", "save"]);
      assertEquals(linesOf(sets, "add ").sort(), linesOf(golden.ipset, "add ").sort());
      assertEquals(createLinesOf(sets), loadCreateLines().sort());
      const { addresses } = await readDevices(netns.exec);
      const bound = ["KUBE-IPVS-IPS", "KUBE-6-IPVS-IPS"].flatMap((set) =>
        linesOf(golden.ipset, `add ${set} `).map((line) => line.split(" ")[2])
      );
      const onDevice = addresses.filter(({ device }) => device === "kube-ipvs0").map(({ address }) =>
        address
      );
      assertEquals(onDevice.sort(), bound.sort());
      for (const [save, family] of [["iptables-save", "IPv4"], ["ip6tables-save", "IPv6"]] as const) {
        const saved = parseIptablesSave(await netns.run([save]));
        const tables = new Map([...saved].filter(([table]) => table !== "mangle"));
        // The captures leave out that the kernel has this one.
        const { "nat INPUT": natInput, ...chains } = canonicalChains(tables);
        assertEquals(natInput, []);
        assertEquals(chains, expectedChains(name, family), save);
      }
    });
  });
}
