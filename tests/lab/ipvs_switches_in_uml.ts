/**
 * Connect loops while a node runs IPVS mode and goes to and from it (asks row 7), inside of the user-mode Linux:
 * `tests/lab/uml.sh 'deno test -A tests/lab/ipvs_switches_in_uml.ts'`. Its kernel is slow, and speaks no nftables.
 *
 * @module
 */
import { thereAndBack, walk, within } from "../support/switch_lab.ts";

/** All six loops together are as many connections as one of those elsewhere; a first packet that was lost still counts. */
const PACE = { perSecond: 20, limitMs: 900 };

Deno.test("no connection fails while kproxy in mode ipvs is ended, killed, or its configuration changes", (t) =>
  walk(t, "ipvs", within("ipvs"), PACE));

Deno.test("no connection fails while kproxy goes from mode iptables to mode ipvs and back", (t) =>
  walk(t, "iptables", thereAndBack("iptables", "ipvs"), PACE));
