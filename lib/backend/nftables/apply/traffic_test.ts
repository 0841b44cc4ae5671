import { assertEquals } from "@std/assert";
import { exampleState } from "../../../../tests/support/golden.ts";
import { ExecError } from "../../../errors.ts";
import type { Exec, ExecResult } from "../../../kernel/exec.ts";
import { Nft } from "../../../kernel/nft.ts";
import { testPort, testService } from "../../../../tests/support/model_objects.ts";
import { silentLogger } from "../../../observe/log.ts";
import { type CountedSets, TrafficReader, TrafficTotals } from "./traffic.ts";
import type { ServiceTraffic, Traffic } from "../../../model/service_traffic.ts";
import type { ProxyState } from "../../../model/state.ts";

const NONE = { permissions: "none" } as const;

/** A kernel that has counted some packets to 10.96.0.10:80, and the time that listing them takes. */
class CountingKernel implements Exec {
  packets = 0;
  tookMs = 0;
  nowMs = 0;
  lists = 0;
  forgets = false;
  broken: "" | "gone" | "refused" = "";

  run(argv: readonly string[]): Promise<ExecResult> {
    const [, , , family, table, name] = argv;
    assertEquals([argv.slice(0, 3), family, table], [["nft", "list", "set"], "ip", "kproxy"]);
    this.lists++;
    this.nowMs += this.tookMs / 4;
    if (this.broken !== "") {
      const stderr = this.broken === "gone"
        ? "Error: No such file or directory"
        : "Error: Operation not permitted";
      return Promise.resolve({ code: 1, stdout: "", stderr });
    }
    const element = name === "service-traffic-in"
      ? `\t\telements = { 10.96.0.10 . tcp . 80 counter packets ${this.packets} bytes ${
        this.packets * 60
      } }\n`
      : "";
    return Promise.resolve({
      code: 0,
      stdout: `table ip kproxy {\n\tset ${name} {\n${this.forgets ? "" : "\t\tcounter\n"}${element}\t}\n}\n`,
      stderr: "",
    });
  }
}

function rig(): {
  kernel: CountingKernel;
  warnings: readonly string[];
  packets: () => Promise<number | undefined>;
} {
  const kernel = new CountingKernel();
  const warnings: string[] = [];
  const state = exampleState("IPv4", [testService({ name: "web", clusterIP: "10.96.0.10" })]);
  const reader = new TrafficReader({
    nft: new Nft(kernel),
    family: "IPv4",
    state: () => state,
    logger: { ...silentLogger, warn: (message) => warnings.push(message) },
    nowMs: () => kernel.nowMs,
  });
  return { kernel, warnings, packets: async () => (await reader.read())[0]?.incoming.packets };
}

Deno.test(
  "counters are read once a second at most, and those who ask at the same time share it",
  NONE,
  async () => {
    const { kernel, packets } = rig();
    kernel.packets = 3;
    assertEquals(await Promise.all([packets(), packets()]), [3, 3]);
    assertEquals(kernel.lists, 4);
    kernel.packets = 4;
    kernel.nowMs = 999;
    assertEquals([await packets(), kernel.lists], [3, 4]);
    kernel.nowMs = 1_000;
    assertEquals([await packets(), kernel.lists], [4, 8]);
  },
);

Deno.test("a kernel that forgets that it is to count is reported, once", NONE, async () => {
  const { kernel, warnings, packets } = rig();
  await packets();
  assertEquals(warnings, []);
  kernel.forgets = true;
  for (kernel.nowMs of [2_000, 4_000]) await packets();
  assertEquals([kernel.lists, warnings], [12, [
    "Traffic is not counted: this kernel forgets counters of set elements",
  ]]);
});

Deno.test("reading takes a twentieth of the time at most", NONE, async () => {
  const { kernel, packets } = rig();
  kernel.tookMs = 600;
  await packets();
  kernel.nowMs = 11_999;
  await packets();
  assertEquals(kernel.lists, 4);
  kernel.nowMs = 12_000;
  await packets();
  assertEquals(kernel.lists, 8);
});

Deno.test("what cannot be read now is as it was", NONE, async () => {
  const { kernel, packets } = rig();
  kernel.packets = 3;
  await packets();
  for (const broken of ["gone", "refused"] as const) {
    kernel.nowMs += 2_000;
    kernel.broken = broken;
    assertEquals(await packets(), 3, broken);
  }
  kernel.broken = "";
  kernel.nowMs += 2_000;
  kernel.packets = 1;
  assertEquals(await packets(), 4);
});

Deno.test("an error of the program itself is no reason to fail", NONE, async () => {
  const missing: Exec = {
    run: (argv) => Promise.reject(new ExecError(argv, 127, "not found")),
  };
  const reader = new TrafficReader({
    nft: new Nft(missing),
    family: "IPv4",
    state: () => null,
    logger: silentLogger,
    nowMs: () => 0,
  });
  assertEquals(await reader.read(), []);
});

