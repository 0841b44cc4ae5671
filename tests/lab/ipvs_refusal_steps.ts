/**
 * Endpoints that the kernel refuses: what they cost the others, on a node in the user-mode Linux. An API server takes such endpoints.
 *
 * @module
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { RETRY_MS } from "../../lib/backend/quarantine.ts";
import { kproxy } from "../cli/kproxy.ts";
import { service, slice } from "../flows/objects.ts";
import { metricOf } from "../support/http_get.ts";
import type { LogLine } from "../support/kproxy_process.ts";
import { until } from "../support/until.ts";
import { type IpvsLab, PATIENCE, WEB, webPods } from "./ipvs_lab.ts";

const BAD = "10.96.0.66";

/** Service `shop/bad` with these endpoints. */
function bad(...pods: readonly string[]) {
  return [
    service("shop/bad", { clusterIP: BAD, ports: ["http:80"] }),
    slice("shop/bad.1", ["http:8080"], pods.map((pod) => `${pod}@node-a`)),
  ];
}

/** The line of a real server of `shop/bad`. */
function real(pod: string): string {
  return `-a -t ${BAD}:80 -r ${pod}:8080 -m -w 1`;
}

/** What shows that kproxy did without some endpoints. */
class Refusals {
  readonly #lab: IpvsLab;
  readonly #sinceMs = performance.now();

  constructor(lab: IpvsLab) {
    this.#lab = lab;
  }

  /** True if what was refused first may be tried again by now, which costs a program more. */
  get mayBeRetried(): boolean {
    return performance.now() - this.#sinceMs >= RETRY_MS;
  }

  /** Real servers of `shop/bad`. */
  async servers(): Promise<readonly string[]> {
    return (await this.#lab.table()).filter((line) => line.startsWith(`-a -t ${BAD}:`));
  }

  /** The value of a series; `absent` without one. */
  async metric(series: string): Promise<string> {
    return `${await metricOf(this.#lab.node, series) ?? "absent"}`;
  }

  /** How many Services of IPv4 are quarantined. */
  quarantined(): Promise<string> {
    return this.metric('kproxy_quarantined_services{ip_family="IPv4"}');
  }

  events(): readonly LogLine[] {
    return this.#lab.kproxy.lines.filter(({ reason }) => reason === "ServiceQuarantined");
  }

  assertNoFailure(): void {
    assertEquals(this.#lab.kproxy.lines.filter(({ msg }) => String(msg).includes("Sync failed")), []);
  }
}

/** Starts kproxy anew, on a node that has nothing of it. */
export async function refusalSteps(t: Deno.TestContext, ipvsLab: IpvsLab): Promise<void> {
  const refusals = new Refusals(ipvsLab);
  await startSteps(t, ipvsLab, refusals);
  await changeSteps(t, ipvsLab, refusals);
}

/** The first sync of a node that has endpoints which its kernel refuses. */
async function startSteps(t: Deno.TestContext, ipvsLab: IpvsLab, refusals: Refusals): Promise<void> {
  const { manifests } = ipvsLab;
  await t.step("on a fresh node endpoints that the kernel refuses cost nobody else anything", async () => {
    await manifests.replace("web.json", [WEB]);
    await manifests.replace("pods.json", [webPods("10.244.0.11")]);
    await manifests.replace("bad.json", bad("192.168.7.255", "192.0.2.255", "10.244.0.11"));
    await ipvsLab.start();
    refusals.assertNoFailure();
    assertEquals(await refusals.servers(), [real("10.244.0.11")]);
    assert((await ipvsLab.addresses()).includes(BAD));
    await using _server = await ipvsLab.serving("10.244.0.11");
    for (const ip of ["10.96.0.1", BAD]) {
      await using connection = await ipvsLab.connected(ip);
      await connection.close();
    }
    const told = refusals.events();
    assertEquals([await refusals.quarantined(), told.map(({ regarding }) => regarding)], ["1", [
      "Service shop/bad",
    ]]);
    assertStringIncludes(String(told[0]?.["note"]), "endpoint 192.0.2.255:8080: ipvsadm: Invalid operation");
    const trace = await kproxy(["trace", "10.244.0.5@cni0", "shop/bad"], { netns: ipvsLab.node.name });
    assertEquals(trace.code, 1, JSON.stringify(trace));
    assertMatch(
      trace.out,
      /Wrong: The kernel has refused the rules of shop\/bad: .*192\.0\.2\.255/,
      trace.err,
    );
  });

  await t.step("a Service without endpoints on the node counts, its ports together", async () => {
    // Other modes would count the ports.
    const elsewhere = [
      service("shop/far", {
        clusterIP: "10.96.0.67",
        internalTrafficPolicy: "Local",
        ports: ["a:80", "b:81"],
      }),
      slice("shop/far.1", ["a:8080", "b:8081"], ["10.244.1.21@node-b"]),
    ];
    await ipvsLab.change("far.json", elsewhere, "shop/far");
    const series = "kubeproxy_sync_proxy_rules_no_local_endpoints_total";
    assertEquals(await refusals.metric(`${series}{ip_family="IPv4",traffic_policy="internal"}`), "1");
  });
}

/** Changes while some are refused, and the end of that. */
async function changeSteps(t: Deno.TestContext, ipvsLab: IpvsLab, refusals: Refusals): Promise<void> {
  await t.step(
    "while some are refused, others change at their usual cost, and so does their Service",
    async () => {
      const commands = await ipvsLab.change("pods.json", [webPods("10.244.0.11", "10.244.0.13")], "shop/web");
      assert(commands === 2 || commands === 3 && refusals.mayBeRetried, `${commands} programs`);
      const more = bad("192.168.7.255", "192.0.2.255", "10.244.0.11", "10.244.0.13");
      await ipvsLab.change("bad.json", more, "shop/bad");
      assertEquals(await refusals.servers(), [real("10.244.0.11"), real("10.244.0.13")]);
      assertEquals(refusals.events().length, 1);
      // One with a change, on a node that serves.
      await ipvsLab.change("pods.json", [webPods("10.244.0.11", "192.168.7.255")], "shop/web");
      assertEquals((await ipvsLab.weights())["10.244.0.11:8080"], 1);
      assertEquals([await refusals.quarantined(), refusals.events().length], ["2", 2]);
    },
  );

  await t.step("once they are gone, nothing is quarantined", async () => {
    await ipvsLab.change("pods.json", [webPods("10.244.0.11")], "shop/web");
    await ipvsLab.change("bad.json", bad("10.244.0.11"), "shop/bad");
    await ipvsLab.kproxy.until(
      "the end of both quarantines",
      (lines) => lines.filter(({ msg }) => msg === "Service is no longer quarantined").length === 2,
    );
    assertEquals(await refusals.quarantined(), "0");
    // An endpoint that leaves stays without weight until its connections are looked at.
    const isLast = async (): Promise<boolean> => (await refusals.servers()).join() === real("10.244.0.11");
    await until(isLast, "the endpoint that left is gone", PATIENCE);
    refusals.assertNoFailure();
  });
}
