import { assert, assertEquals, assertThrows } from "@std/assert";
import { ChangeTracker } from "../model/change_tracker.ts";
import type { IpFamily, NamespacedName, NodeObject } from "../model/objects.ts";
import {
  NODE_A,
  testPort,
  testService,
  testSlice,
  testSliceEndpoint,
  testSlicePort,
} from "../../tests/support/model_objects.ts";
import { listenSteadily, steadyPorts } from "../../tests/support/steady_ports.ts";
import { silentLogger } from "../observe/log.ts";
import { DescriptorAllowance } from "../kernel/descriptors.ts";
import { ConnectionPool } from "../kernel/connection_pool.ts";
import type { listen } from "./http_listener.ts";
import {
  nodePortListenAddresses,
  type PortConflict,
  serviceHealthAnswer,
  type ServiceHealthOptions,
  ServiceHealthServers,
} from "./service_health.ts";

const CLUSTER_IP_BASES = { IPv4: "10.96.0.", IPv6: "fd00:1::" };

/** One family's Services and endpoints, handed to the servers as a successful sync does. */
class Lane {
  readonly tracker: ChangeTracker;

  constructor(readonly servers: ServiceHealthServers, readonly family: IpFamily = "IPv4") {
    this.tracker = new ChangeTracker({ family, node: NODE_A });
  }

  service(name: string, healthCheckNodePort: number): this {
    // Each Service has its own.
    const clusterIP = `${CLUSTER_IP_BASES[this.family]}${name.charCodeAt(0)}`;
    this.tracker.updateService(
      undefined,
      testService({
        name,
        type: "LoadBalancer",
        clusterIP,
        clusterIPs: [clusterIP],
        ipFamilies: [this.family],
        externalTrafficPolicy: "Local",
        healthCheckNodePort,
      }),
    );
    return this;
  }

  noService(name: string): this {
    const service = testService({ name });
    this.tracker.updateService(service, undefined);
    return this;
  }

  endpoints(serviceName: string, local: number, more: { ready?: boolean; terminating?: boolean } = {}): this {
    const base = this.family === "IPv4" ? "10.0.0." : "fd00::";
    const endpoints = Array.from({ length: local }, (_, i) => `${base}${i + 1}`).map((ip) =>
      testSliceEndpoint(ip, { nodeName: NODE_A.name, ...more })
    );
    const remote = testSliceEndpoint(`${base}99`, { nodeName: "node-b" });
    const slice = testSlice({
      name: `${serviceName}-1`,
      serviceName,
      addressType: this.family,
      endpoints: [...endpoints, remote],
    });
    this.tracker.updateEndpointSlice(slice, false);
    return this;
  }

  /** A successful sync of what changed. */
  async sync(full = false): Promise<void> {
    const { state, updatedServices } = this.tracker.checkout();
    this.servers.update(this.family, state, full ? "all" : updatedServices);
    await this.servers.settled();
  }
}

/** Servers with one lane per family, closed at the end whatever happens. */
async function withServers(
  work: (bench: {
    servers: ServiceHealthServers;
    ipv4: Lane;
    ipv6: Lane;
    conflicts: PortConflict[];
    counts: number[];
  }) => Promise<void>,
  options: Partial<ServiceHealthOptions> = {},
): Promise<void> {
  const conflicts: PortConflict[] = [];
  const counts: number[] = [];
  const servers = new ServiceHealthServers({
    isProxyHealthy: () => true,
    addresses: () => "all",
    log: silentLogger,
    pool: new ConnectionPool(),
    onConflict: (conflict) => conflicts.push(conflict),
    onConflictCount: (count) => counts.push(count),
    ...options,
  });
  try {
    await work({ servers, ipv4: new Lane(servers), ipv6: new Lane(servers, "IPv6"), conflicts, counts });
  } finally {
    await servers.stop();
  }
}

/** A port that nothing has at this moment. */
function freePort(): number {
  return steadyPorts(1, "::");
}

/** Status and number of endpoints; undefined if the connection is refused. */
async function ask(
  port: number,
  host = "127.0.0.1",
): Promise<[status: number, endpoints: number] | undefined> {
  try {
    (await Deno.connect({ hostname: host.replace(/[[\]]/g, ""), port })).close();
  } catch (error) {
    if (error instanceof Deno.errors.ConnectionRefused) return undefined;
    throw error;
  }
  const response = await fetch(`http://${host}:${port}/any/path?at=all`, { method: "POST" });
  return [response.status, JSON.parse(await response.text()).localEndpoints];
}

async function service(port: number): Promise<NamespacedName> {
  const response = await fetch(`http://127.0.0.1:${port}/`);
  const { namespace, name } = JSON.parse(await response.text()).service;
  return `${namespace}/${name}`;
}

