/**
 * Connect loops over TCP and UDP through everything that may become of a proxy in IPVS mode, on the ways from and to iptables mode, and
 * between kube-proxy and kproxy in both (docs/migrate.md). The kernels of most test machines have no IPVS, so this runs in a user-mode Linux.
 *
 * @module
 */
import { e2eTest, program } from "../support/skip.ts";
import { testInUml, UML_NEEDS } from "../support/uml.ts";

/** Three minutes or less where nothing else runs; many times that where much does. */
const LIMIT_MS = 2_700_000;

e2eTest(
  "no connection fails while a node comes to mode ipvs, lives there and goes, under kproxy and kube-proxy, in a user-mode Linux",
  [...UML_NEEDS, program("curl")],
  () => testInUml(["tests/lab/ipvs_switches_in_uml.ts"], "1 passed (10 steps) | 0 failed", LIMIT_MS),
);
