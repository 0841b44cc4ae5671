/**
 * Connect loops while a node comes to IPVS mode, lives in it and leaves it again, and on the ways between kube-proxy and kproxy there,
 * inside of the user-mode Linux:
 * `tests/lab/uml.sh 'deno test -A tests/lab/ipvs_switches_in_uml.ts'`.
 *
 * @module
 */
import { onceMoreIfExcused } from "../support/skip.ts";
import { type Step, thereAndBackByReload, walk, within } from "../support/switch_lab.ts";

/**
 * Each loop is slower here than elsewhere, all six of them together are 30 connections a second; with 120 of them
 * the kernel had no time for much else. This kernel has one CPU and every
 * system call costs several of the host's, so that the start of a program keeps all loops waiting, some of them for seconds where the
 * host has other work, too. Limits of time would measure that. What counts instead is what a lost packet leaves behind: a refusal, a
 * reset, a request that is not answered in ten seconds, a SYN that the client's kernel had to send again because nothing answered it.
 */
const PACE = { perSecond: 5, limitMs: 10_000 };

const WAYS: readonly Step[] = [
  { to: "ipvs", by: "kproxy" },
  // Ends by SIGTERM and live reloads are the same code in every mode: `tests/e2e/switches_test.ts`.
  ...within("ipvs").filter(({ by }) => by === "SIGKILL" || by === "reload"),
  { to: "ipvs", by: "kube-proxy" },
  { to: "iptables", by: "kproxy" },
  ...thereAndBackByReload("iptables", "ipvs"),
  { to: "ipvs", by: "kube-proxy" },
  { to: "ipvs", by: "kproxy" },
  { to: "iptables", by: "kube-proxy" },
];

const NAME = "no connection fails while a node comes to mode ipvs, lives there and goes, under either proxy";
Deno.test(
  NAME,
  (t) => onceMoreIfExcused(NAME, () => walk(t, { to: "iptables", by: "kube-proxy" }, WAYS, PACE)),
);
