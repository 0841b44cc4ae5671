/**
 * SCTP Services with real SCTP sockets. The kernels of most test machines have none, so this runs in a user-mode Linux, with some
 * TCP and UDP beside it: another kernel, and the legacy iptables only, because that kernel has no nftables for IP. Where there are
 * no such sockets `flows_test.ts` makes the first two packets of SCTP by hand, in all of its modes.
 *
 * @module
 */
import { e2eTest } from "../support/skip.ts";
import { testInUml, UML_NEEDS } from "../support/uml.ts";

const LIMIT_MS = 2_700_000;

e2eTest(
  "SCTP Services, and some of TCP and UDP, in a user-mode Linux",
  UML_NEEDS,
  () => testInUml(["tests/lab/flows_in_uml.ts"], "1 passed (7 steps) | 0 failed", LIMIT_MS),
);
