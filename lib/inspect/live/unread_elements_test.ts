import { renderPlan } from "../../backend/nftables/store/full_sync.ts";
import { assert, assertEquals } from "@std/assert";
import { FakeNft } from "../../../tests/support/fake_nft.ts";
import { testService, testSlice, testSliceEndpoint } from "../../../tests/support/model_objects.ts";
import { configForMode, defaultConfig } from "../../config/defaults.ts";
import { ExecError } from "../../errors.ts";
import type { Exec, ExecOptions, ExecResult } from "../../kernel/exec.ts";
import { formatFlow, parsePacket } from "../../sim/flow.ts";
import type { RulesetSnapshot } from "../../sim/ruleset_snapshot.ts";
import { RulesetSimulator } from "../../sim/ruleset_simulator.ts";
import { type DesiredInput, stateOfObjects, UNKNOWN_MACHINE } from "../desired/desired.ts";
import { nftablesPlan, rules } from "../modes/nftables.ts";
import { liveOfKernel } from "./kernel_rules.ts";
import { readElements, UnreadElements } from "./unread_elements.ts";

const NONE = { permissions: "none" } as const;
const ENDPOINTS = 3;

function addressOf(service: number): string {
  return `10.96.${service >> 8}.${service & 255}`;
}

function inputOf(services: number): DesiredInput {
  const objects = Array.from({ length: services }, (_, at) => [
    testService({ name: `s${at}`, clusterIP: addressOf(at) }),
    testSlice({
      name: `s${at}-1`,
      serviceName: `s${at}`,
      endpoints: Array.from(
        { length: ENDPOINTS },
        (_, slot) => testSliceEndpoint(`10.${128 + slot}.${at >> 8}.${at & 255}`, { nodeName: "node-b" }),
      ),
    }),
  ]).flat();
  return {
    ...stateOfObjects(objects, "node-a", () => {}),
    config: configForMode({ ...defaultConfig(), clusterCIDR: "10.128.0.0/9" }, "nftables"),
    machine: UNKNOWN_MACHINE,
    warn: () => {},
  };
}

/** nft on a node without other tools, and the size of its output. */
class Node implements Exec {
  readonly nft = new FakeNft();
  readonly asked: string[] = [];
  printed = 0;
  /** Replaces nft's output. */
  prints: (command: string, text: string) => string = (_, text) => text;

  async run(argv: readonly string[], options?: ExecOptions): Promise<ExecResult> {
    const command = argv.join(" ");
    this.asked.push(command);
    if (argv[0] !== "nft") throw new ExecError(argv, -1, `entity not found: ${argv[0]}`);
    const { stdout, ...rest } = await this.nft.run(argv, options);
    const result = { ...rest, stdout: this.prints(command, stdout) };
    this.printed += result.stdout.length;
    return result;
  }
}

async function nodeOf(services: number): Promise<Node> {
  const node = new Node();
  await node.nft.others(renderPlan(nftablesPlan(inputOf(services), "IPv4")));
  return node;
}

/** Desired rules of few Services, as asked of a running kproxy. */
function desiredRules(): RulesetSnapshot {
  return rules(inputOf(3), "IPv4");
}

const HOST_STATE = { nodeAddresses: ["192.0.2.10"], affinity: new Map(), nowSeconds: 0 };

async function flowOf(node: Node, desired: RulesetSnapshot | null, packet: string): Promise<string> {
  const live = (await liveOfKernel(node, { areElementsLeft: true })).get("IPv4");
  assert(live !== undefined);
  const walk = (rules: RulesetSnapshot): string =>
    formatFlow(new RulesetSimulator(rules).send(parsePacket(packet), HOST_STATE));
  const read = await readElements(node, live, desired, walk);
  assertEquals(read.problems, []);
  return walk(read);
}

const DROPPED = "dropped";
const TO_SERVICE = `10.128.9.9@cni0 → ${addressOf(2)}:80`;
const FLOW = "10.128.0.2:8080 (1/3) | 10.129.0.2:8080 (1/3) | 10.130.0.2:8080 (1/3), masquerade no";

