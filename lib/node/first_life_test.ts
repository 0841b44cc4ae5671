import { assert, assertEquals, assertRejects } from "@std/assert";
import { FakeNft } from "../../tests/support/fake_nft.ts";
import { fakeSysctl } from "../../tests/support/fake_sysctl.ts";
import { putWeb } from "../../tests/support/kube_fixture.ts";
import { ListWatchServer } from "../../tests/support/list_watch_server.ts";
import { SourceRecorder } from "../../tests/support/source_recorder.ts";
import { until } from "../../tests/support/until.ts";
import { Afterlife } from "../backend/node/afterlife.ts";
import { MODES, usesServiceCidrs } from "../backend/node/registry.ts";
import { defaultConfig } from "../config/defaults.ts";
import { withFields } from "../config/fields.ts";
import { ConfigError, ExecError, UnsupportedError } from "../errors.ts";
import type { Exec } from "../kernel/exec.ts";
import { DISABLE_IPV6 } from "../kernel/node_sysctls.ts";
import type { LogStream } from "../observe/line_writer.ts";
import { RecentProblems } from "../observe/recent_problems.ts";
import type { ResourceKind } from "../source/source.ts";
import { firstLife } from "./first_life.ts";
import { planLife, type PlannedLife } from "./life.ts";

/** A node whose programs wait until a test lets them go on. */
class HeldNode implements Exec {
  readonly nft = new FakeNft();
  hasNft = true;
  readonly started: string[] = [];
  readonly #held = Promise.withResolvers<void>();

  goOn(): void {
    this.#held.resolve();
  }

  readonly run: Exec["run"] = async (argv, options = {}) => {
    this.started.push(argv.slice(0, 2).join(" "));
    const ended = Promise.withResolvers<never>();
    options.signal?.addEventListener("abort", () => ended.reject(options.signal?.reason));
    await Promise.race([this.#held.promise, ended.promise]);
    if (argv[0] === "sysctl") return fakeSysctl({ [DISABLE_IPV6]: "0" }, argv.slice(1));
    if (!this.hasNft) throw new ExecError(argv, -1, `entity not found: ${argv[0]}`);
    return await this.nft.run(argv, options);
  };
}

function planned(master: string, exec: Exec, fields: Readonly<Record<string, string>> = {}): PlannedLife {
  const config = withFields(
    defaultConfig(),
    new Map(Object.entries({ mode: "nftables", hostnameOverride: "n1", ...fields })),
  );
  const stream = { write: () => {}, dropped: 0, onResumed: () => {} } as unknown as LogStream;
  return planLife(config, {
    commandLine: { master, allowsInsecureFiles: false, cleanupModes: [], flagTexts: [] },
    logStreams: { out: stream, err: stream, flush: () => Promise.resolve() },
    exec,
    verbosity: { level: 0 },
    problems: new RecentProblems(() => 0),
    reloads: null,
    afterlife: new Afterlife(),
  });
}

const NEVER = new Promise<null>(() => {});
const GOES_ON = { signal: new AbortController().signal, received: NEVER };

class FailureRecorder extends SourceRecorder {
  readonly wantsServiceCidrs = true;
  readonly failures: string[] = [];

  failed(kind: ResourceKind, reason: string): void {
    this.failures.push(`${kind}: ${reason}`);
  }
}

Deno.test("the first lists come in before the node has been looked at", async () => {
  await using server = new ListWatchServer();
  putWeb(server);
  const node = new HeldNode();
  const starting = firstLife(planned(server.url, node), GOES_ON);
  await until(() => server.watches() >= 3, "three watches");
  assertEquals(node.started, ["sysctl net.netfilter.nf_conntrack_max"]);
  node.goOn();
  const life = await starting;
  assert(life !== null);
  assertEquals(node.nft.transactions, []);
  assertEquals(node.started.filter((command) => command.startsWith("nft")).length, 4);
  const sink = new FailureRecorder();
  const stop = new AbortController();
  const running = life.source.run(sink, stop.signal);
  await sink.until(() => sink.objects.size === 3, "three objects");
  // Its requests were sent before there were metrics.
  assert((await life.metrics.registry.metrics()).includes('rest_client_requests_total{code="200"'));
  stop.abort();
  await running;
  await until(() => server.watches() === 0, "no watch");
});

Deno.test("a node that cannot run the mode ends the start, and its connections", async () => {
  await using server = new ListWatchServer();
  putWeb(server);
  const node = new HeldNode();
  node.hasNft = false;
  const starting = firstLife(planned(server.url, node), GOES_ON);
  await until(() => server.watches() >= 3, "three watches");
  node.goOn();
  await assertRejects(() => starting, UnsupportedError, "install nftables (not on PATH: nft)");
  await until(() => server.watches() === 0, "no watch");
});

Deno.test("a start that is called off ends what it has begun", async () => {
  await using server = new ListWatchServer();
  putWeb(server);
  const node = new HeldNode();
  const stop = new AbortController();
  const received = Promise.withResolvers<null>();
  const starting = firstLife(planned(server.url, node), { signal: stop.signal, received: received.promise });
  await until(() => server.watches() >= 3, "three watches");
  stop.abort();
  received.resolve(null);
  assertEquals(await starting, null);
  await until(() => server.watches() === 0, "no watch");
});

Deno.test("a list that fails while the node is looked at is told when the source is run", async () => {
  await using server = new ListWatchServer();
  putWeb(server);
  server.plan(({ path }) => path.endsWith("/services"), { status: 500, text: "out of order" });
  const node = new HeldNode();
  const starting = firstLife(planned(server.url, node), GOES_ON);
  await until(() => server.watches() >= 1, "a watch");
  node.goOn();
  const life = await starting;
  assert(life !== null);
  const sink = new FailureRecorder();
  const stop = new AbortController();
  const running = life.source.run(sink, stop.signal);
  await sink.until(() => sink.failures.length > 0, "a failure");
  assert(sink.failures[0]?.startsWith("services: "), sink.failures[0]);
  stop.abort();
  await running;
});

Deno.test("a configuration that is wrong begins nothing, and sets nothing", async () => {
  const node = new HeldNode();
  const kubeconfig = { "clientConnection.kubeconfig": "/nonexistent/kubeconfig" };
  const starting = firstLife(planned("", node, kubeconfig), GOES_ON);
  node.goOn();
  await assertRejects(() => starting, ConfigError, "/nonexistent/kubeconfig");
  assertEquals(node.started.filter((command) => command === "sysctl -w"), []);
});

Deno.test("modes that want ServiceCIDRs are those that are asked for them ahead", async () => {
  for (const mode of MODES.keys()) {
    const source = await Deno.readTextFile(new URL(`../backend/${mode}/node/preflight.ts`, import.meta.url));
    assertEquals(usesServiceCidrs(mode), source.includes("setServiceCidrs:"), mode);
  }
});
