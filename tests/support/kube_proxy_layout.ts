/**
 * Services in the layout of kube-proxy's nftables mode: a chain each, with a map of its own.
 *
 * @module
 */
import { renderPlan } from "../../lib/backend/nftables/store/full_sync.ts";
import { type DesiredInput, stateOf, stateOfObjects } from "../../lib/inspect/desired/desired.ts";
import { nftablesPlan } from "../../lib/inspect/modes/nftables.ts";
import { FakeNft } from "./fake_nft.ts";

/** Table `ip kube-proxy` as nft lists it, for TCP Services with cluster IPs; `change` adds commands for nft. */
export async function kubeProxyTable(input: DesiredInput, change = ""): Promise<string> {
  const nothing = { ...input, ...stateOfObjects([], input.nodeName, () => {}) };
  const base = renderPlan(nftablesPlan(nothing, "IPv4")).replaceAll(" ip kproxy", " ip kube-proxy");
  const { services, endpoints } = stateOf(input, "IPv4");
  const lines = services.values().flatMap((ports) => ports).flatMap((port) => {
    const chain = `service-${port.text}`;
    const all = endpoints.get(port.namespacedName)?.get(port.key) ?? [];
    const slots = all.map(({ ip, port }, slot) => `${slot} : ${ip} . ${port}`).join(", ");
    return [
      `add chain ip kube-proxy ${chain}`,
      `add rule ip kube-proxy ${chain} meta l4proto tcp dnat ip to numgen random mod ${all.length} map { ${slots} }`,
      `add element ip kube-proxy cluster-ips { ${port.clusterIP} }`,
      `add element ip kube-proxy service-ips { ${port.clusterIP} . tcp . ${port.port} : goto ${chain} }`,
    ];
  });
  const nft = new FakeNft();
  await nft.others(`${base}${[...lines].join("\n")}\n${change}`);
  return nft.listed("ip kube-proxy");
}