const WEB = testService({
  name: "web",
  type: "NodePort",
  clusterIP: "10.96.0.10",
  externalIPs: ["198.51.100.1"],
  ports: [testPort({ name: "http", port: 80, nodePort: 30080 })],
});
const DNS = testService({
  name: "dns",
  clusterIP: "10.96.0.11",
  ports: [testPort({ name: "", protocol: "UDP", port: 53 })],
});

function state(...services: readonly ReturnType<typeof testService>[]): ProxyState {
  return exampleState("IPv4", services);
}

/** `set destination` → packets, with 100 bytes each. */
function counted(
  packets: Readonly<Record<string, number>>,
): CountedSets {
  const sets = new Map<string, Map<string, Traffic>>();
  for (const [name, count] of Object.entries(packets)) {
    const space = name.indexOf(" ");
    const set = sets.get(name.slice(0, space)) ?? new Map<string, Traffic>();
    sets.set(name.slice(0, space), set.set(name.slice(space + 1), { packets: count, bytes: count * 100 }));
  }
  return sets;
}

/** `shop/web 80 in out`; the bytes must be those of as many packets. */
function packets(traffic: readonly ServiceTraffic[]): string[] {
  for (const { incoming, outgoing } of traffic) {
    for (const { packets, bytes } of [incoming, outgoing]) assertEquals(bytes, packets * 100);
  }
  return traffic.map(({ namespacedName, port, incoming, outgoing }) =>
    `${namespacedName} ${port} ${incoming.packets} ${outgoing.packets}`
  ).sort();
}

Deno.test("a port's traffic is that of all its addresses and its node port", NONE, () => {
  const traffic = new TrafficTotals().take(
    state(WEB, DNS),
    counted({
      "service-traffic-in 10.96.0.10 . tcp . 80": 5,
      "service-traffic-in 198.51.100.1 . tcp . 80": 20,
      "nodeport-traffic-in tcp . 30080": 300,
      "service-traffic-out 10.96.0.10 . tcp . 80": 4,
      "nodeport-traffic-out tcp . 30080": 200,
      "service-traffic-in 10.96.0.11 . udp . 53": 0,
      // One without an owner, and another protocol's.
      "service-traffic-in 10.96.0.99 . tcp . 80": 7,
      "service-traffic-in 10.96.0.10 . udp . 80": 7,
      "cluster-ips 10.96.0.10 . tcp . 80": 7,
    }),
  );
  assertEquals(traffic, [{
    family: "IPv4",
    namespacedName: "shop/web",
    portName: "http",
    port: 80,
    protocol: "TCP",
    incoming: { packets: 325, bytes: 32500 },
    outgoing: { packets: 204, bytes: 20400 },
  }]);
});

Deno.test(
  "sums never go back: counters that begin anew go on, addresses that go leave what they counted",
  NONE,
  () => {
    const totals = new TrafficTotals();
    const at = (cluster: number, external?: number): CountedSets =>
      counted({
        "service-traffic-in 10.96.0.10 . tcp . 80": cluster,
        ...external === undefined ? {} : { "service-traffic-in 198.51.100.1 . tcp . 80": external },
      });
    const steps: [CountedSets, number][] = [
      [at(10, 5), 15],
      [at(12, 5), 17],
      [at(12, 5), 17],
      // The table was made anew.
      [at(1, 0), 18],
      [at(3, 4), 24],
      // The external IP is gone, and comes back.
      [at(3), 24],
      [at(4, 2), 27],
      [new Map(), 27],
    ];
    for (const [reading, wanted] of steps) {
      assertEquals(packets(totals.take(state(WEB), reading)), [`shop/web 80 ${wanted} 0`]);
    }
  },
);

Deno.test(
  "a Service that goes takes its sums along, and one that comes by its name begins anew",
  NONE,
  () => {
    const totals = new TrafficTotals();
    const reading = counted({ "service-traffic-in 10.96.0.11 . udp . 53": 9 });
    assertEquals(packets(totals.take(state(WEB, DNS), reading)), ["shop/dns 53 9 0"]);
    assertEquals(packets(totals.take(state(WEB), new Map())), []);
    assertEquals(
      packets(totals.take(state(DNS), counted({ "service-traffic-in 10.96.0.11 . udp . 53": 2 }))),
      ["shop/dns 53 2 0"],
    );
  },
);

Deno.test(
  "a destination that two Services want counts for the first in rank, and anew for the next",
  NONE,
  () => {
    const totals = new TrafficTotals();
    const other = testService({ name: "api", clusterIP: "10.96.0.12", externalIPs: ["198.51.100.1"] });
    const reading = (count: number): CountedSets =>
      counted({ "service-traffic-in 198.51.100.1 . tcp . 80": count });
    assertEquals(packets(totals.take(state(WEB, other), reading(6))), ["shop/api 80 6 0"]);
    assertEquals(packets(totals.take(state(WEB), reading(8))), ["shop/web 80 8 0"]);
  },
);
