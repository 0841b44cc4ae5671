/**
 * From kube-proxy to kproxy and back, in modes iptables and nftables, under connect loops over TCP and UDP, in both IP families: not one
 * connection fails, those that are open go on, and nothing is left of the former proxy (docs/migrate.md).
 *
 * @module
 */
import { WEB_NEEDS } from "../support/lab_web.ts";
import { e2eTest, program } from "../support/skip.ts";
import { type Step, walk } from "../support/switch_lab.ts";

/** Each way from one to the other once, and the one that goes by a change of the mode under kproxy. */
const WAYS: readonly Step[] = [
  { to: "nftables", by: "kproxy" },
  { to: "nftables", by: "kube-proxy" },
  { to: "iptables", by: "kproxy" },
  { to: "iptables", by: "kube-proxy" },
  { to: "nftables", by: "kproxy" },
  { to: "iptables", by: "kube-proxy" },
  { to: "iptables", by: "kproxy" },
  { to: "nftables", by: "reload" },
  { to: "nftables", by: "kube-proxy" },
];

e2eTest(
  "no connection fails on any way between kube-proxy and kproxy, in modes iptables and nftables",
  [...WEB_NEEDS, program("curl"), program("nft"), program("ipset")],
  (t) => walk(t, { to: "nftables", by: "kube-proxy" }, WAYS),
);
