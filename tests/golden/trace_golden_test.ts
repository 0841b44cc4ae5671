/**
 * Rules in kube-proxy's layout, as the golden files hold them, walked by `kproxy trace`: every address of every Service leads where the
 * objects say, for a pod, the node and the world.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { configForMode, defaultConfig } from "../../lib/config/defaults.ts";
import {
  type DesiredInput,
  desiredRules,
  type RulesMode,
  stateOf,
  stateOfObjects,
  UNKNOWN_MACHINE,
} from "../../lib/inspect/desired/desired.ts";
import { iptablesPlan } from "../../lib/inspect/modes/iptables.ts";
import { liveOfTexts, type LiveText } from "../../lib/inspect/live/saved_texts.ts";
import { packetProtocol } from "../../lib/inspect/trace/packet.ts";
import { tracePacket } from "../../lib/inspect/trace/trace.ts";
import type { ApiObject, IpFamily } from "../../lib/model/objects.ts";
import type { ServicePort } from "../../lib/model/state.ts";
import type { Packet } from "../../lib/sim/flow.ts";
import { GOLDEN_PERMISSIONS, goldenNames, loadGolden } from "../support/golden.ts";
import { IPVS_GOLDEN_NAMES, ipvsGoldenUrl, loadIpvsGolden } from "../support/golden_ipvs.ts";

const NODE_IPS: Readonly<Record<IpFamily, string>> = { IPv4: "192.0.2.10", IPv6: "2001:db8:2::10" };
const SOURCES: Readonly<Record<IpFamily, readonly (readonly [source: string, inInterface: string])[]>> = {
  IPv4: [["10.244.0.5", "cni0"], ["198.51.100.7", "eth0"], ["192.0.2.10", ""]],
  IPv6: [["fd00:10:244::5", "cni0"], ["2001:db8:77::7", "eth0"], ["2001:db8:2::10", ""]],
};

function inputOf(mode: RulesMode, objects: readonly ApiObject[], bindAddress: string): DesiredInput {
  const state = stateOfObjects(objects, "node-a", () => {});
  const config = configForMode({ ...defaultConfig(), clusterCIDR: "10.244.0.0/16", bindAddress }, mode);
  return { ...state, config, machine: UNKNOWN_MACHINE, warn: () => {} };
}

/** The text with what leads into its rules from the kernel's chains, which the golden files keep apart. */
function withJumps(
  text: string,
  jumps: readonly {
    readonly table: string;
    readonly chain: string;
    readonly args: string;
    readonly target: string;
  }[],
): string {
  return text.split("COMMIT\n").map((part) => {
    const table = /^\*(\w+)/m.exec(part)?.[1];
    if (table === undefined) return part;
    const lines = jumps.filter((jump) => jump.table === table && part.includes(`:${jump.target} `))
      .map(({ chain, args }) => `-I ${chain} ${args}\n`);
    return `${part}${lines.join("")}COMMIT\n`;
  }).join("");
}

function packetsTo(port: ServicePort, family: IpFamily): readonly Packet[] {
  const ips = [port.clusterIP, ...port.externalIPs, ...port.loadBalancerVIPs].map((ip) =>
    [ip, port.port] as const
  );
  const all = port.nodePort === 0 ? ips : [...ips, [NODE_IPS[family], port.nodePort] as const];
  return all.flatMap(([destination, to]) =>
    SOURCES[family].map(([source, inInterface]): Packet => ({
      source,
      inInterface,
      destination,
      port: to,
      protocol: packetProtocol(port.protocol),
      state: "NEW",
      mark: 0,
    }))
  );
}

/** How many packets fared as the objects say; all others are told. */
async function walk(
  mode: RulesMode,
  input: DesiredInput,
  texts: readonly LiveText[],
  family: IpFamily,
): Promise<number> {
  const live = liveOfTexts(texts, { from: "golden files", bound: null, problems: [] }).get(family);
  assert(live !== undefined);
  assertEquals([live.problems, live.proxies.map(({ mode, isHooked }) => [mode, isHooked])], [[], [[
    mode,
    true,
  ]]]);
  const rules = await desiredRules(mode, input, family);
  const hostState = {
    nodeAddresses: [NODE_IPS[family]],
    affinity: new Map(),
    nowSeconds: 0,
  };
  let walked = 0;
  for (const port of [...stateOf(input, family).services.values()].flat()) {
    for (const packet of packetsTo(port, family)) {
      const desired = { from: "objects", mode, state: input, rules, quarantined: null };
      const trace = tracePacket({ family, packet, hostState, desired, live, findings: [], notes: [] });
      assertEquals([trace.difference, trace.findings], [null, []], `${port.text} ${JSON.stringify(packet)}`);
      assertEquals(trace.service?.port.key, port.key);
      walked++;
    }
  }
  return walked;
}

Deno.test(
  "golden rules of iptables mode lead where the objects say",
  { permissions: GOLDEN_PERMISSIONS },
  async () => {
    let walked = 0;
    for (const name of goldenNames()) {
      const { objects, expected } = loadGolden(name);
      for (const family of ["IPv4", "IPv6"] as const) {
        const golden = expected[family];
        if (golden === undefined) continue;
        const input = inputOf("iptables", objects, "192.0.2.10");
        const text = withJumps(golden, iptablesPlan(input, family).base.jumps);
        walked += await walk("iptables", input, [{ name, text, family }], family);
      }
    }
    assert(walked > 100, `${walked} packets`);
  },
);

Deno.test("captures of kube-proxy's IPVS mode lead where the objects say", {
  permissions: GOLDEN_PERMISSIONS,
}, async () => {
  let walked = 0;
  for (const name of IPVS_GOLDEN_NAMES) {
    const { objects, ipvsadm, ipset, rules } = loadIpvsGolden(name);
    const save = rules["iptables-save.txt"];
    // The second one has only what the first has not.
    if (save === undefined) continue;
    const input = inputOf("ipvs", objects, "192.0.2.10");
    const create = Deno.readTextFileSync(ipvsGoldenUrl("create.txt"));
    const texts: LiveText[] = [
      {
        name: "iptables-save.txt",
        text: save,
        family: "IPv4",
      },
      { name: "ipvsadm.txt", text: ipvsadm },
      { name: "ipset.txt", text: create + ipset },
    ];
    walked += await walk("ipvs", input, texts, "IPv4");
  }
  assert(walked > 20, `${walked} packets`);
});
