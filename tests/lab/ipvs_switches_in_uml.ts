/**
 * Connect loops while a node comes to IPVS mode, lives in it and leaves it again, inside of the user-mode Linux:
 * `tests/lab/uml.sh 'deno test -A tests/lab/ipvs_switches_in_uml.ts'`.
 *
 * @module
 */
import { type Switch, thereAndBack, walk, within } from "../support/switch_lab.ts";

/**
 * Each loop is slower here than elsewhere, all six of them together are 120 connections a second. This kernel has one CPU and every
 * system call costs several of the host's, so that the start of a program keeps all loops waiting, some of them for seconds where the
 * host has other work, too. Limits of time would measure that. What counts instead is what a lost packet leaves behind: a refusal, a
 * reset, a request that is not answered in ten seconds, a SYN that the client's kernel had to send again because nothing answered it.
 */
const PACE = { perSecond: 20, limitMs: 10_000 };

const [there, ...back] = thereAndBack("iptables", "ipvs") as [Switch, ...Switch[]];

Deno.test("no connection fails while kproxy comes to mode ipvs, lives there and goes", (t) =>
  walk(t, "iptables", [there, ...within("ipvs"), ...back], PACE));
