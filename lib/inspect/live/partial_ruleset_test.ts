import { assert, assertEquals } from "@std/assert";
import { FakeIptables } from "../../../tests/support/fake_iptables.ts";
import { FakeNft } from "../../../tests/support/fake_nft.ts";
import { testService, testSlice, testSliceEndpoint } from "../../../tests/support/model_objects.ts";
import { configForMode, defaultConfig } from "../../config/defaults.ts";
import { ExecError } from "../../errors.ts";
import { type Exec, type ExecOptions, type ExecResult, wholeText } from "../../kernel/exec.ts";
import { formatFlow, parsePacket } from "../../sim/flow.ts";
import type { RulesetSnapshot } from "../../sim/ruleset_snapshot.ts";
import { RulesetSimulator } from "../../sim/ruleset_simulator.ts";
import { type DesiredInput, stateOfObjects, UNKNOWN_MACHINE } from "../desired/desired.ts";
import { iptablesPlan, iptablesRules, iptablesText } from "../desired/iptables.ts";
import { nftablesPlan, nftablesRules, nftablesText } from "../desired/nftables.ts";
import { PartialRuleset } from "./partial_ruleset.ts";

const NONE = { permissions: "none" } as const;
const ENDPOINTS = 3;

function addressOf(service: number): string {
  return `10.96.${service >> 8}.${service & 255}`;
}

function inputOf(mode: "iptables" | "nftables", services: number): DesiredInput {
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
    config: configForMode({ ...defaultConfig(), clusterCIDR: "10.128.0.0/9" }, mode),
    machine: UNKNOWN_MACHINE,
    warn: () => {},
  };
}

/** The programs of a node, and what they have printed. */
class Node implements Exec {
  readonly nft = new FakeNft();
  readonly iptables = new FakeIptables();
  readonly asked: string[] = [];
  printed = 0;
  /** Lists of nftables that were read while a dry run was under way, and the other way round. */
  readonly besideDryRuns: string[] = [];
  readonly #running = new Set<string>();
  /** What a program prints instead. */
  prints: (command: string, text: string) => string = (_, text) => text;

  async run(argv: readonly string[], options?: ExecOptions): Promise<ExecResult> {
    const command = argv.join(" ");
    this.asked.push(command);
    for (const other of this.#running) {
      if (isDryRun(command) !== isDryRun(other)) this.besideDryRuns.push(`${command} beside ${other}`);
    }
    const isOfNftables = /^nft |^ip6?tables-nft/.test(command);
    if (isOfNftables) this.#running.add(command);
    const { stdout, ...rest } = await this.#program(argv, options);
    // Long enough for whoever would start another one meanwhile.
    if (isOfNftables) await new Promise((resolve) => setTimeout(resolve, 0));
    this.#running.delete(command);
    const result = { ...rest, stdout: this.prints(command, stdout) };
    this.printed += result.stdout.length;
    return result;
  }

  async #program(argv: readonly string[], options?: ExecOptions): Promise<ExecResult> {
    const [name = "", ...args] = argv;
    if (name !== "nft") {
      if (/^ip6?tables/.test(name)) return await this.iptables.run(argv, options);
      throw new ExecError(argv, -1, `entity not found: ${name}`);
    }
    const stdin = wholeText(options?.stdin ?? "");
    // The nft variant keeps its tables where nft finds them.
    const saved = this.iptables.saved("IPv4");
    const tables = Array.from(saved.matchAll(/^\*(\w+)/gm), ([, table = ""]) => table);
    if (stdin.startsWith("create chain ")) return createdChains(saved, stdin);
    const { code, stdout, stderr } = await this.nft.run(argv, options);
    if (args.join(" ") === "list flowtables") {
      return { code, stderr, stdout: stdout + tables.map((table) => `table ip ${table} {\n}\n`).join("") };
    }
    return { code, stdout, stderr };
  }
}

const isDryRun = (command: string): boolean => command.startsWith("nft -c ");

