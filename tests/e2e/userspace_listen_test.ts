/**
 * `kproxy run --userspace-listen` as a user who may do nothing but open sockets: Services of manifests on addresses of the machine.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { type ApiJson, service, slice } from "../flows/objects.ts";
import { asNobody } from "../support/as_nobody.ts";
import { KproxyProcess, type LogLine, type RunAs } from "../support/kproxy_process.ts";
import { LabHost } from "../support/lab_host.ts";
import { LabManifests } from "../support/lab_manifests.ts";
import type { ProbeProtocol } from "../support/lab_probe.ts";
import { withNetns } from "../support/netns.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";

/** Backends of the manifests. */
const BACKENDS = ["10.244.0.11", "10.244.0.12"] as const;
const OPENED = "Service port is open";

const SERVICES: readonly ApiJson[] = [
  service("shop/web", { clusterIP: "10.96.0.10", ports: ["http:80"] }),
  service("shop/api", { clusterIP: "10.96.0.11", ports: ["http:8080"] }),
  service("shop/dns", { clusterIP: "10.96.0.12", ports: ["dns:5353/UDP"] }),
];

function slices(backends: readonly string[]): ApiJson[] {
  const endpoints = backends.map((ip) => `${ip}@node-a`);
  return [
    slice("shop/web.1", ["http:8080"], endpoints),
    slice("shop/api.1", ["http:8080"], endpoints),
    slice("shop/dns.1", ["dns:5353/UDP"], endpoints),
  ];
}

/** Which servers answer, each once; what else happens is among them. */
async function answering(
  host: LabHost,
  protocol: ProbeProtocol,
  ip: string,
  port: number,
): Promise<string[]> {
  const results = await host.probe({ protocol, to: { ip, port }, count: 6 });
  const servers = results.map((result) =>
    result.kind === "answer" ? result.answer.local.ip : JSON.stringify(result)
  );
  return [...new Set(servers)].sort();
}

/** What is open where, as the log tells it. */
function told(lines: readonly LogLine[]): string[] {
  return lines.filter(({ msg }) => msg === OPENED).map(({ servicePort, address, standsInFor }) =>
    `${servicePort} ${address}${standsInFor === undefined ? "" : ` for ${standsInFor}`}`
  ).sort();
}

e2eTest(
  "nobody, without a right and without a rule, reaches the Services of manifests on addresses of the machine",
  [ROOT_NAMESPACES, program("ip"), program("setpriv"), program("iptables")],
  () =>
    withNetns(async (netns) => {
      for (const ip of BACKENDS) await netns.run(["ip", "addr", "add", `${ip}/32`, "dev", "lo"]);
      using host = await LabHost.start(netns, "laptop");
      for (const ip of BACKENDS) {
        await host.call("serve", { protocol: "tcp", ip, port: 8080 });
        await host.call("serve", { protocol: "udp", ip, port: 5353 });
      }
      await using manifests = await LabManifests.create();
      await Deno.chmod(manifests.folder, 0o755);
      await manifests.replace("services.json", SERVICES);
      await manifests.replace("endpoints.json", slices(BACKENDS));
      await asNobody([], async (nobody) => {
        // Where there is no program, none is needed.
        const as: RunAs = { ...nobody, prefix: [...nobody.prefix, "/usr/bin/env", "PATH=/nowhere"] };
        const start = (addresses: string): Promise<KproxyProcess> => {
          const args = [`--userspace-listen=${addresses}`, `--manifests=${manifests.folder}`];
          return KproxyProcess.start({ netns, as, args }, 1);
        };
        {
          await using kproxy = await start("127.0.0.0/8");
          assertEquals(told(kproxy.lines), [
            "shop/api:http 127.96.0.11:8080",
            "shop/dns:dns 127.96.0.12:5353",
            "shop/web:http 127.96.0.10:8080 for 80",
          ]);
          assertEquals(await answering(host, "tcp", "127.96.0.10", 8080), [...BACKENDS]);
          assertEquals(await answering(host, "tcp", "127.96.0.11", 8080), [...BACKENDS]);
          assertEquals(await answering(host, "udp", "127.96.0.12", 5353), [...BACKENDS]);
          const [, other] = BACKENDS;
          await kproxy.change(() => manifests.replace("endpoints.json", slices([other])), "shop/web");
          assertEquals(await answering(host, "tcp", "127.96.0.10", 8080), [other]);
          assertEquals(await answering(host, "udp", "127.96.0.12", 5353), [other]);
          assertEquals((await kproxy.stop()).code, 0);
          // Errors and warnings have no verbosity.
          assertEquals(kproxy.lines.filter(({ v }) => v === undefined), []);
        }
        // Where all share one address, who comes second for a port is left out, and told.
        await using kproxy = await start("127.0.0.1");
        const whose = "TCP 127.0.0.1:8080 is open for shop/api:http already";
        const isTold = (line: LogLine): boolean =>
          line.v === undefined && JSON.stringify(line).includes(whose);
        await kproxy.until("what is left out", (lines) => lines.some(isTold));
        assertEquals(told(kproxy.lines), ["shop/api:http 127.0.0.1:8080", "shop/dns:dns 127.0.0.1:5353"]);
        assertEquals(await answering(host, "tcp", "127.0.0.1", 8080), [BACKENDS[1]]);
        assertEquals((await kproxy.stop()).code, 0);
      });
      assertEquals((await netns.run(["iptables-save"])).includes("KUBE-"), false);
    }),
);
