import { createNetns, removeNetns } from "../support/netns.ts";
import { FakeApi } from "./fake_api_process.ts";
import { KproxyProcess } from "./kproxy_process.ts";
import { iptablesMode } from "./mode_iptables.ts";
import { NFTABLES_MODE } from "./mode_nftables.ts";
const [name, services] = Deno.args;
const mode = name === "nftables" ? NFTABLES_MODE : iptablesMode("nft");
const netns = await createNetns();
try {
  await mode.prepare(netns);
  const size = { services: Number(services), endpoints: 10 };
  const folder = await Deno.makeTempDir({ prefix: "kproxy-bench-" });
  await netns.run(["ip", "address", "add", "10.200.0.1/32", "dev", "lo"]);
  await netns.run(["ip", "route", "add", "10.96.0.0/12", "dev", "lo", "src", "10.200.0.1"]);
  await using api = await FakeApi.start(netns, size, `${folder}/x.sock`);
  await using kproxy = new KproxyProcess(netns, { master: api.url, mode: mode.proxyMode });
  await kproxy.allServed(900_000);
  console.log(netns.name);
  Deno.writeTextFileSync(`/tmp/quick-${name}`, netns.name);
  while (true) {
    await new Promise((r) => setTimeout(r, 200));
    try {
      Deno.statSync(`/tmp/quick-stop-${name}`);
      break;
    } catch { /* not yet */ }
  }
} finally {
  await removeNetns(netns);
}
Deno.exit(0);
