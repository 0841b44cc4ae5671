/**
 * The suites of the other modes in IPVS mode, on one node of the user-mode Linux: "Same conformance matrix for all three backends".
 * `tests/lab/uml.sh 'deno test -A tests/lab/ipvs_suites_in_uml.ts'`.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { ipvsFaultsAreNamed } from "../support/faults/ipvs.ts";
import { IPVS } from "../support/lab_mode.ts";
import type { ProbeResult } from "../support/lab_probe.ts";
import { WEB_PODS, WebLab, webSlice } from "../support/lab_web.ts";
import { onceMoreIfExcused } from "../support/skip.ts";
import { CLUSTER, endpointsComeAndGo, servicesComeAndGo } from "../support/web_changes.ts";
import { type Damage, REPAIR_ARGS, repairsDamages } from "../support/web_repairs.ts";

type Story = readonly [name: string, run: (t: Deno.TestContext, web: WebLab) => Promise<void>];

/** What others take away, some of it of each tool; all kinds of damage are in `lib/backend/ipvs/apply/proxier_test.ts`. */
const DAMAGES: readonly (readonly [what: string, ...argv: string[]])[] = [
  ["the rules of a table", "iptables", "-t", "nat", "-F"],
  ["the rules of a table of IPv6", "ip6tables", "-F"],
  ["all virtual servers", "ipvsadm", "-C"],
  ["the device", "ip", "link", "del", "kube-ipvs0"],
  ["the entries of a set", "ipset", "flush", "KUBE-CLUSTER-IP"],
  ["peace by a rule more", "iptables", "-A", "KUBE-IPVS-OUT-FILTER", "-j", "DROP"],
  ["peace by another real server", "ipvsadm", "-a", "-t", "10.96.0.1:80", "-r", "10.244.0.99:8080", "-m"],
];

/** IPVS remembers a connection for minutes; a new one from the same port must neither wait for that nor follow it. */
async function portIsUsedAgain(_: Deno.TestContext, web: WebLab): Promise<void> {
  await using kproxy = await web.start();
  const source = "10.244.0.5";
  // Else the client's own kernel remembers its port, too.
  await web.pod.netns.run(["sysctl", "-q", "-w", "net.ipv4.tcp_max_tw_buckets=0"]);
  const ask = async (): Promise<Partial<ProbeResult> & { server?: string; wasSynLost?: boolean }> => {
    const request = { protocol: "tcp", source, sourcePort: 40_000, to: CLUSTER, timeoutMs: 30_000 } as const;
    for (let tries = 100;; tries--) {
      const [found] = await web.pod.probe(request);
      if (found?.kind === "answer") return { server: found.answer.server, wasSynLost: found.wasSynLost };
      // The server has not closed the one before.
      if (found?.kind !== "error" || !found.message.endsWith("EADDRNOTAVAIL") || tries === 0) {
        return found ?? {};
      }
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  };
  const tour = async (): Promise<boolean[]> => {
    const lost: boolean[] = [];
    for (const server of [WEB_PODS[0], WEB_PODS[1], WEB_PODS[2], WEB_PODS[0]]) {
      const edit = () => web.manifests.replace("endpoints.json", [webSlice([server])]);
      await kproxy.change(edit, "shop/web");
      for (let again = 0; again < 2; again++) {
        const { wasSynLost, ...found } = await ask();
        assertEquals(found, { server });
        lost.push(wasSynLost === true);
      }
    }
    return lost;
  };
  // A kernel that came to a stand for a second sends a SYN again that was not lost; what IPVS drops it drops on every tour.
  let lost = await tour();
  for (let tours = 2; tours > 0 && lost.includes(true); tours--) {
    await kproxy.change(() => web.manifests.replace("endpoints.json", [webSlice([WEB_PODS[1]])]), "shop/web");
    lost = await tour();
  }
  assertEquals(lost.includes(true), false, `SYNs lost: ${lost}`);
}

/**
 * Ends and starts under a connect loop, and what changes between two proxies, are in `ipvs_switches_in_uml.ts`; that connections go round
 * is in `ipvs_affinity_in_uml.ts`. Hints of a zone are the model's.
 */
const STORIES: readonly Story[] = [
  ["endpoints come and go", endpointsComeAndGo],
  ["Services come, change and go", servicesComeAndGo],
  ["a client uses a port again", portIsUsedAgain],
  ["faults are named by their cause, and fixed", (_, web) => ipvsFaultsAreNamed(web)],
  ["what others remove comes back", async (t, web) => {
    await using kproxy = await web.start(REPAIR_ARGS);
    const { netns } = web.lab.node;
    await repairsDamages(
      t,
      web,
      kproxy,
      DAMAGES.map(([what, ...argv]): Damage => [what, () => netns.run(argv)]),
    );
  }],
];

Deno.test("the suites of the other modes in IPVS mode", async (t) => {
  await using web = await WebLab.create(IPVS);
  for (const [name, run] of STORIES) {
    await t.step(name, (t) =>
      onceMoreIfExcused(name, async () => {
        await web.writeObjects();
        await run(t, web);
      }));
  }
});
