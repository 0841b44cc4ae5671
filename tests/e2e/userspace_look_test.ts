/**
 * `kproxy trace`, `check` and `service get` on a node in mode userspace: beside the kproxy that runs, with faults planted one by one, and
 * without it, when it is not known where its ports lead.
 *
 * @module
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import type { Run } from "../cli/kproxy.ts";
import { WEB_ARGS, WEB_NEEDS, WebLab } from "../support/lab_web.ts";
import { USERSPACE } from "../support/lab_mode.ts";
import { NetnsCli } from "../support/netns_cli.ts";
import { e2eTest } from "../support/skip.ts";

const FROM_POD = ["10.244.0.5@cni0", "10.96.0.1:80"] as const;
const SERVED = "10.244.0.11:8080 (1/2) | 10.244.0.12:8080 (1/2), masquerade yes";
/** Rules are not looked at while the test damages them. */
const RARELY = "--iptables-sync-period=1h";

/** The lab's node, and the program on it. */
class Looked {
  /** To which the rules for `shop/web` lead, once it has been seen. */
  port = 0;

  constructor(readonly web: WebLab, readonly cli: NetnsCli) {}

  async ask(...words: readonly string[]): Promise<Run> {
    const flags = WEB_ARGS.slice(0, 2);
    const manifests = words.includes("--from-files") ? [`--manifests=${this.web.manifests.folder}`] : [];
    return await this.cli.run([...words.filter((word) => word !== "--from-files"), ...flags, ...manifests]);
  }

  async names(words: readonly string[], says: RegExp, code = 1): Promise<Run> {
    const answer = await this.ask(...words);
    assertMatch(answer.out + answer.err, says);
    assertEquals(answer.code, code, answer.out + answer.err);
    return answer;
  }

  async sh(script: string): Promise<string> {
    return await this.web.lab.node.netns.run(["sh", "-e", "-c", script]);
  }

  /** Rules as `iptables-save` printed them. */
  async restore(saved: string): Promise<void> {
    await this.web.lab.node.netns.run(["iptables-restore"], { stdin: saved });
  }

  /** What becomes of a packet by the rules that are there. */
  async end(): Promise<string> {
    const { out, err } = await this.ask("trace", ...FROM_POD, "-o=json", "--no-desired");
    assert(out !== "", err);
    return JSON.parse(out).live.end;
  }

  /** What really becomes of connections of the pod, of which this is expected. */
  async really(wanted: string): Promise<readonly string[]> {
    const to = { ip: "10.96.0.1", port: 80 };
    const results = await this.web.pod.probe({
      protocol: "tcp",
      to,
      count: 4,
      timeoutMs: wanted === "silence" ? 400 : 30_000,
    });
    return [...new Set(results.map((one) => one.kind === "answer" ? one.answer.local.ip : one.kind))].sort();
  }
}

/** What a user does, which command names it, and what fixes it. */
const FAULTS: readonly {
  readonly name: string;
  readonly plant: string;
  readonly ask: readonly string[];
  readonly says: RegExp;
  /** By trace, and really. */
  readonly fares: readonly [trace: string, really: string];
}[] = [
  {
    name: "a rule is removed",
    plant: "iptables -t nat -D KUBE-PORTALS-CONTAINER 1",
    ask: ["check"],
    says: /Service shop\/web\n {2}iptables nat KUBE-PORTALS-CONTAINER: a rule is missing/,
    fares: ["untranslated", "refused"],
  },
  {
    name: "a chain is flushed",
    plant: "iptables -t nat -F KUBE-PORTALS-CONTAINER",
    ask: ["trace", ...FROM_POD],
    says:
      /They part here:\n {2}desired: .*KUBE-PORTALS-CONTAINER rule 1.*\n[^]*Wrong: The live rules do something else/,
    fares: ["untranslated", "refused"],
  },
  {
    name: "a rule leads to another port",
    plant:
      "iptables-save -t nat | sed '/KUBE-PORTALS-CONTAINER.*web/s/--to-ports .*/--to-ports 9/' | iptables-restore",
    ask: ["trace", ...FROM_POD],
    says: /Wrong: No process listens on tcp port 9 \(IPv4\), to which rules lead/,
    fares: ["rejected", "refused"],
  },
  {
    name: "a rule of others drops in front",
    plant: "iptables -t raw -A PREROUTING -d 10.96.0.1/32 -j DROP",
    ask: ["check"],
    says: /Service shop\/web\n {2}table raw chain PREROUTING rule 1: a rule of others drops/,
    fares: ["dropped", "silence"],
  },
  {
    name: "a rule of others keeps kproxy from one endpoint",
    plant: "iptables -A OUTPUT -d 10.244.0.11/32 -p tcp -j DROP",
    ask: ["trace", ...FROM_POD],
    says:
      /10\.244\.0\.11:8080 takes no connection, another endpoint has its turn\n[^]*OUTPUT +\d+ +to 10\.244\.0\.11/,
    fares: ["10.244.0.12:8080, masquerade yes", "10.244.0.12"],
  },
];