/** What a dry run says that makes chains, of which some are there. */
function createdChains(saved: string, stdin: string): ExecResult {
  const complaints = stdin.split("\n").flatMap((line, index) => {
    const [, , , table, chain] = line.split(" ");
    const isThere = saved.split(/^(?=\*)/m).some((one) =>
      one.startsWith(`*${table}\n`) && one.includes(`\n:${chain} `)
    );
    return isThere
      ? [`/dev/stdin:${index + 1}:1-9: Error: Could not process rule: File exists\n${line}\n^^^\n`]
      : [];
  });
  return { code: complaints.length > 0 ? 1 : 0, stdout: "", stderr: complaints.join("") };
}

async function nodeOf(mode: "iptables" | "nftables", services: number): Promise<Node> {
  const node = new Node();
  const input = inputOf(mode, services);
  if (mode === "nftables") await node.nft.others(nftablesText(nftablesPlan(input, "IPv4")));
  else {
    const { code, stderr } = await node.iptables.run(["iptables-nft-restore", "--noflush"], {
      stdin: iptablesText(iptablesPlan(input, "IPv4")),
    });
    assertEquals(code, 0, stderr);
  }
  return node;
}

/** What a running kproxy says of one Service is all there is to the desired side. */
function desiredOf(mode: "iptables" | "nftables"): RulesetSnapshot {
  const input = inputOf(mode, 3);
  return mode === "nftables"
    ? nftablesRules(nftablesPlan(input, "IPv4"))
    : iptablesRules(iptablesPlan(input, "IPv4"), "IPv4");
}

const HOST_STATE = { nodeAddresses: ["192.0.2.10"], affinity: new Map(), nowSeconds: 0 };

async function flowOf(node: Node, desired: RulesetSnapshot | null, packet: string): Promise<string> {
  return await new PartialRuleset(node).look({
    family: "IPv4",
    desired,
    chains: desired === null
      ? []
      : new RulesetSimulator(desired).send(parsePacket(packet), HOST_STATE).outcomes.flatMap(({ hits }) =>
        hits
      ),
    look: (live) => formatFlow(new RulesetSimulator(live).send(parsePacket(packet), HOST_STATE)),
  });
}

const DROPPED = "dropped";
const TO_SERVICE = `10.128.9.9@cni0 → ${addressOf(2)}:80`;

for (const mode of ["iptables", "nftables"] as const) {
  Deno.test(
    `${mode}: a packet's way is found, and of ten times as many Services no more is read`,
    NONE,
    async () => {
      const found = [];
      for (const services of [30, 300]) {
        const node = await nodeOf(mode, services);
        const flow = await flowOf(node, desiredOf(mode), TO_SERVICE);
        found.push({ flow, programs: node.asked.length, printed: node.printed });
        assertEquals(
          flow,
          "10.128.0.2:8080 (1/3) | 10.129.0.2:8080 (1/3) | 10.130.0.2:8080 (1/3), masquerade no",
        );
        const whole = /nft-save -c$|^nft list (?:ruleset|table|map)/;
        assertEquals(node.asked.filter((command) => whole.test(command)), [], node.asked.join("\n"));
      }
      const [few, many] = found;
      assertEquals(many?.programs, few?.programs);
      // But for the one chain that has a rule for each Service.
      const perService = mode === "iptables" ? 400 : 0;
      assert((many?.printed ?? 0) <= (few?.printed ?? 0) + 270 * perService, JSON.stringify(found));
    },
  );
}

Deno.test("nftables: what is there otherwise than it should be is read", NONE, async () => {
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
    const node = await nodeOf("nftables", 30);
    await node.nft.others(harm);
    assertEquals(await flowOf(node, desiredOf("nftables"), TO_SERVICE), flow);
    assertEquals(await flowOf(node, null, TO_SERVICE), flow);
  }
});

