import { assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { assignedPortals } from "../../../tests/support/assigned_ports.ts";
import { endpointsOf, shopObjects } from "../../../tests/support/page_objects.ts";
import { PAGE_NODE } from "../../../tests/support/page_server.ts";
import { testService, testSlice } from "../../../tests/support/model_objects.ts";
import { configForMode, defaultConfig } from "../../config/defaults.ts";
import type { ProxyMode } from "../../config/types.ts";
import { UsageError } from "../../errors.ts";
import type { UnservedOfService } from "../../model/destination_claims.ts";
import type { ApiObject } from "../../model/objects.ts";
import type { Held } from "../../serve/page/page_document.ts";
import { RulesetSimulator } from "../../sim/ruleset_simulator.ts";
import { desiredRules, RULES_MODES, stateOfObjects } from "../desired/desired.ts";
import { formatFraction } from "../../sim/flow.ts";
import type { TraceDocument } from "../trace/trace_report.ts";
import { QUESTIONS, type ServiceDocument } from "./page_questions.ts";

const ADDRESSES = [
  { device: "eth0", family: "IPv4", address: "192.168.50.13", prefixLength: 24, scope: "" },
  { device: "lo", family: "IPv4", address: "127.0.0.1", prefixLength: 8, scope: "" },
] as const;

const MACHINE = { addresses: ADDRESSES, tcpBeLiberal: null, nfacct: false };

function heldOf(objects: readonly ApiObject[], mode: ProxyMode): Held {
  const desired = stateOfObjects([PAGE_NODE, ...objects], PAGE_NODE.name, () => {});
  const { states } = desired;
  const config = configForMode({ ...defaultConfig(), clusterCIDR: "10.244.0.0/16" }, mode);
  return {
    states,
    mode,
    config,
    portals: mode === "userspace"
      ? assignedPortals({ ...desired, config, machine: MACHINE, warn: () => {} })
      : null,
    nodeName: PAGE_NODE.name,
    node: PAGE_NODE,
    serviceCidrs: [],
    addresses: ADDRESSES,
    quarantined: new Map(),
    unserved: [],
  };
}

const trace = async (held: Held, from: string, to: string): Promise<TraceDocument> =>
  await QUESTIONS.trace(held, from, to) as TraceDocument;

Deno.test("a packet goes through the rules of a few Services as it goes through those of all, in every mode", async () => {
  const cases: readonly (readonly [from: string, to: string])[] = [
    ["world", "203.0.113.40:80"],
    ["world", "192.168.50.13:30080"],
    ["world", "192.168.50.13:31443"],
    ["10.244.3.5@cni0", "10.96.31.7:80"],
    ["10.244.3.5@cni0", "10.96.0.10:53/udp"],
    ["local", "10.96.77.3:80"],
    ["local", "10.96.41.9:80"],
    ["10.244.3.5@cni0", "10.96.31.7:81"],
    ["10.244.3.5@cni0", "192.0.2.90:9090"],
    ["10.244.3.5@cni0", "198.51.100.1:80"],
    ["local", "[fd00:96::1420]:80"],
  ];
  for (const mode of RULES_MODES) {
    const held = heldOf(shopObjects(), mode);
    for (const [from, to] of cases) {
      const { packet, desired } = await trace(held, from, to);
      const { family } = packet;
      const input = {
        ...stateOfObjects([PAGE_NODE, ...shopObjects()], PAGE_NODE.name, () => {}),
        config: held.config,
        machine: { addresses: ADDRESSES, tcpBeLiberal: null, nfacct: false },
        warn: () => {},
      };
      const ports = mode === "userspace" ? { portals: assignedPortals(input) } : {};
      const rules = await desiredRules(mode, { ...input, ...ports }, family);
      const around = {
        nodeAddresses: ["192.168.50.13"],
        affinity: new Map(),
        nowSeconds: 0,
      };
      const whole = new RulesetSimulator(rules).send(
        {
          ...packet,
          protocol: packet.protocol as "tcp",
          inInterface: packet.interface,
          state: "NEW",
          mark: 0,
        },
        around,
      );
      const told = (desired?.outcomes ?? []).map((
        one,
      ) => [one.translatedTo, one.verdict, one.probability, one.masquerade]);
      const expected = whole.outcomes.map((one) => [
        one.translatedTo,
        one.verdict,
        formatFraction(one.probability),
        one.masquerade,
      ]);
      assertEquals(told, expected, `${mode}: ${from} to ${to}`);
    }
  }
});

Deno.test("one Service is reported with its endpoints, and in every mode with what is wanted for it", async () => {
  for (const mode of RULES_MODES) {
    const held = heldOf(shopObjects(), mode);
    const { ports, wanted } = await QUESTIONS.service(held, "shop/checkout") as ServiceDocument;
    assertEquals(
      ports[0]?.endpoints.map(({ address, cluster }) => [address, cluster?.used]),
      [["10.244.3.31:8080", true], ["10.244.5.32:8080", true], ["10.244.5.33:8080", false], [
        "10.244.8.34:8080",
        false,
      ]],
    );
    assertStringIncludes(JSON.stringify(wanted[0]), "10.96.31.7", mode);
    const both = await QUESTIONS.service(held, "shop/web") as ServiceDocument;
    assertEquals(both.ports.map(({ family }) => family), ["IPv4", "IPv6"]);
    assertEquals(await QUESTIONS.service(held, "shop/none"), null);
  }
});

Deno.test("what a Service asks for and does not get is reported with it, and by the path of a packet", async () => {
  const reason = "it is not in kproxy.externalIPPolicy.externalIPs";
  const lost = (name: string): UnservedOfService => [name, new Map([["external IP 198.51.100.1", reason]])];
  const held = { ...heldOf(shopObjects(), "nftables"), unserved: [lost("shop/web"), lost("evil/all")] };
  const of = async (name: string) => (await QUESTIONS.service(held, name) as ServiceDocument).unserved;
  assertEquals(await of("shop/web"), [{ destination: "external IP 198.51.100.1", reason }]);
  // The Service gets no address at all.
  assertEquals(await of("evil/all"), [{ destination: "external IP 198.51.100.1", reason }]);
  assertEquals(await of("shop/checkout"), []);
  const { notes } = await trace(held, "local", "198.51.100.1:80");
  assertStringIncludes(
    notes.join("\n"),
    `Service evil/all asks for external IP 198.51.100.1 and does not get it: ${reason}`,
  );
});

Deno.test("what would hold the proxy up is left to the command, and what the kernel refuses has no rules", async () => {
  const large = [
    testService({ clusterIP: "10.96.5.5" }),
    testSlice({ endpoints: ["10.1.0", "10.1.1"].flatMap((network) => endpointsOf(network, 200)) }),
  ];
  const held = heldOf(large, "nftables");
  const { ports, wanted } = await QUESTIONS.service(held, "shop/web") as ServiceDocument;
  assertEquals([ports[0]?.endpoints.length, wanted], [400, [null]]);
  await assertRejects(
    () => QUESTIONS.trace(held, "world", "10.96.5.5:80"),
    UsageError,
    "kproxy trace world 10.96.5.5:80",
  );
  const refused = { ...heldOf(shopObjects(), "nftables"), quarantined: new Map([["shop/web", "no"]]) };
  const document = await QUESTIONS.service(refused, "shop/web") as ServiceDocument;
  assertEquals([document.ports[0]?.refusal, document.wanted], ["no", [null, null]]);
  await assertRejects(
    () => QUESTIONS.trace({ ...held, states: new Map() }, "world", "10.96.5.5:80"),
    UsageError,
  );
});
