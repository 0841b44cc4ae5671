import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { FakeIptables } from "../../../../tests/support/fake_iptables.ts";
import {
  NODE_A,
  testPort,
  testService,
  testSlice,
  testSliceEndpoint,
} from "../../../../tests/support/model_objects.ts";
import { recordingLog } from "../../../../tests/support/recording_log.ts";
import { relayContext, RelayRecord } from "../../../../tests/support/relay_record.ts";
import { until } from "../../../../tests/support/until.ts";
import { SyncError } from "../../../errors.ts";
import type { Exec, ExecResult } from "../../../kernel/exec.ts";
import { Iptables } from "../../../kernel/iptables.ts";
import { ChangeTracker } from "../../../model/change_tracker.ts";
import type { Service } from "../../../model/objects.ts";
import type { ApplyReport } from "../../backend.ts";
import { UserspaceProxier, type UserspaceSettings } from "./proxier.ts";
import { openPortal } from "../forward/open_portal.ts";
import type { Portal } from "../plan/plan.ts";
import { Portals } from "./portals.ts";
import { SharedPortals } from "../forward/shared_portals.ts";
import { StaleUdp } from "./withdrawal.ts";

const SETTINGS: UserspaceSettings = {
  listenIp: "127.0.0.1",
  nodeIp: "192.0.2.10",
  detector: { kind: "none" },
  nodePortAddresses: { matchAll: true, containsIPv4Loopback: true, cidrs: [] },
  has: { dnat: true, physdev: true, firewall: true },
};

/** A node in memory; its portals are real, on loopback. */
class Rig implements AsyncDisposable {
  readonly iptables = new FakeIptables({});
  readonly shared = new SharedPortals((place) => openPortal(place, relayContext(this.record)));
  readonly tracker = new ChangeTracker({ family: "IPv4", node: NODE_A });
  readonly started: string[] = [];
  readonly record = new RelayRecord();
  report: ApplyReport | undefined;
  /** Results of some restores instead of their work. */
  refuse: (text: string) => ExecResult | undefined | Promise<undefined> = () => undefined;
  /** What happens between the next listing of rules and its use. */
  meanwhile: (() => Promise<unknown>) | undefined;
  readonly #services = new Map<string, Service>();
  portals: Portals;
  proxier: UserspaceProxier;
  /** Makes a proxier that leads to portals of another process. */
  beside!: (portOf: (portal: Portal) => number | undefined) => UserspaceProxier;

  constructor(private readonly range: { first: number; last: number } | null = null) {
    [this.portals, this.proxier] = this.nextProxier();
  }

  /** A proxier that knows nothing of a former one. */
  nextProxier(): [Portals, UserspaceProxier] {
    const { log } = recordingLog();
    const exec: Exec = {
      run: async (argv, options) => {
        const text = typeof options?.stdin === "function"
          ? [...options.stdin()].join("")
          : options?.stdin ?? "";
        this.started.push(argv[0] === "conntrack" ? text.trim() : argv[0] ?? "");
        if (argv[0] === "conntrack") return { code: 0, stdout: "", stderr: "" };
        const refused = argv[0]?.endsWith("-restore") ? await this.refuse(text) : undefined;
        const result = refused ?? await this.iptables.run(argv, options);
        const { meanwhile } = this;
        if (argv[0] === "iptables-save") {
          this.meanwhile = undefined;
          await meanwhile?.();
        }
        return result;
      },
    };
    const iptables = new Iptables(exec, {
      family: "IPv4",
      variant: "nft",
      version: "1.8.9",
      programs: { command: "iptables", save: "iptables-save", restore: "iptables-restore" },
    });
    const place = { family: "IPv4", ip: "127.0.0.1", range: this.range } as const;
    const portals = new Portals(({ protocol }, requested) =>
      this.shared.open({ ...place, protocol, requested })
    );
    const make = (portals: Portals): UserspaceProxier =>
      new UserspaceProxier({
        iptables,
        settings: SETTINGS,
        portals,
        staleUdp: new StaleUdp(exec, "IPv4", log),
        interfaceIps: () => [],
        logger: log,
      });
    this.beside = (portOf) =>
      make(
        new Portals((portal) => {
          const port = portOf(portal);
          const other = { ip: "", update: () => {}, leave: () => {}, close: () => Promise.resolve() };
          return port === undefined
            ? Promise.reject(new Error("no port"))
            : Promise.resolve({ ...other, port });
        }),
      );
    return [this.portals = portals, this.proxier = make(portals)];
  }

