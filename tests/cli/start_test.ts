/**
 * How `kproxy run` begins on nodes that lack something, and how a signal ends it before it has begun.
 *
 * @module
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { metricOf } from "../support/http_get.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { type Netns, withNetns } from "../support/netns.ts";
import { pathExists } from "../support/path_exists.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";
import { inFolder, kproxyArgv } from "./kproxy.ts";

const SERVICE = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.10.1, ports: [{port: 80}]}
`;
const TOOLS = ["iptables", "ip6tables"].flatMap((tool) => [tool, `${tool}-save`, `${tool}-restore`]);
const NEEDS = [ROOT_NAMESPACES, program("ip"), program("sysctl"), ...TOOLS.map(program)];

function pathOf(tool: string): string {
  for (const folder of (Deno.env.get("PATH") ?? "").split(":")) {
    try {
      if (Deno.statSync(`${folder}/${tool}`).isFile) return `${folder}/${tool}`;
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound || error instanceof Deno.errors.NotADirectory)) throw error;
    }
  }
  throw new Error(`${tool} is not on PATH`);
}

e2eTest(
  "without rights run ends with 1 and one line that says which",
  [...NEEDS, program("setpriv")],
  async () => {
    await inFolder({ "web.yaml": SERVICE }, async (folder) => {
      await withNetns(async (netns) => {
        const drop = ["setpriv", "--bounding-set=-net_admin,-net_raw", "--inh-caps=-all"];
        const run = [Deno.execPath(), ...kproxyArgv(), "run", "--socket=", `--manifests=${folder}/web.yaml`];
        const { code, stderr } = await netns.exec.run([...drop, ...run]);
        assertEquals(code, 1, stderr);
        assertEquals(stderr.split("\n").filter((line) => line.startsWith("Error: ")), [
          "Error: run needs root or CAP_NET_ADMIN",
        ]);
      });
    });
  },
);

e2eTest("without iptables run names what to install; without sysctl it warns and serves", NEEDS, async () => {
  await inFolder({ "web.yaml": SERVICE }, async (folder) => {
    const bin = `${folder}/bin`;
    await Deno.mkdir(bin);
    await withNetns(async (netns) => {
      const run = [Deno.execPath(), ...kproxyArgv(), "run", "--socket=", `--manifests=${folder}/web.yaml`];
      const env = [pathOf("env"), `PATH=${bin}`];
      const none = await netns.exec.run([...env, ...run]);
      assertEquals(none.code, 1, none.stderr);
      assertMatch(none.stderr, /^Error: install iptables \(not on PATH: iptables, [^\n]*\)$/m);

      for (const tool of TOOLS) await Deno.symlink(pathOf(tool), `${bin}/${tool}`);
      // The programs of the system are out of its sight, so `path`, which adds to them, would not do.
      const as = { prefix: env, deno: Deno.execPath() };
      await using some = await KproxyProcess.start({ netns, args: [`--manifests=${folder}/web.yaml`], as });
      const { code, signal } = await some.stop("SIGTERM");
      assertEquals([code, signal], [0, null], some.log);
      assertStringIncludes(some.log, "install procps");
      const saved = await netns.run(["iptables-save"]);
      assertMatch(saved, /^-A KUBE-FORWARD .*INVALID.*-j DROP$/m);
      assertStringIncludes(saved, "shop/web");
    });
  });
});

e2eTest("a signal while run waits for the lock of the tables ends it at once, with 0", NEEDS, async () => {
  await inFolder({ "web.yaml": SERVICE }, async (folder) => {
    const bin = `${folder}/bin`;
    await Deno.mkdir(bin);
    // As a tool that waits for the lock: it comes back, but not soon.
    const waiting = `#!/bin/sh
case "$*" in *--version*) exec ${pathOf("iptables")} "$@";; esac
touch ${folder}/waiting
exec sleep 600
`;
    for (const tool of ["iptables", "iptables-nft"]) {
      await Deno.writeTextFile(`${bin}/${tool}`, waiting, { mode: 0o755 });
    }
    await withNetns(async (netns) => {
      const before = await netns.run(["iptables-save"]);
      await using kproxy = KproxyProcess.spawn({
        netns,
        args: [`--manifests=${folder}/web.yaml`],
        path: bin,
      });
      while (!await pathExists(`${folder}/waiting`)) await new Promise((resolve) => setTimeout(resolve, 20));
      const start = performance.now();
      const { code, signal } = await kproxy.stop("SIGTERM");
      assertEquals([code, signal], [0, null], kproxy.log);
      assert(performance.now() - start < 60_000, `took ${performance.now() - start} ms`);
      assertStringIncludes(kproxy.log, "Stopping, rules stay in place");
      assertEquals(await netns.run(["iptables-save"]), before);
    });
  });
});

e2eTest(
  "a lack of descriptors right after the first syncs ends nothing, and what other modes left goes later",
  [...NEEDS, program("prlimit")],
  async () => {
    await inFolder({ "web.yaml": SERVICE }, async (folder) => {
      await withNetns(async (netns) => {
        const limit = async (soft: string): Promise<void> => {
          await netns.run(["prlimit", `--pid=${kproxy.pid}`, `--nofile=${soft}:`]);
        };
        await netns.run(["nft", "add", "table", "ip", "kproxy"]);
        await using kproxy = await KproxyProcess.start({
          netns,
          args: [`--manifests=${folder}`, "--hostname-override=node-a", "--iptables-sync-period=1s"],
        }, 1);
        await limit("24");
        await kproxy.untilMessage("Cannot check whether the rules are still there");
        await limit("1024");
        await kproxy.untilMessage("Removed what another mode left");
        assertEquals(
          (await netns.exec.run(["nft", "list", "tables", "ip"])).stdout.includes("kproxy"),
          false,
        );
        assertEquals((await kproxy.stop()).code, 0, kproxy.log);
      });
    });
  },
);

/** Lowers the limit of descriptors of a process so that it can open only so many more. @returns the former limit */
async function leaveDescriptors(netns: Netns, pid: number, left: number): Promise<string> {
  const open = new Set([...Deno.readDirSync(`/proc/${pid}/fd`)].map(({ name }) => Number(name)));
  let limit = 0;
  // It takes the lowest numbers that are free, all of which must be below the limit.
  for (let free = 0; free < left || open.has(limit); limit++) if (!open.has(limit)) free++;
  const before = await netns.run(["prlimit", `--pid=${pid}`, "--nofile", "--output=SOFT", "--noheadings"]);
  await netns.run(["prlimit", `--pid=${pid}`, `--nofile=${limit}:`]);
  return before.trim();
}

