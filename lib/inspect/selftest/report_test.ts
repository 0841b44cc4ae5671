import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { attemptsBy, FAMILIES } from "../../../tests/support/selftest_machine.ts";
import { defaultConfig } from "../../config/defaults.ts";
import type { ObjectJson } from "../../source/decode/api_json.ts";
import { decodeObject } from "../../source/decode/decode.ts";
import { RulesetSimulator } from "../../sim/ruleset_simulator.ts";
import {
  desiredRules,
  type RenderedMode,
  RULES_MODES,
  stateOfObjects,
  UNKNOWN_MACHINE,
} from "../desired/desired.ts";
import { type Attempt, judge, type Predict } from "./report.ts";
import {
  ADDRESSES,
  endpointPort,
  endpointServers,
  NODE_NAME,
  nodeAddresses,
  nodeObject,
  packetOfProbe,
  type Probe,
  probesOf,
  selftestObjects,
  SERVICES,
} from "./cases.ts";

const NONE = { permissions: "none" } as const;

/** Simulated results of each probe by the mode's desired rules. */
async function predictions(mode: RenderedMode): Promise<ReadonlyMap<Probe, Predict>> {
  const raw = [nodeObject(FAMILIES), ...selftestObjects(FAMILIES)];
  const objects = raw.flatMap((one) => {
    const { objects, rejections } = decodeObject(one, "test");
    assertEquals(rejections, []);
    return objects;
  });
  const clusterCIDR = FAMILIES.map((family) => ADDRESSES[family].podCidr).join(",");
  const problems: string[] = [];
  const input = {
    ...stateOfObjects(objects, NODE_NAME, (problem) => problems.push(problem)),
    config: { ...defaultConfig(), mode, clusterCIDR },
    machine: UNKNOWN_MACHINE,
    warn: (sentence: string) => void problems.push(sentence),
  };
  const found = new Map<Probe, Predict>();
  for (const family of FAMILIES) {
    const simulator = new RulesetSimulator(await desiredRules(mode, input, family));
    for (const probe of probesOf([family])) {
      found.set(probe, (affinity) =>
        simulator.send(packetOfProbe(probe), {
          nodeAddresses: nodeAddresses([family]),
          affinity,
          nowSeconds: 0,
        }));
    }
  }
  assertEquals(problems, []);
  return found;
}

function askedBy(probe: Probe, predict: Predict): readonly Attempt[] {
  return attemptsBy(predict, { ...probe, id: probe.name + probe.family, limitMs: 0 });
}

/** The command does not test mode userspace. */
for (const mode of RULES_MODES.filter((one) => one !== "userspace")) {
  Deno.test(`what the test wants is what the rules of mode ${mode} say, packet by packet`, NONE, async () => {
    for (const [probe, predict] of await predictions(mode)) {
      const { ok, reason, real } = judge(probe, askedBy(probe, predict), predict);
      assertEquals([ok, reason], [true, ""], `${probe.family} ${probe.name}: ${real}`);
    }
  });
}

Deno.test(
  "no two Services have an endpoint at the same address and port, and each endpoint has its server",
  NONE,
  () => {
    for (const family of FAMILIES) {
      const ports = SERVICES.map(endpointPort);
      assertEquals(new Set(ports).size, SERVICES.length);
      const wanted = selftestObjects([family]).flatMap((object) => {
        if (object.kind !== "EndpointSlice") return [];
        const { endpoints = [], ports = [] } = object as ObjectJson<"EndpointSlice">;
        return endpoints.flatMap(({ addresses }) =>
          ports.map(({ protocol, port }) => ({ protocol: protocol?.toLowerCase(), ip: addresses[0], port }))
        );
      });
      const servers = endpointServers(family, ["pod-a", "pod-b", "far-pod"]);
      const text = (list: readonly unknown[]) => list.map((one) => JSON.stringify(one)).sort();
      assertEquals(text(servers), text(wanted));
    }
  },
);

Deno.test("each fault of a mode fails a check, with what was wanted and what was got", NONE, async () => {
  const all = await predictions("iptables");
  const changed = (attempt: Attempt, change: Partial<Extract<Attempt, { kind: "answer" }>>): Attempt =>
    attempt.kind === "answer" ? { ...attempt, ...change } : attempt;
  const faults: readonly (readonly [
    probe: string,
    fault: (attempts: readonly Attempt[]) => readonly Attempt[],
    reason: string,
  ])[] = [
    ["cluster IP, from a pod", () => [{ kind: "silence" }], "got no answer"],
    ["cluster IP, from a pod", () => [], "nothing was sent"],
    [
      "cluster IP, from a pod",
      (all) => all.map(() => all.find((one) => one.kind === "answer" && one.server === "10.244.0.3:8080")!),
      "wanted answers by each of 10.244.0.2:8080",
    ],
    [
      "cluster IP, from a pod",
      (all) => all.map((one) => changed(one, { client: "10.244.0.1" })),
      "the rules say 10.244.0.2:8080 (1/2, masquerade yes) | 10.244.0.3:8080 (1/2, masquerade no), what happened is",
    ],
    [
      "cluster IP, from a pod",
      (all) => [...all.slice(1), { kind: "answer", server: "10.9.9.9:8080", client: "10.244.0.2" }],
      "10.9.9.9:8080 from 10.244.0.2",
    ],
    ["node port, from outside", (all) => all.map((one) => changed(one, { client: "192.0.2.20" })), "wanted"],
    [
      "node port with external policy Local",
      (all) => all.map((one) => changed(one, { client: "10.244.0.1" })),
      "(source kept)",
    ],
    [
      "client IP affinity, from a pod",
      (all) =>
        all.map((one, i) => i % 2 ? one : changed(one, { server: "10.244.1.9:8085", client: "10.244.0.3" })),
      "wanted answers by one of",
    ],
    ["no endpoints, from a pod", () => [{ kind: "silence" }], "wanted a refusal, got no answer"],
    [
      "no endpoints, from the node",
      () => [{ kind: "error", message: "no route to host" }],
      "no route to host",
    ],
    [
      "load balancer IP, source outside of them",
      () => [{ kind: "answer", server: "10.244.0.2:8080", client: "10.244.0.1" }],
      "wanted no answer",
    ],
  ];
  for (const [name, fault, wanted] of faults) {
    const [probe, predict] = all.entries().find(([one]) => one.family === "IPv4" && one.name === name) ?? [];
    assert(probe !== undefined && predict !== undefined, name);
    const { ok, reason } = judge(probe, fault(askedBy(probe, predict)), predict);
    assertEquals(ok, false, name);
    assertStringIncludes(reason, wanted);
  }
});

Deno.test(
  "rules that do not what they should are reported although the packets follow them",
  NONE,
  async () => {
    const [[probe] = []] = await predictions("iptables");
    assert(probe !== undefined);
    const nothing: Predict = () => ({
      outcomes: [{
        probability: { numerator: 1n, denominator: 1n },
        verdict: "accept",
        rejectWith: "",
        translatedTo: "",
        toNode: false,
        masquerade: false,
        mark: 0,
        remembered: [],
        hits: [],
      }],
      problems: [],
    });
    const { ok, rules, reason } = judge(probe, [{ kind: "silence" }], nothing);
    assertEquals([ok, rules], [false, "untranslated"]);
    assertStringIncludes(reason, "got no answer; the rules say untranslated, what happened is no answer");
  },
);