  put(fields: Partial<Service> = {}, address = "127.0.0.1"): void {
    const service = testService(fields);
    this.tracker.updateService(this.#services.get(service.name), service);
    this.#services.set(service.name, service);
    const endpoints = [testSliceEndpoint(address)];
    this.tracker.updateEndpointSlice(
      testSlice({ name: `${service.name}-1`, serviceName: service.name, endpoints }),
      false,
    );
  }

  remove(name: string): void {
    this.tracker.updateService(this.#services.get(name), undefined);
    this.#services.delete(name);
  }

  /** Syncs what changed; everything for `all`. @returns how many programs of iptables ran */
  async sync(all: "all" | "changed" = "changed"): Promise<string[]> {
    this.started.length = 0;
    const { state, updatedServices } = this.tracker.checkout();
    this.report = await this.proxier.sync({ state, changed: all === "all" ? "all" : updatedServices });
    return [...this.started];
  }

  rules(): string[] {
    return this.iptables.saved("IPv4", "nat").split("\n").filter((line) => line.startsWith("-A KUBE-"));
  }

  /** As when the process ends. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.portals.leave();
    await this.shared.closeLeft();
    await until(() => this.record.open.TCP === 0);
  }
}

/** Destination → port of kproxy's own, by the rules for packets not from the node. */
function ways(rig: Rig): Record<string, number> {
  const found = rig.rules().filter((rule) => rule.startsWith("-A KUBE-PORTALS-CONTAINER "));
  const word = (rule: string, regexp: RegExp): string => regexp.exec(rule)?.[1] ?? "";
  return Object.fromEntries(found.map((rule) => [
    `${word(rule, / -d (\S+)\/32 /)}:${word(rule, / --dport (\d+) /)}`,
    Number(word(rule, / -j DNAT --to-destination 127\.0\.0\.1:(\d+)$/)),
  ]));
}

/** The ports that clients reach by rules only. */
function guarded(rig: Rig): readonly number[] {
  return [
    ...rig.iptables.saved("IPv4", "filter").matchAll(/^-A KUBE-PORTALS-FIREWALL .*--dport (\d+) -j REJECT/gm),
  ]
    .map(([, port]) => Number(port)).sort();
}

async function answers(port: number): Promise<boolean> {
  try {
    (await Deno.connect({ hostname: "127.0.0.1", port })).close();
    return true;
  } catch (error) {
    if (error instanceof Deno.errors.ConnectionRefused) return false;
    throw error;
  }
}

Deno.test("a change of rules starts a program for each table, one of endpoints none, and nothing is closed that rules lead to", async () => {
  await using rig = new Rig();
  rig.put();
  const [save, restore] = ["iptables-save", "iptables-restore"];
  assertEquals(await rig.sync("all"), [save, restore, restore], "the firewall comes first");
  const [first] = Object.values(ways(rig));
  assertEquals(ways(rig), { "10.96.0.10:80": first! });
  assert(await answers(first!));
  rig.put({ name: "db", clusterIP: "10.96.0.11", ports: [testPort({ port: 5432 })] });
  assertEquals(await rig.sync(), [restore, restore]);
  const second = ways(rig)["10.96.0.11:5432"]!;
  assertEquals(ways(rig), { "10.96.0.10:80": first!, "10.96.0.11:5432": second });
  rig.put({}, "127.0.0.3");
  assertEquals(await rig.sync(), []);
  rig.put({ ports: [testPort({ port: 81 })] }, "127.0.0.3");
  assertEquals(await rig.sync(), [restore], "who may come to the port is the same");
  assertEquals(ways(rig), { "10.96.0.10:81": first!, "10.96.0.11:5432": second }, "the same port leads on");
  rig.remove("web");
  await rig.sync();
  assertEquals(ways(rig), { "10.96.0.11:5432": second });
  assertEquals(guarded(rig), [second]);
  assertEquals([await answers(first!), await answers(second)], [false, true]);
});

Deno.test("the next proxy server listens where the rules lead to already, of any origin", async () => {
  await using rig = new Rig();
  rig.put();
  rig.put({ name: "dns", clusterIP: "10.96.0.53", ports: [testPort({ protocol: "UDP", port: 53 })] });
  await rig.sync("all");
  const before = ways(rig);
  // In the same process its sockets are handed over.
  const former = rig.portals;
  former.leave();
  rig.nextProxier();
  await rig.sync("all");
  assertEquals(ways(rig), before);
  assert(await answers(before["10.96.0.10:80"]!));
  // After an end they are opened again.
  await rig[Symbol.asyncDispose]();
  assertEquals(await answers(before["10.96.0.10:80"]!), false);
  rig.nextProxier();
  await rig.sync("all");
  assertEquals(ways(rig), before);
  assert(await answers(before["10.96.0.10:80"]!));
});

Deno.test("a port that another program has is no reason to fail: the rules lead to another one", async () => {
  await using rig = new Rig();
  rig.put();
  await rig.sync("all");
  const before = ways(rig)["10.96.0.10:80"]!;
  await rig[Symbol.asyncDispose]();
  using taken = Deno.listen({ hostname: "127.0.0.1", port: before });
  rig.nextProxier();
  await rig.sync("all");
  const now = ways(rig)["10.96.0.10:80"]!;
  assert(now !== taken.addr.port);
  assert(await answers(now));
});

Deno.test("rules that lead to the ports of a kproxy that was started meanwhile are left alone until it is gone", async () => {
  await using rig = new Rig();
  rig.put({ type: "NodePort", ports: [testPort({ nodePort: 30_080 })] });
  await rig.sync("all");
  const [former, own] = [rig.proxier, rig.rules()];
  await using _former = {
    [Symbol.asyncDispose]: async () => void await formerPortals.closeUnused(new Map(), true),
  };
  const formerPortals = rig.portals;
  const [nextPortals, next] = rig.nextProxier();
  await rig.sync("all");
  const led = rig.rules();
  assert(own.every((rule) => !led.includes(rule)), "the next one has ports of its own");
  assertEquals(guarded(rig).length, 2, "those of either are reached by rules only");

  assertEquals(await former.findDamage(), false);
  rig.put({ name: "more", clusterIP: "10.96.0.11" });
  const { state, updatedServices } = rig.tracker.checkout();
  rig.started.length = 0;
  await former.sync({ state, changed: updatedServices });
  assertEquals(rig.started, ["iptables-restore", "iptables-save"], "the first is refused");
  assertEquals(rig.rules(), led, "what only adds is not written either");
  await next.sync({ state, changed: updatedServices });
  assertEquals(Object.keys(ways(rig)).sort(), ["10.96.0.10:80", "10.96.0.11:80"]);
  await former.sync({ state, changed: "all" });
  assertEquals([await former.findDamage(), await next.findDamage()], [false, false]);

  assertEquals(guarded(rig).length, 3);
  rig.remove("more");
  const removal = rig.tracker.checkout();
  rig.meanwhile = () => next.sync({ state: removal.state, changed: removal.updatedServices });
  await former.sync({ state: removal.state, changed: removal.updatedServices });
  assertEquals(
    rig.rules(),
    led,
    "a port of the next one that has closed since the rules were read is no reason",
  );

  await nextPortals.closeUnused(new Map(), true);
  assert(await former.findDamage() !== false, "no process listens there any more");
  await former.sync({ state, changed: "all" });
  for (const port of Object.values(ways(rig))) assert(await answers(port));
  assertEquals(guarded(rig), Object.values(ways(rig)).sort(), "a port without a listener is forgotten");
});

Deno.test("beside a kproxy that runs, rules lead to the ports that it has", async () => {
  await using rig = new Rig();
  rig.put();
  await rig.sync("all");
  const sound = rig.rules();
  const known = new Map(rig.portals.facts("IPv4").map(({ servicePort, port }) => [servicePort, port]));
  const beside = rig.beside(({ text }) => known.get(text));
  await rig.iptables.run(["iptables", "-t", "nat", "-F", "KUBE-PORTALS-HOST"]);
  rig.put({ name: "late", clusterIP: "10.96.0.11" });
  const { state } = rig.tracker.checkout();
  const { quarantined } = await beside.sync({ state, changed: "all" });
  assertEquals(rig.rules(), sound);
  assertEquals(quarantined, [
    { service: "shop/late", problem: "shop/late: no port" },
  ]);
});

Deno.test("ports come from the range; who finds none is quarantined and tried again, the others are served", async () => {
  const free = ((): number => {
    using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
    return listener.addr.port;
  })();
  await using rig = new Rig({ first: free, last: free });
  rig.put();
  await rig.sync("all");
  assertEquals(ways(rig), { "10.96.0.10:80": free });
  rig.put({ name: "late", clusterIP: "10.96.0.11" });
  await rig.sync();
  assertEquals(ways(rig), { "10.96.0.10:80": free });
  const [quarantined] = rig.report?.quarantined ?? [];
  assertEquals(quarantined?.service, "shop/late");
  assertStringIncludes(
    quarantined?.problem ?? "",
    `no TCP port ${free} of 127.0.0.1 can be had`,
  );
  rig.remove("web");
  await rig.sync();
  rig.put({ name: "late", clusterIP: "10.96.0.12" });
  await rig.sync();
  assertEquals(ways(rig), { "10.96.0.12:80": free });
  assertEquals(rig.report?.quarantined, []);
});

Deno.test("a Service whose rules are refused costs the others nothing, at a start and later", async () => {
  await using rig = new Rig();
  const refusal: ExecResult = {
    code: 2,
    stdout: "",
    stderr: "iptables-restore v1.8.9 (nf_tables): no such thing\n",
  };
  rig.refuse = (text) => text.includes("10.96.0.66") ? refusal : undefined;
  rig.put();
  rig.put({ name: "bad", clusterIP: "10.96.0.66" });
  await rig.sync("all");
  assertEquals(Object.keys(ways(rig)), ["10.96.0.10:80"]);
  assertEquals(rig.report?.quarantined?.map(({ service }) => service), ["shop/bad"]);
  rig.put({ name: "good", clusterIP: "10.96.0.11" });
  rig.put({ name: "bad", clusterIP: "10.96.0.66", ports: [testPort({ port: 81 })] });
  await rig.sync();
  assertEquals(Object.keys(ways(rig)).sort(), ["10.96.0.10:80", "10.96.0.11:80"]);
  rig.refuse = () => undefined;
  rig.put({ name: "bad", clusterIP: "10.96.0.66", ports: [testPort({ port: 82 })] });
  await rig.sync();
  assertEquals(Object.keys(ways(rig)).sort(), ["10.96.0.10:80", "10.96.0.11:80", "10.96.0.66:82"]);
  assertEquals(rig.report?.quarantined, []);
});

Deno.test("damage of any kind is seen, and the next sync repairs it", async () => {
  await using rig = new Rig();
  rig.put({ type: "NodePort", ports: [testPort({ nodePort: 30_080 })] });
  await rig.sync("all");
  assertEquals(await rig.proxier.findDamage(), false);
  const whole = rig.rules();
  const [rule = ""] = whole;
  for (
    const [damage, found] of [
      [["-t", "nat", "-F", "KUBE-PORTALS-HOST"], ["nat KUBE-PORTALS-HOST"]],
      [["-t", "nat", "-F", "PREROUTING"], ["nat PREROUTING"]],
      [["-t", "filter", "-F", "INPUT"], ["filter INPUT"]],
      [["-t", "filter", "-F", "KUBE-PORTALS-FIREWALL"], ["filter KUBE-PORTALS-FIREWALL"]],
      [["-t", "filter", "-F", "KUBE-NODEPORT-NON-LOCAL"], ["filter KUBE-NODEPORT-NON-LOCAL"]],
      [["-t", "nat", "-A", ...rule.split(" ").slice(1, 2), "-j", "ACCEPT"], [`nat ${rule.split(" ")[1]}`]],
    ] as const
  ) {
    assertEquals((await rig.iptables.run(["iptables", ...damage])).stderr, "");
    assertEquals(await rig.proxier.findDamage(), [...found]);
    await rig.sync("all");
    assertEquals(await rig.proxier.findDamage(), false);
    assertEquals(rig.rules(), whole);
  }
});

Deno.test("tracked UDP flows begin anew where rules lead elsewhere, and only there", async () => {
  await using rig = new Rig();
  rig.put();
  rig.put({ name: "dns", clusterIP: "10.96.0.53", ports: [testPort({ protocol: "UDP", port: 53 })] });
  const deletion = (ip: string, port: number): string =>
    `-D -f ipv4 -p udp --orig-port-dst ${port} --orig-dst ${ip}`;
  assertEquals((await rig.sync("all")).at(-1), deletion("10.96.0.53", 53));
  rig.put({}, "127.0.0.9");
  rig.put({ name: "dns", clusterIP: "10.96.0.53", ports: [testPort({ protocol: "UDP", port: 54 })] });
  assertEquals((await rig.sync()).at(-1), `${deletion("10.96.0.53", 54)}\n${deletion("10.96.0.53", 53)}`);
  // Flows whose answers are on their way stay where they are: rules of a former proxy server that lead on, and those of a repair.
  const former = rig.portals;
  former.leave();
  rig.nextProxier();
  assertEquals(await rig.sync("all"), ["iptables-save"]);
  rig.put({ name: "ntp", clusterIP: "10.96.0.123", ports: [testPort({ protocol: "UDP", port: 123 })] });
  assertEquals((await rig.sync("all")).at(-1), deletion("10.96.0.123", 123));
  rig.remove("ntp");
  assertEquals((await rig.sync("all")).at(-2), deletion("10.96.0.123", 123));
  rig.remove("dns");
  assertEquals((await rig.sync()).at(-2), deletion("10.96.0.53", 54));
});

Deno.test("a failed restore is a failure of the sync, and the next one writes everything", async () => {
  await using rig = new Rig();
  rig.put();
  await rig.sync("all");
  rig.refuse = () => ({ code: 4, stdout: "", stderr: "iptables-restore: Out of memory\n" });
  rig.put({ name: "late", clusterIP: "10.96.0.11" });
  await assertRejects(() => rig.sync(), SyncError, "userspace");
  rig.refuse = () => undefined;
  assertEquals((await rig.sync())[0], "iptables-save");
  assertEquals(Object.keys(ways(rig)).sort(), ["10.96.0.10:80", "10.96.0.11:80"]);
});

Deno.test("a portal leads nowhere before it is reached by rules only, and is closed before that ends", async () => {
  await using rig = new Rig();
  const seen: string[] = [];
  const look = async (port: number): Promise<void> => {
    (await Deno.connect({ hostname: "127.0.0.1", port })).close();
    await until(() => rig.record.refusals.length + rig.record.dialFailures > 0);
    seen.push(`served: ${rig.record.refusals.at(-1) !== "no endpoint"}`);
  };
  rig.refuse = async (text) => {
    const ports = rig.portals.facts("IPv4").map(({ port }) => port);
    seen.push(`${text.slice(0, text.indexOf("\n"))} ${guarded(rig).length}/${ports.length}`);
    if (seen.length === 1) await look(ports[0]!);
    return undefined;
  };
  rig.put();
  await rig.sync("all");
  assertEquals(seen, ["*filter 0/1", "served: false", "*nat 1/1"]);
  seen.length = 0;
  seen.push("");
  rig.remove("web");
  await rig.sync();
  assertEquals(seen, ["", "*nat 1/1", "*filter 1/0"]);
  assertEquals(guarded(rig), []);
});
