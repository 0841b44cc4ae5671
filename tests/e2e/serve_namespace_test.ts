/**
 * The servers as other machines meet them: in a namespace of their own, with exactly kproxy's permissions.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { permissionFlags } from "../../tools/permissions.ts";
import { ROOT } from "../../tools/project_files.ts";
import { httpGet } from "../support/http_get.ts";
import { link, type Netns, socketIn, withNamespaces } from "../support/netns.ts";
import type { ServeOrder } from "../support/serve_program.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";

const NEEDS = [ROOT_NAMESPACES, program("ip"), program("sysctl"), program("curl")];
const NODE = { IPv4: "192.0.2.1", IPv6: "[2001:db8::1]" };

/** A node with a second IPv4 address, and a client beside it. */
function withNode(work: (node: Netns, client: Netns) => Promise<void>): Promise<void> {
  return withNamespaces(2, async ([node, client]) => {
    assert(node !== undefined && client !== undefined);
    await link(
      { netns: node, name: "eth0", addresses: ["192.0.2.1/24", "192.0.2.11/24", "2001:db8::1/64"] },
      { netns: client, name: "eth0", addresses: ["192.0.2.2/24", "2001:db8::2/64"] },
    );
    await work(node, client);
  });
}

interface Served {
  readonly code: number;
  /** Log messages. */
  readonly messages: string[];
}

