/**
 * UDP flows in IPVS mode, inside of the user-mode Linux: `tests/lab/uml.sh 'deno test -A tests/lab/conntrack_in_uml.ts'`.
 * One family is enough of this slow kernel: nothing of it differs but the addresses, and the other modes go through both.
 *
 * @module
 */
import { followUdpEndpoints } from "../support/udp_story.ts";

/** Here the start of a program holds up an answer, and five senders at full speed hold up the start of programs. */
const SLOWNESS = 10;

Deno.test("kproxy run: UDP flows follow their endpoints, ipvs, IPv4", () =>
  followUdpEndpoints("ipvs", "IPv4", { slowness: SLOWNESS }));