Deno.test("a port opens with its Service, follows its endpoints and closes with it", async () => {
  await withServers(async ({ ipv4 }) => {
    const port = freePort();
    await ipv4.service("web", port).sync(true);
    assertEquals(await ask(port), [503, 0]);
    await ipv4.endpoints("web", 2).sync();
    assertEquals(await ask(port), [200, 2]);
    assertEquals(await service(port), "shop/web");
    await ipv4.endpoints("web", 0).sync();
    assertEquals(await ask(port), [503, 0]);
    await ipv4.noService("web").sync();
    assertEquals(await ask(port), undefined);
  });
});

Deno.test("endpoints that only serve on while terminating do not count", async () => {
  await withServers(async ({ ipv4 }) => {
    const port = freePort();
    await ipv4.service("web", port).endpoints("web", 2, { ready: false, terminating: true }).sync(true);
    assertEquals(await ask(port), [503, 0]);
  });
});

Deno.test("an endpoint counts once, however many ports it serves; without policy Local there is no port", async () => {
  await withServers(async ({ ipv4 }) => {
    const [port, other] = [freePort(), freePort()];
    const ports = [testPort({ name: "http" }), testPort({ name: "https", port: 443 })];
    const local = { type: "LoadBalancer", externalTrafficPolicy: "Local" } as const;
    const web = testService({ ...local, name: "web", ports, healthCheckNodePort: port });
    const inner = testService({ name: "inner", clusterIPs: ["10.96.0.99"], healthCheckNodePort: other });
    for (const service of [web, inner]) ipv4.tracker.updateService(undefined, service);
    const slice = testSlice({
      ports: ports.map(({ name }) => testSlicePort({ name })),
      endpoints: ["10.0.0.1", "10.0.0.2"].map((ip) => testSliceEndpoint(ip, { nodeName: NODE_A.name })),
    });
    ipv4.tracker.updateEndpointSlice(slice, false);
    await ipv4.sync(true);
    assertEquals([await ask(port), await ask(other)], [[200, 2], undefined]);
  });
});

Deno.test("an unhealthy proxy answers 503 with the count", async () => {
  let healthy = true;
  await withServers(async ({ ipv4 }) => {
    const port = freePort();
    await ipv4.service("web", port).endpoints("web", 1).sync(true);
    assertEquals(await ask(port), [200, 1]);
    healthy = false;
    assertEquals(await ask(port), [503, 1]);
  }, { isProxyHealthy: () => healthy });
});

Deno.test("a changed port closes the old one and opens the new one; other Services keep theirs", async () => {
  await withServers(async ({ ipv4 }) => {
    const [first, second, other] = [freePort(), freePort(), freePort()];
    await ipv4.service("web", first).service("api", other).endpoints("web", 1).sync(true);
    await ipv4.service("web", second).sync();
    assertEquals([await ask(first), await ask(second), await ask(other)], [undefined, [200, 1], [503, 0]]);
  });
});

Deno.test("two Services may swap their ports", async () => {
  await withServers(async ({ ipv4, conflicts }) => {
    const [first, second] = [freePort(), freePort()];
    await ipv4.service("web", first).service("api", second).sync(true);
    await ipv4.service("web", second).service("api", first).sync();
    assertEquals([await service(first), await service(second)], ["shop/api", "shop/web"]);
    assertEquals(conflicts, []);
  });
});

Deno.test("each family is answered with its own count, on one port", async () => {
  await withServers(async ({ ipv4, ipv6, conflicts }) => {
    const port = freePort();
    await ipv4.service("web", port).endpoints("web", 2).sync(true);
    assertEquals([await ask(port), await ask(port, "[::1]")], [[200, 2], [503, 0]]);
    await ipv6.service("web", port).endpoints("web", 1).sync(true);
    assertEquals([await ask(port), await ask(port, "[::1]")], [[200, 2], [200, 1]]);
    await ipv4.noService("web").sync();
    assertEquals([await ask(port), await ask(port, "[::1]")], [[503, 0], [200, 1]]);
    await ipv6.noService("web").sync();
    assertEquals([await ask(port), await ask(port, "[::1]")], [undefined, undefined]);
    assertEquals(conflicts, []);
  });
});

Deno.test("with node port addresses the port is open on those alone, per family", async () => {
  await withServers(async ({ ipv4, ipv6 }) => {
    const port = freePort();
    await ipv4.service("web", port).endpoints("web", 1).sync(true);
    await ipv6.service("web", port).endpoints("web", 2).sync(true);
    assertEquals(await ask(port, "127.0.0.2"), [200, 1]);
    assertEquals(await ask(port, "127.0.0.3"), [200, 1]);
    assertEquals(await ask(port, "[::1]"), [200, 2]);
    assertEquals(await ask(port, "127.0.0.1"), undefined);
  }, { addresses: (family) => family === "IPv4" ? ["127.0.0.2", "127.0.0.3"] : ["::1"] });
});

