/**
 * Mode userspace under attack, with real packets: another user takes a port that kproxy had, packets come to its ports directly, and one
 * client takes all that it can get.
 *
 * @module
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { service, slice } from "../flows/objects.ts";
import { asNobody } from "../support/as_nobody.ts";
import type { RunAs } from "../support/kproxy_process.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import type { LabHost } from "../support/lab_host.ts";
import { USERSPACE } from "../support/lab_mode.ts";
import type { ProbeProtocol } from "../support/lab_probe.ts";
import { WEB_NEEDS, WebLab } from "../support/lab_web.ts";
import { saveAll } from "../support/lab_rules.ts";
import type { Netns } from "../support/netns.ts";
import { NODE_ADDRESSES } from "../support/node_lab.ts";
import { e2eTest, program } from "../support/skip.ts";
import { until } from "../support/until.ts";
import { CLUSTER, NODE_PORT } from "../support/web_changes.ts";

/** A Service, and a client of its family. */
interface Door {
  readonly protocol: ProbeProtocol;
  readonly to: { readonly ip: string; readonly port: number };
  /** Its pod. */
  readonly server: string;
  readonly pod: string;
  readonly outside: string;
  /** Of the node. */
  readonly node: string;
}

const [NODE4, NODE6] = NODE_ADDRESSES.eth0;
const FOUR = { pod: "10.244.0.5", outside: "198.51.100.9", node: NODE4 };
const SIX = { pod: "fd00:10:244::5", outside: "fd00:198::9", node: NODE6 };

const DOORS: readonly Door[] = [
  { protocol: "tcp", to: CLUSTER, server: "10.244.0.11", ...FOUR },
  { protocol: "udp", to: { ip: "10.96.0.53", port: 53 }, server: "10.244.0.11", ...FOUR },
  { protocol: "tcp", to: { ip: "fd00:10:96::80", port: 80 }, server: "fd00:10:244::11", ...SIX },
  { protocol: "udp", to: { ip: "fd00:10:96::53", port: 53 }, server: "fd00:10:244::11", ...SIX },
];

/** The lab of the web Service, with Services of UDP and of IPv6 besides. */
class Doors implements AsyncDisposable {
  private constructor(readonly web: WebLab) {}

  static async create(): Promise<Doors> {
    const doors = new Doors(await WebLab.create(USERSPACE));
    await doors.#build();
    return doors;
  }

  async #build(): Promise<void> {
    const { lab, manifests } = this.web;
    const objects = [];
    for (const { protocol, to, server } of DOORS.slice(1)) {
      const port = protocol === "udp" ? 5353 : 8080;
      await (await lab.host(server, "cni0")).call("serve", { protocol, ip: server, port });
      const isSix = server.includes(":");
      const name = `shop/${protocol}${isSix ? 6 : 4}`;
      const families = isSix ? { ipFamilies: ["IPv6"] } : {};
      const suffix = protocol === "udp" ? "/UDP" : "";
      objects.push(
        service(name, { clusterIP: to.ip, ports: [`a:${to.port}${suffix}`], ...families }),
        slice(`${name}.1`, [`a:${port}${suffix}`], [`${server}@node-a`]),
      );
    }
    await manifests.replace("doors.json", objects);
  }

  get node(): Netns {
    return this.web.lab.node.netns;
  }

  /** The port of kproxy's own behind each door, by the rules. */
  async ports(variant = ""): Promise<readonly number[]> {
    const saved = await saveAll(this.node, variant);
    return DOORS.map(({ to, protocol }) => {
      const rule = saved.split("\n").find((line) =>
        line.startsWith("-A KUBE-PORTALS-CONTAINER") && line.includes(`-d ${to.ip}/`) &&
        line.includes(`-p ${protocol} `)
      );
      return Number(/--to-ports (\d+)/.exec(rule ?? "")?.[1] ?? 0);
    });
  }

  /** What becomes of a request of a pod through each door; `sourcePort` keeps to one flow. */
  async asked(sourcePort?: number): Promise<readonly string[]> {
    const found: string[] = [];
    for (const { protocol, to, pod } of DOORS) {
      const host = await this.web.lab.host(pod, "cni0");
      found.push(
        await ask(
          host,
          protocol,
          to,
          protocol === "udp" && sourcePort !== undefined ? { source: pod, sourcePort } : {},
        ),
      );
    }
    return found;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.web[Symbol.asyncDispose]();
  }
}

async function ask(
  host: LabHost,
  protocol: ProbeProtocol,
  to: Door["to"],
  more: { readonly source?: string; readonly sourcePort?: number } = {},
): Promise<string> {
  const [result] = await host.probe({ protocol, to, timeoutMs: 2_000, ...more });
  return result?.kind === "answer" ? result.answer.local.ip : result?.kind ?? "";
}

