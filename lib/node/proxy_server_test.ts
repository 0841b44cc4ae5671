import { assert, assertEquals, assertRejects } from "@std/assert";
import { FakeNft } from "../../tests/support/fake_nft.ts";
import { fakeSysctl } from "../../tests/support/fake_sysctl.ts";
import { putWeb } from "../../tests/support/kube_fixture.ts";
import { ListWatchServer } from "../../tests/support/list_watch_server.ts";
import { SourceRecorder } from "../../tests/support/source_recorder.ts";
import { until } from "../../tests/support/until.ts";
import { ProcessWide } from "../backend/node/process_wide.ts";
import { defaultConfig } from "../config/defaults.ts";
import { withFields } from "../config/fields.ts";
import { ConfigError, ExecError, UnsupportedError } from "../errors.ts";
import type { Exec } from "../kernel/exec.ts";
import { DISABLE_IPV6 } from "../kernel/sysctl.ts";
import type { LogStream } from "../observe/line_writer.ts";
import { RecentProblems } from "../observe/log.ts";
import { type PlannedProxyServer, planProxyServer, startProxyServer } from "./proxy_server.ts";

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

function planned(
  master: string,
  exec: Exec,
  fields: Readonly<Record<string, string>> = {},
): PlannedProxyServer {
  const config = withFields(
    defaultConfig(),
    new Map(Object.entries({ mode: "nftables", hostnameOverride: "n1", ...fields })),
  );
  const stream = { write: () => {}, dropped: 0, onResumed: () => {} } as unknown as LogStream;
  return planProxyServer(config, {
    commandLine: { master, allowsInsecureFiles: false, cleanupModes: [], flagTexts: [] },
    logStreams: { out: stream, err: stream, flush: () => Promise.resolve() },
    exec,
    verbosity: { level: 0 },
    problems: new RecentProblems(() => 0),
    reloads: null,
    processWide: new ProcessWide(),
  });
}

const NEVER = new Promise<null>(() => {});

Deno.test("source and Events are opened while the node is prepared, and begin nothing by themselves", async () => {
  await using server = new ListWatchServer();
  putWeb(server);
  const node = new HeldNode();
  const starting = startProxyServer(planned(server.url, node), NEVER);
  await until(() => node.started.length > 0, "a program");
  assertEquals(node.started, ["sysctl net.netfilter.nf_conntrack_max"]);
  node.goOn();
  const proxy = await starting;
  assert(proxy !== null);
  assertEquals(node.nft.transactions, []);
  assertEquals(node.started.filter((command) => command.startsWith("nft")).length, 3);
  assertEquals(server.requests.length, 0);
  const handler = new SourceRecorder();
  const stop = new AbortController();
  const running = proxy.source.run(handler, stop.signal);
  await handler.until(() => handler.objects.size === 3, "three objects");
  assert((await proxy.metrics.registry.metrics()).includes('rest_client_requests_total{code="200"'));
  stop.abort();
  await running;
  await until(() => server.watches() === 0, "no watch");
});

Deno.test("a node that cannot run the mode ends the start, and asks the server nothing", async () => {
  await using server = new ListWatchServer();
  const node = new HeldNode();
  node.hasNft = false;
  const starting = startProxyServer(planned(server.url, node), NEVER);
  node.goOn();
  await assertRejects(() => starting, UnsupportedError, "install nftables (not on PATH: nft)");
  assertEquals(server.requests.length, 0);
});

Deno.test("a start that is called off ends its programs", async () => {
  await using server = new ListWatchServer();
  const node = new HeldNode();
  const received = Promise.withResolvers<null>();
  const options = planned(server.url, node);
  const starting = startProxyServer(options, received.promise);
  await until(() => node.started.length > 0, "a program");
  received.resolve(null);
  assertEquals(await starting, null);
  assert(options.programs.signal.aborted);
});

Deno.test("a configuration that is wrong begins nothing, and sets nothing", async () => {
  const node = new HeldNode();
  const kubeconfig = { "clientConnection.kubeconfig": "/nonexistent/kubeconfig" };
  const starting = startProxyServer(planned("", node, kubeconfig), NEVER);
  node.goOn();
  await assertRejects(() => starting, ConfigError, "/nonexistent/kubeconfig");
  assertEquals(node.started.filter((command) => command === "sysctl -w"), []);
});