Deno.test("iptables: a chain that is gone, and one of somebody else", NONE, async () => {
  const node = await nodeOf("iptables", 30);
  const change = async (stdin: string): Promise<void> => {
    const { code, stderr } = await node.iptables.run(["iptables-nft-restore", "--noflush"], { stdin });
    assertEquals(code, 0, stderr);
  };
  await change(
    "*filter\n:OTHERS - [0:0]\n-A OTHERS -s 10.128.9.9/32 -j DROP\n-A FORWARD -j OTHERS\nCOMMIT\n",
  );
  assertEquals(await flowOf(node, desiredOf("iptables"), TO_SERVICE), DROPPED);
  await change(
    "*filter\n-F OTHERS\nCOMMIT\n*nat\n-F PREROUTING\n-F OUTPUT\n-F KUBE-SERVICES\n-X KUBE-SERVICES\nCOMMIT\n",
  );
  assertEquals(await flowOf(node, desiredOf("iptables"), TO_SERVICE), "untranslated");
});

Deno.test(
  "no list is read beside a dry run, which would end it early, by however many who look at once",
  NONE,
  async () => {
    const node = await nodeOf("nftables", 30);
    const others = "*nat\n:POSTROUTING ACCEPT [0:0]\n:OTHERS - [0:0]\n-A POSTROUTING -j OTHERS\nCOMMIT\n";
    const { code, stderr } = await node.iptables.run(["iptables-nft-restore", "--noflush"], {
      stdin: others,
    });
    assertEquals(code, 0, stderr);
    const kernel = new PartialRuleset(node);
    const flows = await Promise.all([2, 3].map((service) =>
      kernel.look({
        family: "IPv4",
        desired: desiredOf("nftables"),
        look: (live) =>
          formatFlow(
            new RulesetSimulator(live).send(
              parsePacket(`10.128.9.9@cni0 → ${addressOf(service)}:80`),
              HOST_STATE,
            ),
          ),
      })
    ));
    assertEquals(flows.map((flow) => flow.split(":")[0]), ["10.128.0.2", "10.128.0.3"]);
    assert(node.asked.some(isDryRun) && node.asked.some((command) => command.startsWith("iptables-nft")));
    assertEquals(node.besideDryRuns, []);
  },
);

Deno.test("without nft everything is read", NONE, async () => {
  const node = await nodeOf("iptables", 30);
  node.nft.fail = () => ({ code: 1, stdout: "", stderr: "Error: syntax error, unexpected flowtables\n" });
  assertEquals(
    await flowOf(node, null, TO_SERVICE),
    "10.128.0.2:8080 (1/3) | 10.129.0.2:8080 (1/3) | 10.130.0.2:8080 (1/3), masquerade no",
  );
  assert(node.asked.includes("iptables-nft-save -c"));
});

Deno.test(
  "what a program says bit by bit and cannot be is not believed: everything is read",
  NONE,
  async () => {
    const lies: readonly (readonly [mode: "iptables" | "nftables", command: RegExp, text: string])[] = [
      ["nftables", /^nft list flowtables$/, ""],
      ["nftables", /^nft list flowtables$/, "garbage"],
      ["nftables", /^nft list flowtables$/, "table ip kproxy {\n}\ntable ip ghost {\n}\n"],
      ["nftables", /^nft -t list ruleset$/, "garbage"],
      ["iptables", /^iptables-nft-restore/, ""],
      ["iptables", /^iptables-nft-restore/, "garbage"],
      ["iptables", /^iptables-nft-restore/, "-N KUBE-OTHER\n"],
    ];
    for (const [mode, command, text] of lies) {
      const node = await nodeOf(mode, 30);
      node.prints = (asked, printed) => command.test(asked) ? text : printed;
      assertEquals(
        await flowOf(node, desiredOf(mode), TO_SERVICE),
        "10.128.0.2:8080 (1/3) | 10.129.0.2:8080 (1/3) | 10.130.0.2:8080 (1/3), masquerade no",
        `${command}: ${text}`,
      );
    }
  },
);