Deno.test("if IPv6 is limited to addresses, all of IPv4 does not open the rest of IPv6", async () => {
  await withServers(async ({ ipv4, ipv6 }) => {
    const port = freePort();
    await ipv4.service("web", port).endpoints("web", 1).sync(true);
    await ipv6.service("web", port).sync(true);
    assertEquals([await ask(port, "127.0.0.2"), await ask(port, "[::1]")], [[200, 1], undefined]);
  }, { addresses: (family) => family === "IPv4" ? "all" : [] });
});

Deno.test("a new address of the node is listened on from the next full sync on", async () => {
  let addresses = ["127.0.0.2"];
  await withServers(async ({ ipv4 }) => {
    const port = freePort();
    await ipv4.service("web", port).sync(true);
    addresses = ["127.0.0.3"];
    await ipv4.sync(true);
    assertEquals([await ask(port, "127.0.0.2"), await ask(port, "127.0.0.3")], [undefined, [503, 0]]);
  }, { addresses: () => addresses });
});

Deno.test("if the addresses cannot be listed, all of them are used", async () => {
  await withServers(async ({ ipv4 }) => {
    const port = freePort();
    await ipv4.service("web", port).sync(true);
    assertEquals(await ask(port), [503, 0]);
  }, {
    addresses: () => {
      throw new Error("no");
    },
  });
});