/** Has ports and answers whatever comes, as a user without any right. */
const SQUATTER = `
import { createSocket } from "node:dgram";
for (const word of Deno.args) {
  const [protocol, ip, port] = word.split(" ");
  if (protocol === "tcp") {
    const listener = Deno.listen({ hostname: ip, port: Number(port) });
    (async () => {
      for await (const client of listener) {
        await client.write(new TextEncoder().encode("HTTP/1.0 200 OK\\r\\n\\r\\nSTOLEN"));
        client.close();
      }
    })();
  } else {
    const socket = createSocket({ type: ip.includes(":") ? "udp6" : "udp4", ipv6Only: ip.includes(":") });
    socket.on("message", (_, from) => socket.send("STOLEN", from.port, from.address));
    await new Promise((resolve) => socket.bind({ address: ip, port: Number(port) }, resolve));
  }
}
console.log("has them as " + Deno.uid());
`;

/** Takes the ports of all doors. */
async function squat(node: Netns, as: RunAs, ports: readonly number[]): Promise<AsyncDisposable> {
  const places = DOORS.map(({ protocol, node: ip }, at) =>
    `${protocol} ${ip.includes(":") ? "::" : "0.0.0.0"} ${ports[at]}`
  );
  const script = await Deno.makeTempFile({ suffix: ".ts" });
  await Deno.writeTextFile(script, SQUATTER);
  await Deno.chmod(script, 0o644);
  const child = new Deno.Command("ip", {
    args: ["netns", "exec", node.name, ...as.prefix, as.deno, "run", "-A", "--no-config", script, ...places],
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  const output = child.stdout.getReader();
  const { value } = await output.read();
  assertEquals(new TextDecoder().decode(value).trim(), "has them as 65534");
  return {
    [Symbol.asyncDispose]: async () => {
      child.kill("SIGKILL");
      await output.cancel();
      await child.status;
      await Deno.remove(script);
    },
  };
}

const SERVED = DOORS.map(({ server, to }) => to === CLUSTER ? "10.244.0.1x" : server);
const servers = (found: readonly string[]): readonly string[] =>
  found.map((one) => one.replace(/^10\.244\.0\.1[12]$/, "10.244.0.1x"));
const servedAtAll = (found: readonly string[]): readonly string[] =>
  servers(found).map((one, at) => at === 1 && one === "10.244.0.1x" ? DOORS[1]!.server : one);

const NEEDS = [...WEB_NEEDS, program("setpriv"), program("prlimit")];

e2eTest(
  "who takes kproxy's ports after its end, or after a kill, is led nothing by a Service, userspace",
  NEEDS,
  async (t) => {
    await using doors = await Doors.create();
    const { web, node } = doors;
    const flow = 40_404;
    // As network plugins have it: while any rule translates, the kernel goes on translating what is tracked.
    for (const tool of ["iptables", "ip6tables"]) {
      await node.run([tool, "-t", "nat", "-A", "POSTROUTING", "-o", "none0", "-j", "MASQUERADE"]);
    }

    await t.step("after SIGTERM no rule leads there any more, nor does a flow that was tracked", async () => {
      await using kproxy = await web.start();
      const ports = await doors.ports();
      assert(ports.every((port) => port > 1024), "ports that any user may have");
      assertEquals(servedAtAll(await doors.asked(flow)), SERVED);
      assertEquals((await kproxy.stop("SIGTERM")).code, 0);
      await asNobody([], async (as) => {
        await using _squatter = await squat(node, as, ports);
        const found = await doors.asked(flow);
        assertEquals(found.filter((one) => one === "stranger" || one === "answer"), [], found.join());
      });
      assertEquals((await web.rules()).match(/KUBE-(PORTALS|NODEPORT)/g), null, "nothing is left");
    });

    await t.step("after a kill the next start leads elsewhere", async () => {
      await using killed = await web.start();
      const ports = await doors.ports();
      await killed.stop("SIGKILL");
      await asNobody([], async (as) => {
        await using _squatter = await squat(node, as, ports);
        assertEquals(await doors.asked(), ["stranger", "stranger", "stranger", "stranger"], "until then");
        await using next = await web.start();
        assertEquals(servedAtAll(await doors.asked()), SERVED);
        const now = await doors.ports();
        assertEquals(now.filter((port, at) => port === ports[at]), []);
        assertEquals((await next.stop("SIGTERM")).code, 0);
      });
    });
  },
);

async function comesDirectly(variant: string): Promise<void> {
  await using doors = await Doors.create();
  const { web, node } = doors;
  // By the chain that the kubelet writes kproxy knows the variant.
  for (const tool of ["iptables", "ip6tables"]) {
    await node.run([`${tool}-${variant}`, "-t", "mangle", "-N", "KUBE-IPTABLES-HINT"]);
  }
  await using _kproxy = await web.start();
  const ports = await doors.ports(`-${variant}`);
  const direct: string[] = [];
  for (const [at, { protocol, outside, node: ip, pod }] of DOORS.entries()) {
    const port = ports[at]!;
    const hosts = [await web.lab.host(outside), await web.lab.host(pod, "cni0"), web.lab.node];
    for (const host of hosts) direct.push(await ask(host, protocol, { ip, port }));
    direct.push(await ask(web.lab.node, protocol, { ip: ip.includes(":") ? "::1" : "127.0.0.1", port }));
  }
  assertEquals(direct, direct.map(() => "refused"));
  // The runtime opens the ports of IPv6 for IPv4 as well.
  const mapped = await ask(await web.lab.host(FOUR.outside), "tcp", { ip: NODE4, port: ports[2]! });
  assert(mapped !== "answer" && !mapped.startsWith("10."), mapped);
  assertEquals(servedAtAll(await doors.asked()), SERVED);
  assertMatch(await ask(await web.lab.host(FOUR.outside), "tcp", NODE_PORT), /^10\.244\.0\.1[12]$/);
  assertMatch(await ask(web.lab.node, "tcp", CLUSTER), /^10\.244\.0\.1[12]$/);

  // Where the node's own firewall is closed, a node port is no way to the port behind it either.
  await node.run([`iptables-${variant}`, "-P", "INPUT", "DROP"]);
  await node.run([
    `iptables-${variant}`,
    "-A",
    "INPUT",
    "-m",
    "conntrack",
    "--ctstate",
    "RELATED,ESTABLISHED",
    "-j",
    "ACCEPT",
  ]);
  assertMatch(await ask(await web.lab.host(FOUR.outside), "tcp", NODE_PORT), /^10\.244\.0\.1[12]$/);
  assertEquals(
    await ask(await web.lab.host(FOUR.outside), "tcp", { ip: NODE4, port: ports[0]! }),
    "refused",
  );
}

for (const variant of ["nft", "legacy"]) {
  e2eTest(
    `what comes to kproxy's ports directly is refused, what comes to a Service is served, userspace, variant ${variant}`,
    [...NEEDS, program(`iptables-${variant}`), program(`ip6tables-${variant}`)],
    () => comesDirectly(variant),
  );
}

/** Opens connections until they are closed on it, holds the others, and says how many those are, again and again. */
const GREEDY = `
const [hostname, port, most] = Deno.args;
let held = 0;
for (let at = 0; at < Number(most); at++) {
  try {
    const client = await Deno.connect({ hostname, port: Number(port) });
    held++;
    client.read(new Uint8Array(1)).catch(() => null).then(() => held--);
  } catch { break; }
  if (at % 8 === 0) await new Promise((resolve) => setTimeout(resolve, 12));
}
setInterval(() => console.log(held), 100);
`;

e2eTest("a client that takes all sessions it can get leaves some to others, userspace", NEEDS, async () => {
  await using web = await WebLab.create(USERSPACE);
  const as = {
    prefix: ["prlimit", "--nofile=400:400"],
    deno: Deno.execPath(),
  };
  await using kproxy = await KproxyProcess.start({ ...web.options(), as });
  const script = await Deno.makeTempFile({ suffix: ".ts" });
  await Deno.writeTextFile(script, GREEDY);
  const child = new Deno.Command("ip", {
    args: [
      "netns",
      "exec",
      web.client.netns.name,
      Deno.execPath(),
      "run",
      "-A",
      "--no-config",
      script,
      NODE_PORT.ip,
      `${NODE_PORT.port}`,
      "600",
    ],
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  let isRunning = true;
  try {
    let [held, same] = [0, 0];
    const reading = (async () => {
      for await (const text of child.stdout.pipeThrough(new TextDecoderStream())) {
        for (const now of text.trimEnd().split("\n").map(Number)) {
          same = now === held ? same + 1 : 0;
          held = now;
        }
      }
    })();
    await kproxy.untilMessage("Sessions run out, shared out by client");
    // It says nothing before it has tried them all; what is too much is closed on it after that, too.
    await until(() => same >= 10, "an end of what is closed on it");
    assert(held > 50 && held < 200, `${held} held`);
    const before = held;
    // Each waits for half a second until there is a place for it.
    const others = await web.pod.probe({ protocol: "tcp", to: CLUSTER, count: 8, timeoutMs: 30_000 });
    assertEquals(others.map(({ kind }) => kind), Array(8).fill("answer"));
    await new Promise((resolve) => setTimeout(resolve, 500));
    assert(held >= before - 20, `${before} held, then ${held}`);
    const told = kproxy.lines.filter(({ msg }) => msg === "Sessions run out, shared out by client");
    assertEquals(told.length, 1);
    assertMatch(JSON.stringify(told[0]), /198\.51\.100\.9 has \d+ of \d+/);
    isRunning = false;
    child.kill("SIGKILL");
    await reading;
  } finally {
    if (isRunning) child.kill("SIGKILL");
    await child.status;
    await Deno.remove(script);
  }
});