/** Serves on `node` while `work` runs, then ends it in order. */
async function whileServing(node: Netns, order: ServeOrder, work: () => Promise<void>): Promise<Served> {
  const child = new Deno.Command("ip", {
    args: [
      ...["netns", "exec", node.name, Deno.execPath(), "run", "-q", "--config", `${ROOT}/deno.json`],
      ...[...permissionFlags(), `${ROOT}/tests/support/serve_program.ts`, JSON.stringify(order)],
    ],
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const stderr = new Response(child.stderr).text();
  try {
    const reader = child.stdout.getReader();
    const { done } = await reader.read();
    if (!done) await work();
    await child.stdin.close();
    while (!(await reader.read()).done);
    const timer = setTimeout(() => child.kill("SIGKILL"), 300_000);
    const { code } = await child.status;
    clearTimeout(timer);
    const lines = (await stderr).split("\n").filter((line) => line !== "");
    return { code, messages: lines.map((line) => line.startsWith("{") ? JSON.parse(line).msg : line) };
  } catch (error) {
    child.kill("SIGKILL");
    await child.status;
    throw new Error(`With the servers' log:\n${await stderr}`, { cause: error });
  }
}

async function statuses(from: Netns, urls: readonly string[]): Promise<number[]> {
  return (await Promise.all(urls.map((url) => httpGet(from, url)))).map(({ status }) => status);
}

e2eTest(
  "a wildcard health server answers the network over both families, loopback metrics do not",
  NEEDS,
  async () => {
    await withNode(async (node, client) => {
      const { code } = await whileServing(
        node,
        { healthz: "0.0.0.0:10256", metrics: "127.0.0.1:10249", hardFail: true },
        async () => {
          const health = Object.values(NODE).map((host) => `http://${host}:10256/healthz`);
          assertEquals(await statuses(client, health), [200, 200]);
          assertEquals(await statuses(client, [`http://${NODE.IPv4}:10249/metrics`]), [0]);
          assertEquals(
            await statuses(node, ["http://127.0.0.1:10249/metrics", "http://[::1]:10249/metrics"]),
            [200, 0],
          );
          assertEquals((await httpGet(node, "http://127.0.0.1:10249/proxyMode")).body, "iptables");
        },
      );
      assertEquals(code, 0);
    });
  },
);

e2eTest("a wildcard means both families also where sysctl bindv6only keeps them apart", NEEDS, async () => {
  await withNode(async (node, client) => {
    await node.run(["sysctl", "-qw", "net.ipv6.bindv6only=1"]);
    const order = { healthz: "[::]:10256", services: [{ port: 30100, endpoints: { IPv4: 1, IPv6: 2 } }] };
    const { code } = await whileServing(node, order, async () => {
      const urls = [10256, 30100].flatMap((port) =>
        Object.values(NODE).map((host) => `http://${host}:${port}/healthz`)
      );
      assertEquals(await statuses(client, urls), [200, 200, 200, 200]);
    });
    assertEquals(code, 0);
  });
});

e2eTest("without IPv6 on the node a wildcard serves IPv4", NEEDS, async () => {
  await withNode(async (node, client) => {
    await node.run([
      "sysctl",
      "-qw",
      "net.ipv6.conf.all.disable_ipv6=1",
      "net.ipv6.conf.default.disable_ipv6=1",
    ]);
    const order = { healthz: "[::]:10256", services: [{ port: 30100, endpoints: { IPv4: 1 } }] };
    const { code } = await whileServing(node, order, async () => {
      assertEquals(
        await statuses(client, [`http://${NODE.IPv4}:10256/healthz`, `http://${NODE.IPv4}:30100/`]),
        [200, 200],
      );
    });
    assertEquals(code, 0);
  });
});

e2eTest("health check node ports answer each family with its own endpoints", NEEDS, async () => {
  await withNode(async (node, client) => {
    const services = [
      { port: 30100, endpoints: { IPv4: 2, IPv6: 1 } },
      { port: 30101, endpoints: { IPv4: 1 } },
      { port: 30102, endpoints: { IPv4: 0, IPv6: 3 } },
    ];
    const { code } = await whileServing(node, { services }, async () => {
      const answers: unknown[] = [];
      for (const { port } of services) {
        for (const host of Object.values(NODE)) {
          const { status, body } = await httpGet(client, `http://${host}:${port}/`, "-X", "PUT");
          answers.push([port, status, JSON.parse(body).localEndpoints]);
        }
      }
      assertEquals(answers, [
        [30100, 200, 2],
        [30100, 200, 1],
        [30101, 200, 1],
        [30101, 503, 0],
        [30102, 503, 0],
        [30102, 200, 3],
      ]);
      const raw = await httpGet(client, `http://${NODE.IPv4}:30100/`, "-i");
      const head = raw.body.split("\r\n\r\n")[0]?.toLowerCase().split("\r\n") ?? [];
      for (
        const line of [
          "http/1.1 200 ok",
          "content-type: application/json",
          "x-content-type-options: nosniff",
          "x-load-balancing-endpoint-weight: 2",
        ]
      ) assert(head.includes(line), raw.body);
    });
    assertEquals(code, 0);
  });
});

e2eTest("nodePortAddresses limit where health check node ports are open", NEEDS, async () => {
  await withNode(async (node, client) => {
    const order = {
      nodePortAddresses: ["192.0.2.11/32", "2001:db8::/64"],
      services: [{ port: 30100, endpoints: { IPv4: 1, IPv6: 1 } }],
    };
    const { code } = await whileServing(node, order, async () => {
      const hosts = ["192.0.2.11", NODE.IPv4, NODE.IPv6];
      assertEquals(await statuses(client, hosts.map((host) => `http://${host}:30100/`)), [200, 0, 200]);
      assertEquals(await statuses(node, ["http://127.0.0.1:30100/", "http://[::1]:30100/"]), [0, 0]);
    });
    assertEquals(code, 0);
  });
});

e2eTest(
  "a taken address ends the program with bindAddressHardFail, and only delays it without",
  NEEDS,
  async () => {
    await withNode(async (node, client) => {
      const address = "0.0.0.0:10256";
      await whileServing(node, { healthz: address }, async () => {
        const failed = await whileServing(
          node,
          { healthz: address, hardFail: true },
          () => Promise.resolve(),
        );
        assertEquals(failed.code, 1);
        const told = failed.messages.filter((line) =>
          line.includes(`Cannot listen on ${address} for healthz`) &&
          line.includes("another proxy answers there")
        );
        assert(told.length > 0, failed.messages.join("\n"));
        const patient = await whileServing(node, { healthz: address }, async () => {
          assertEquals(await statuses(client, [`http://${NODE.IPv4}:10256/healthz`]), [200]);
        });
        assertEquals(patient.code, 0);
        assertEquals(patient.messages, ["Cannot listen, will try again", "Another program has the address"]);
      });
    });
  },
);

e2eTest(
  "profiles are had over the socket only, and what kproxy's permissions leave out is said to be not available",
  NEEDS,
  async () => {
    await withNode(async (node, client) => {
      const socket = socketIn(node.name);
      const order = { metrics: "0.0.0.0:10249", socket };
      const { code } = await whileServing(node, order, async () => {
        assertEquals(await statuses(client, [`http://${NODE.IPv4}:10249/debug/pprof/heap`]), [403]);
        assertEquals(await statuses(node, ["http://127.0.0.1:10249/debug/pprof/heap"]), [403]);
        const over = ["curl", "-s", "-m", "60", "--unix-socket", socket];
        const heap = await node.run([...over, "http://localhost/debug/pprof/heap"]);
        assertEquals(heap.startsWith('{"snapshot":'), true);
        const profile = await node.run([...over, "http://localhost/debug/pprof/profile?seconds=1"]);
        assertEquals(profile.includes("not available"), true);
      });
      assertEquals(code, 0);
    });
  },
);
