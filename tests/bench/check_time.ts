/**
 * How long `kproxy check` takes from rules that were saved: reading them, planning, comparing; at last for kube-proxy's own table of
 * nftables mode, which is compared by packets.
 * `deno run -A tests/bench/check_time.ts --services 10000 --endpoints 10 [--only "nftables by packets"]`
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { planTexts } from "../../lib/backend/ipvs/diff/render.ts";
import { configForMode, defaultConfig } from "../../lib/config/defaults.ts";
import { checkNode } from "../../lib/inspect/check/check.ts";
import { differenceCount } from "../../lib/inspect/check/check_json.ts";
import {
  type DataPlane,
  type DesiredInput,
  stateOfObjects,
  UNKNOWN_MACHINE,
} from "../../lib/inspect/desired/desired.ts";
import { iptablesPlan, iptablesText } from "../../lib/inspect/desired/iptables.ts";
import { ipvsPlan } from "../../lib/inspect/desired/ipvs.ts";
import { nftablesPlan, nftablesText } from "../../lib/inspect/desired/nftables.ts";
import { liveOfTexts, type LiveText } from "../../lib/inspect/live/saved_texts.ts";
import type { ApiObject } from "../../lib/model/objects.ts";
import { FakeNft } from "../support/fake_nft.ts";
import { kubeProxyTable } from "../support/kube_proxy_layout.ts";
import { testService, testSlice, testSliceEndpoint } from "../support/model_objects.ts";

const { services, endpoints, only } = parseArgs(Deno.args, {
  string: ["services", "endpoints", "only"],
  default: { services: "10000", endpoints: "10", only: "" },
});

function objects(): readonly ApiObject[] {
  return Array.from({ length: Number(services) }, (_, at) => {
    const name = `s${at}`;
    const ips = Array.from(
      { length: Number(endpoints) },
      (_, slot) => `10.${128 + slot}.${at >> 8}.${at & 255}`,
    );
    return [
      testService({ name, clusterIP: `10.96.${at >> 8}.${at & 255}` }),
      testSlice({
        name: `${name}-1`,
        serviceName: name,
        endpoints: ips.map((ip) => testSliceEndpoint(ip, { nodeName: "node-a" })),
      }),
    ];
  }).flat();
}

/** As `iptables-save` prints rules: addresses first, then the protocol, then the comment. */
function saved(text: string): string {
  return text.replaceAll(
    /^-A (\S+) (-m comment --comment (?:"[^"]*"|\S+))(?: (-m tcp))?(?: (-p tcp))?(?: -([sd]) (\S+?))?( .*)$/gm,
    (_, chain: string, comment: string, module = "", protocol = "", side = "", address = "", rest = "") =>
      ["-A", chain, side === "" ? "" : `-${side} ${address}/32`, protocol, comment, module].filter((word) =>
        word !== ""
      )
        .join(" ") + rest,
  );
}

async function textsOf(plane: DataPlane, input: DesiredInput): Promise<readonly LiveText[]> {
  const family = "IPv4";
  if (plane === "iptables") {
    return [{ name: "iptables", family, text: saved(iptablesText(iptablesPlan(input, family))) }];
  }
  if (plane === "nftables") {
    const nft = new FakeNft();
    await nft.others(nftablesText(nftablesPlan(input, family)));
    return [{ name: "nft", text: nft.listed("ip kproxy") }];
  }
  const { iptables, ipset, ipvsadm } = planTexts(ipvsPlan(input, family));
  return [{ name: "iptables", family, text: iptables }, { name: "ipset", text: ipset }, {
    name: "ipvsadm",
    text: ipvsadm,
  }];
}

function print(line: string): void {
  Deno.stdout.writeSync(new TextEncoder().encode(`${line}\n`));
}

const all = objects();
const CASES = [
  ["iptables", "iptables"],
  ["nftables", "nftables"],
  ["ipvs", "ipvs"],
  ["nftables by packets", "nftables"],
] as const;
for (const [title, plane] of CASES.filter(([title]) => only === "" || only === title)) {
  const config = configForMode({ ...defaultConfig(), clusterCIDR: "10.128.0.0/9" }, plane);
  const inputOf = (): DesiredInput => ({
    ...stateOfObjects(all, "node-a", () => {}),
    config,
    machine: UNKNOWN_MACHINE,
    warn: () => {},
  });
  const texts = title === plane
    ? await textsOf(plane, inputOf())
    : [{ name: "nft", text: await kubeProxyTable(inputOf()) }];
  for (const round of [1, 2]) {
    const begin = performance.now();
    const desired = inputOf();
    const folded = performance.now();
    const live = liveOfTexts(texts, { from: "texts", bound: null, problems: [] });
    const read = performance.now();
    const checks = await checkNode({
      plane,
      desired,
      live,
      isKernel: false,
      nodeAddresses: ["192.0.2.10"],
      podInterface: "cni0",
      quarantined: null,
    });
    const end = performance.now();
    const differences = checks.reduce((sum, check) => sum + differenceCount(check), 0);
    const parts = [folded - begin, read - folded, end - read].map((ms) => `${(ms / 1000).toFixed(2)} s`);
    print(
      `${title} ${services} x ${endpoints}, round ${round}: ${
        ((end - begin) / 1000).toFixed(2)
      } s (objects, reading, comparing: ${parts.join(", ")}), ${differences} differences`,
    );
  }
}