/** What is told while kproxy runs. */
async function stepsBeside(t: Deno.TestContext, node: Looked): Promise<void> {
  await t.step("all is well", async () => {
    await node.names(["check"], /(?:)/, 0);
    const { out } = await node.names(
      ["trace", ...FROM_POD],
      /kproxy tcp port (\d+) +kproxy takes it for shop\/web:http/,
      0,
    );
    assert(out.includes(`: ${SERVED}`), out);
    node.port = Number(/kproxy tcp port (\d+)/.exec(out)?.[1]);
    await node.names(
      ["service", "get", "shop/web"],
      new RegExp(`kproxy +tcp port ${node.port} -> 10\\.244\\.0\\.11:8080`),
      0,
    );
    assertEquals((await node.ask("check", "--repair")).code, 0);
    const { out: doctor } = await node.ask("doctor");
    assertMatch(doctor, /^ok +other proxies +none; kproxy runs$/m);
    assertMatch(doctor, /^ok +iptables variant +(?:nft|legacy): /m);
    assertEquals(await node.really("answers"), ["10.244.0.11", "10.244.0.12"]);
  });

  await t.step("what comes to the port directly is refused", async () => {
    await node.names(
      ["trace", "198.51.100.9@eth0", `192.0.2.10:${node.port}`],
      /: rejected\n[^]*KUBE-PORTALS-FIREWALL +1 +tcp, port \d+: refuse[^]*The desired rules .* say the same/,
      0,
    );
  });

  for (const { name, plant, ask, says, fares: [trace, really] } of FAULTS) {
    await t.step(name, async () => {
      const sound = await node.sh("iptables-save");
      await node.sh(plant);
      try {
        await node.names(ask, says);
        assertEquals(await node.end(), trace);
        assertEquals(await node.really(really), [really]);
      } finally {
        await node.sh("iptables -t raw -F");
        await node.restore(sound);
      }
      await node.names(["check"], /(?:)/, 0);
    });
  }

  await t.step("damage is left to the kproxy that looks after it", async () => {
    const sound = await node.sh("iptables-save");
    await node.sh("iptables -t nat -F KUBE-PORTALS-HOST");
    await node.names(
      ["check", "--repair"],
      /nothing is repaired: the kproxy on \S+\/kproxy\.sock looks at its rules every 3600 s/,
    );
    await node.restore(sound);
  });
}

/** What is told once kproxy was killed and its rules stay. */
async function stepsWithout(t: Deno.TestContext, node: Looked): Promise<void> {
  const { port } = node;
  await t.step("kproxy is gone: no process listens where its rules lead", async () => {
    await node.names(
      ["trace", ...FROM_POD, "--from-files"],
      new RegExp(
        `Wrong: No process listens on tcp port ${port} \\(IPv4\\), to which rules lead: no kproxy answers`,
      ),
    );
    await node.names(
      ["check", "--from-files"],
      /Service shop\/web\n {2}kproxy: no process listens on the port that the rules lead to/,
    );
    await node.names(
      ["doctor", "--from-files"],
      /^warning +other proxies +rules of a service proxy are in force, and none answers/m,
      0,
    );
    await node.names(
      ["check", "--repair", "--from-files"],
      /nothing is repaired: rules of mode userspace lead to ports of a kproxy/,
    );
    assertEquals([await node.end(), await node.really("refused")], ["rejected", ["refused"]]);
  });

  await t.step("another program has the port: where it leads is not known", async () => {
    await node.web.lab.node.call("serve", { protocol: "tcp", ip: "0.0.0.0", port });
    await node.names(
      ["trace", ...FROM_POD, "--from-files"],
      new RegExp(
        `Unsure: Who listens on tcp port ${port} \\(IPv4\\), to which rules lead, and where it sends what comes, is not known`,
      ),
    );
    await node.names(["check", "--from-files"], /Not read: kproxy: who listens on tcp \d+/);
    await node.web.lab.node.call("unserve");
  });

  await t.step("saved rules are walked as far as they lead", async () => {
    const file = await Deno.makeTempFile({ prefix: "kproxy-saved-" });
    try {
      await Deno.writeTextFile(file, await node.sh("iptables-save"));
      const { out } = await node.names(
        ["trace", ...FROM_POD, "--no-desired", `--live-from=${file}`],
        /Unsure: Who listens on tcp port \d+ .*: saved rules do not tell/,
      );
      assertMatch(out, new RegExp(`: \\S+:${port}, masquerade no`));
    } finally {
      await Deno.remove(file);
    }
  });
}

e2eTest(
  "kproxy's commands know mode userspace beside a kproxy and without, faults and all",
  WEB_NEEDS,
  async (t) => {
    await using web = await WebLab.create(USERSPACE);
    using cli = await NetnsCli.start(web.lab.node.netns);
    const node = new Looked(web, cli);
    await using kproxy = await web.start([RARELY]);
    await stepsBeside(t, node);
    await kproxy.stop("SIGKILL");
    await stepsWithout(t, node);
  },
);
