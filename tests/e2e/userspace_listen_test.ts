/**
 * `kproxy run --userspace-listen` as a user who may do nothing but open sockets: Services of manifests on addresses of the machine.
 *
 * @module
 */
import { assert, assertEquals, assertNotEquals } from "@std/assert";
import { type ApiJson, service, slice } from "../flows/objects.ts";
import { asNobody } from "../support/as_nobody.ts";
import { metricOf } from "../support/http_get.ts";
import { KproxyProcess, type LogLine, type RunAs } from "../support/kproxy_process.ts";
import { LabHost } from "../support/lab_host.ts";
import { LabManifests } from "../support/lab_manifests.ts";
import type { ProbeProtocol, ProbeResult } from "../support/lab_probe.ts";
import { type Netns, withNetns } from "../support/netns.ts";
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

/** A machine with these backends, and manifests of Services that lead to them. */
function withMachine(
  work: (machine: { netns: Netns; host: LabHost; manifests: LabManifests }) => Promise<void>,
): Promise<void> {
  return withNetns(async (netns) => {
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
    await work({ netns, host, manifests });
  });
}

/** What is open where, as the log tells it. */
function told(lines: readonly LogLine[]): string[] {
  return lines.filter(({ msg }) => msg === OPENED).map(({ servicePort, address, standsInFor }) =>
    `${servicePort} ${address}${standsInFor === undefined ? "" : ` for ${standsInFor}`}`
  ).sort();
}

e2eTest(
  "an unprivileged user, without rules, reaches the Services of manifests on addresses of the machine",
  [ROOT_NAMESPACES, program("ip"), program("setpriv"), program("iptables")],
  () =>
    withMachine(async ({ netns, host, manifests }) => {
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

/**
 * Connects so many times, says how many of them are closed by the other side, once these are as many as are waited for and no more come,
 * and holds the others until its input ends.
 */
const CROWD = `
const [hostname, port, count, least] = Deno.args;
let closed = 0;
for (let i = 0; i < Number(count); i++) {
  const socket = await Deno.connect({ hostname, port: Number(port) });
  socket.read(new Uint8Array(1)).catch(() => null).then(() => closed++);
}
for (let [looks, quiet, before] = [0, 0, -1]; looks < 1_000 && quiet < 5; looks++) {
  quiet = closed === before && closed >= Number(least) ? quiet + 1 : 0;
  before = closed;
  await new Promise((resolve) => setTimeout(resolve, 100));
}
console.log(closed);
for await (const _ of Deno.stdin.readable);
Deno.exit();
`;

/** Such a crowd; disposing of it ends it. */
async function crowd(
  netns: Netns,
  ip: string,
  count: number,
  least: number,
): Promise<AsyncDisposable & { closed: number }> {
  const child = new Deno.Command("ip", {
    args: ["netns", "exec", netns.name, Deno.execPath(), "eval", CROWD, ip, "8080", `${count}`, `${least}`],
    stdin: "piped",
    stdout: "piped",
  }).spawn();
  const reader = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
  const { value: said } = await reader.read();
  return {
    closed: Number(said),
    [Symbol.asyncDispose]: async () => {
      await child.stdin.close();
      await reader.cancel();
      await child.status;
    },
  };
}

e2eTest(
  "descriptors that run out refuse new clients of mode userspace and nothing else",
  [ROOT_NAMESPACES, ...["ip", "setpriv", "prlimit", "curl"].map(program)],
  () =>
    withMachine(({ netns, host, manifests }) =>
      asNobody([], async (nobody) => {
        const as: RunAs = { ...nobody, prefix: [...nobody.prefix, "/usr/bin/prlimit", "--nofile=300:300"] };
        const args = ["--userspace-listen=127.0.0.0/8", `--manifests=${manifests.folder}`];
        await using kproxy = await KproxyProcess.start({ netns, as, args }, 1);
        const metric = async (name: string) => await metricOf(netns, `kproxy_userspace_${name}`) ?? NaN;
        const api = { ip: "127.96.0.11", port: 8080 };
        const askKept = (): Promise<ProbeResult> => host.call("askKept", { to: api, timeoutMs: 30_000 });
        assertEquals((await askKept()).kind, "answer");
        {
          await using many = await crowd(netns, api.ip, 200, 51);
          assert(many.closed > 50, `only ${many.closed} of 200 connections were refused`);
          assertEquals((await askKept()).kind, "answer", "who was there is served on");
          assertNotEquals((await host.probe({ protocol: "tcp", to: api }))[0]?.kind, "answer");
          const [sessions, refused] = [
            await metric('sessions{protocol="TCP"}'),
            await metric('refused_total{protocol="TCP",reason="descriptors"}'),
          ];
          assert(sessions > 20 && sessions <= 200 - many.closed + 1, `${sessions} sessions`);
          assert(refused >= many.closed, `${refused} refused`);
          await kproxy.change(
            () => manifests.replace("endpoints.json", slices(BACKENDS.slice(1))),
            "shop/web",
          );
          assertEquals((await askKept()).kind, "answer");
        }
        while ((await host.probe({ protocol: "tcp", to: api }))[0]?.kind !== "answer") {
          await new Promise((resolve) => setTimeout(resolve, 100));
        }
        assertEquals(await answering(host, "tcp", api.ip, api.port), [BACKENDS[1]]);
      })
    ),
);