e2eTest(
  "a configuration of another mode is taken once there are descriptors for it, and refused by no lack of them",
  [...NEEDS, program("prlimit"), program("nft")],
  async () => {
    const config = (mode: string): string =>
      `apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: ${mode}\n`;
    await inFolder({ "web.yaml": SERVICE }, async (folder) => {
      await inFolder({ "config.yaml": config("iptables") }, async (etc) => {
        await withNetns(async (netns) => {
          await using kproxy = await KproxyProcess.start({
            netns,
            args: [`--manifests=${folder}`, `--config=${etc}/config.yaml`, "--hostname-override=node-a"],
          }, 1);
          const limit = await leaveDescriptors(netns, kproxy.pid, 2);
          await Deno.writeTextFile(`${etc}/config.yaml`, config("nftables"));
          const waits = "Too few file descriptors for a new proxy server, waiting for some";
          await kproxy.until(
            "the wait, or a refusal",
            (lines) =>
              lines.some(({ msg }) => msg === waits || msg.startsWith("Changed configuration refused")),
          );
          assert(kproxy.lines.some(({ msg }) => msg === waits), kproxy.log);
          await netns.run(["prlimit", `--pid=${kproxy.pid}`, `--nofile=${limit}:`]);
          await kproxy.untilMessage("Configuration changed, starting anew with it");
          await kproxy.untilMessage("Removed what another mode left");
          assertStringIncludes(await netns.run(["nft", "list", "table", "ip", "kproxy"]), "10.96.10.1");
          assertEquals(kproxy.lines.filter(({ msg }) => msg === waits).length, 1);
          assertEquals((await kproxy.stop()).code, 0, kproxy.log);
        });
      });
    });
  },
);

const SLICE = (address: string): string =>
  `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [${address}]}, {addresses: [10.244.1.2]}]
`;

for (const mode of ["iptables", "nftables"] as const) {
  e2eTest(
    `an endpoint that cannot answer is left out in mode ${mode}, and reported`,
    [...NEEDS, program("nft"), program("curl")],
    async () => {
      await inFolder({ "web.yaml": SERVICE, "slice.yaml": SLICE("239.1.1.1") }, async (folder) => {
        await withNetns(async (netns) => {
          const metric = () => metricOf(netns, 'kproxy_unreachable_endpoints{ip_family="IPv4"}');
          await using kproxy = await KproxyProcess.start({
            netns,
            args: [`--manifests=${folder}`, "--hostname-override=node-a", `--proxy-mode=${mode}`],
          });
          const of = "239.1.1.1 of EndpointSlice shop/web-1";
          const told = kproxy.lines.filter(({ msg }) => msg === "An endpoint is left out, it cannot answer");
          assertEquals(told.map(({ service, endpoint, reason }) => [service, endpoint, reason]), [
            ["shop/web", of, "it is a multicast address"],
          ]);
          const events = kproxy.lines.filter(({ reason }) => reason === "EndpointUnreachable");
          assertEquals(events.map(({ regarding, note }) => [regarding, note]), [[
            "Service shop/web",
            `node node-a leads no traffic of shop/web to ${of}: it is a multicast address`,
          ]]);
          assertEquals(await metric(), 1);
          const rules = await netns.run(
            mode === "iptables" ? ["iptables-save"] : ["nft", "list", "table", "ip", "kproxy"],
          );
          assertStringIncludes(rules, "10.244.1.2");
          assertEquals(rules.includes("239.1.1.1"), false, rules);

          await Deno.writeTextFile(`${folder}/slice.yaml`, SLICE("10.244.1.1"));
          await kproxy.untilMessage("An endpoint that was left out is gone");
          assertEquals(await metric(), 0);
          assertEquals((await kproxy.stop()).code, 0, kproxy.log);
        });
      });
    },
  );
}