Deno.test("an element that was looked up and not read is remembered until it is answered", NONE, () => {
  const elements = new UnreadElements();
  assertEquals([elements.get("a"), elements.has("b"), elements.size], [undefined, false, 0]);
  assertEquals([...elements.asked], ["a", "b"]);
  elements.answer("a", "1");
  elements.answer("b", null);
  assertEquals([elements.get("a"), elements.has("b"), [...elements.asked]], ["1", false, []]);
});

Deno.test("a packet's way is found, and of ten times as many Services no more is read", NONE, async () => {
  const found = [];
  for (const services of [30, 300]) {
    const node = await nodeOf(services);
    assertEquals(await flowOf(node, desiredRules(), TO_SERVICE), FLOW);
    found.push({ programs: node.asked.length, printed: node.printed });
    const whole = node.asked.filter((command) => /^nft list (?:ruleset|table|map)/.test(command));
    assertEquals(whole, [], node.asked.join("\n"));
  }
  assertEquals(found[1], found[0]);
});

Deno.test("what is there otherwise than it should be is read", NONE, async () => {
  const key = `${addressOf(2)} . 80 . 1`;
  const cases: readonly (readonly [harm: string, flow: string])[] = [
    [
      `delete element ip kproxy endpoints-tcp { ${key} }\nadd element ip kproxy endpoints-tcp { ${key} : 10.9.9.9 . 81 }\n`,
      "10.128.0.2:8080 (1/3) | 10.130.0.2:8080 (1/3) | 10.9.9.9:81 (1/3), masquerade no",
    ],
    [`delete element ip kproxy service-ips { ${addressOf(2)} . tcp . 80 }\n`, "rejected"],
    [
      "add table ip own\nadd set ip own bad { type ipv4_addr ; }\nadd chain ip own c { type filter hook forward priority 0 ; policy accept ; }\n" +
      "add rule ip own c ip saddr @bad drop\nadd element ip own bad { 10.128.9.9 }\n",
      DROPPED,
    ],
  ];
  for (const [harm, flow] of cases) {
    const node = await nodeOf(30);
    await node.nft.others(harm);
    assertEquals(await flowOf(node, desiredRules(), TO_SERVICE), flow);
    assertEquals(await flowOf(node, null, TO_SERVICE), flow);
  }
});

Deno.test(
  "what nft prints without elements is not believed if a table is missing: all is read",
  NONE,
  async () => {
    const lies: readonly (readonly [command: RegExp, text: string])[] = [
      [/^nft list flowtables$/, ""],
      [/^nft list flowtables$/, "garbage"],
      [/^nft list flowtables$/, "table ip kproxy {\n}\ntable ip ghost {\n}\n"],
      [/^nft -t list ruleset$/, "garbage"],
    ];
    for (const [command, text] of lies) {
      const node = await nodeOf(30);
      node.prints = (asked, printed) => command.test(asked) ? text : printed;
      assertEquals(await flowOf(node, desiredRules(), TO_SERVICE), FLOW, `${command}: ${text}`);
      assert(node.asked.includes("nft list ruleset"));
    }
  },
);

Deno.test(
  "where dry runs say nothing, the maps are listed; where that fails, it is reported",
  NONE,
  async () => {
    const node = await nodeOf(30);
    let failing = /-c /;
    node.nft.fail = (argv) =>
      failing.test(argv.join(" ")) ? { code: 1, stdout: "", stderr: "no\n" } : undefined;
    assertEquals(await flowOf(node, desiredRules(), TO_SERVICE), FLOW);
    failing = /-c |list map/;
    const live = (await liveOfKernel(node, { areElementsLeft: true })).get("IPv4");
    assert(live !== undefined);
    const walk = (rules: RulesetSnapshot) =>
      new RulesetSimulator(rules).send(parsePacket(TO_SERVICE), HOST_STATE);
    const { problems } = await readElements(node, live, desiredRules(), walk);
    assert(
      problems.some(({ place }) => place === "nft list map ip kproxy service-ips"),
      JSON.stringify(problems),
    );
  },
);