Deno.test("a port that something else has is reported once, tried again, and opens when it is free", async () => {
  await withServers(async ({ ipv4, conflicts, counts }) => {
    const taken = listenSteadily();
    const { port } = taken.addr;
    try {
      const other = freePort();
      await ipv4.service("web", port).service("api", other).sync(true);
      await ipv4.endpoints("web", 1).sync();
      assertEquals(conflicts.map(({ service, port }) => [service, port]), [["shop/web", port]]);
      assert(/in use/i.test(conflicts[0]?.message ?? ""), conflicts[0]?.message);
      assertEquals(await ask(other), [503, 0]);
    } finally {
      taken.close();
    }
    const deadlineMs = performance.now() + 300_000;
    while (await ask(port) === undefined) {
      assert(performance.now() < deadlineMs);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    assertEquals([await ask(port), counts, conflicts.length], [[200, 1], [1, 0], 1]);
  }, { retryMs: 20 });
});

Deno.test("a Service answers on all of its addresses or on none", async () => {
  const taken = listenSteadily("127.0.0.3");
  try {
    await withServers(async ({ ipv4, conflicts }) => {
      const { port } = taken.addr;
      await ipv4.service("web", port).sync(true);
      assertEquals([await ask(port, "127.0.0.2"), conflicts.length], [undefined, 1]);
    }, { addresses: (family) => family === "IPv4" ? ["127.0.0.2", "127.0.0.3"] : [] });
  } finally {
    taken.close();
  }
});

Deno.test("of two Services with the same port the one that has it keeps it, and gives it on when it goes", async () => {
  await withServers(async ({ ipv4, conflicts }) => {
    const port = freePort();
    await ipv4.service("web", port).sync(true);
    await ipv4.service("api", port).sync();
    assertEquals(await service(port), "shop/web");
    assertEquals(conflicts, [{ service: "shop/api", port, message: "it is that of shop/web too" }]);
    await ipv4.noService("web").sync();
    assertEquals(await service(port), "shop/api");
  });
});

Deno.test("stopping closes everything and nothing opens afterwards", async () => {
  await withServers(async ({ servers, ipv4 }) => {
    const [port, late] = [freePort(), freePort()];
    await ipv4.service("web", port).sync(true);
    await servers.stop();
    await ipv4.service("late", late).sync(true);
    assertEquals([await ask(port), await ask(late)], [undefined, undefined]);
  });
});

Deno.test("a port whose socket ends by itself is reported, and opened again", async () => {
  const sockets: { readonly end: () => void }[] = [];
  const open: typeof listen = ({ port }) => {
    const ended = Promise.withResolvers<void>();
    sockets.push({ end: ended.resolve });
    const close = (): Promise<void> => {
      ended.resolve();
      return ended.promise;
    };
    return { port, addresses: [`[::]:${port}`], finished: ended.promise, close };
  };
  await withServers(async ({ ipv4, conflicts, counts }) => {
    await ipv4.service("web", 30100).sync(true);
    assertEquals(sockets.length, 1);
    sockets[0]?.end();
    const deadlineMs = performance.now() + 300_000;
    while (sockets.length < 2 || counts.length < 2) {
      assert(performance.now() < deadlineMs, "it was not opened again");
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    assertEquals(conflicts.map(({ message }) => message), ["it stopped listening by itself"]);
    assertEquals(counts, [1, 0]);
  }, { listen: open, retryMs: 10 });
});

Deno.test("a port that would leave too few descriptors for the tools is not opened, and reported", async () => {
  let spare = 97;
  const pool = new ConnectionPool({ allowance: new DescriptorAllowance({ count: () => spare-- }) });
  await withServers(async ({ ipv4, conflicts }) => {
    const [first, second] = [freePort(), freePort()];
    await ipv4.service("api", first).service("web", second).sync(true);
    assertEquals(conflicts.map(({ service }) => service), ["shop/web"]);
    assert(conflicts[0]?.message.includes("file descriptors"));
    assertEquals([await ask(first), await ask(second)], [[503, 0], undefined]);
  }, { pool });
});

Deno.test("connections to the port of one Service take none from another's", async () => {
  await withServers(async ({ ipv4 }) => {
    const [first, second] = [freePort(), freePort()];
    await ipv4.service("api", first).service("web", second).sync(true);
    const open = await Promise.all(
      Array.from({ length: 32 }, () => Deno.connect({ hostname: "127.0.0.1", port: first })),
    );
    assertEquals(await ask(second), [503, 0]);
    const answers = await Promise.all(open.map(async (connection) => {
      using _connection = connection;
      await connection.write(new TextEncoder().encode("GET / HTTP/1.0\r\n\r\n"));
      return await connection.read(new Uint8Array(512));
    }));
    assertEquals(answers.filter((bytes) => bytes === null), []);
  });
});

const PURE = { permissions: "none" } as const;
const INTERFACE_IPS = ["127.0.0.1", "10.0.0.5", "192.0.2.7", "::1", "fd00::5", "fe80::1%eth0"];
const NODE: NodeObject = {
  kind: "Node",
  name: "node-a",
  labels: {},
  podCIDRs: [],
  addresses: [{ type: "InternalIP", address: "10.0.0.5" }, { type: "InternalIP", address: "fd00::5" }],
  taintKeys: [],
  deleting: false,
};

Deno.test("health check ports are opened where node ports are", PURE, () => {
  const cases: [configured: string[] | null, IPv4: "all" | string[], IPv6: "all" | string[]][] = [
    [null, "all", "all"],
    [[], "all", "all"],
    [["0.0.0.0/0", "::/0"], "all", "all"],
    [["10.0.0.0/8"], ["10.0.0.5"], "all"],
    [["10.0.0.0/8", "fd00::/8"], ["10.0.0.5"], ["fd00::5"]],
    [["0.0.0.0/0", "fd00::/8"], "all", ["fd00::5"]],
    [["primary"], ["10.0.0.5"], ["fd00::5"]],
    [["192.0.2.0/24", "10.0.0.0/8"], ["10.0.0.5", "192.0.2.7"], "all"],
    [["203.0.113.0/24"], [], "all"],
    [["fe80::/10"], "all", []],
  ];
  for (const [configured, ipv4, ipv6] of cases) {
    const config = { nodePortAddresses: configured, bindAddress: "0.0.0.0" };
    assertEquals(nodePortListenAddresses("IPv4", config, NODE, INTERFACE_IPS), ipv4, `IPv4 ${configured}`);
    assertEquals(nodePortListenAddresses("IPv6", config, NODE, INTERFACE_IPS), ipv6, `IPv6 ${configured}`);
  }
});

Deno.test("an entry that is no network is an error", PURE, () => {
  const config = { nodePortAddresses: ["nonsense"], bindAddress: "0.0.0.0" };
  assertThrows(() => nodePortListenAddresses("IPv4", config, NODE, []), SyntaxError, "nonsense");
});

Deno.test("200 only with a local endpoint and a healthy proxy", { permissions: "none" }, () => {
  const cases: [endpoints: number, healthy: boolean, status: number][] = [
    [2, true, 200],
    [1, true, 200],
    [0, true, 503],
    [2, false, 503],
    [0, false, 503],
  ];
  for (const [endpoints, healthy, status] of cases) {
    const response = serviceHealthAnswer("shop/web", endpoints, healthy);
    assertEquals(response.status, status, `${endpoints} ${healthy}`);
    assertEquals(response.headers.get("x-load-balancing-endpoint-weight"), String(endpoints));
  }
});

Deno.test("the body and the headers are kube-proxy's, also with 503", { permissions: "none" }, async () => {
  for (const [endpoints, healthy] of [[1, true], [0, true], [3, false]] as const) {
    const response = serviceHealthAnswer("edge/ingress", endpoints, healthy);
    assertEquals(
      await response.text(),
      `{\n\t"service": {\n\t\t"namespace": "edge",\n\t\t"name": "ingress"\n\t},\n` +
        `\t"localEndpoints": ${endpoints},\n\t"serviceProxyHealthy": ${healthy}\n}`,
    );
    assertEquals(response.headers.get("content-type"), "application/json");
    assertEquals(response.headers.get("x-content-type-options"), "nosniff");
  }
});
