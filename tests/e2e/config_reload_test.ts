/**
 * The configuration file is changed while clients connect: right ones come into force, wrong ones do not, and no connection fails.
 *
 * @module
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { ConnectLoop } from "../support/connect_loop.ts";
import { httpGet, metricOf } from "../support/http_get.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import {
  WEB_CLUSTER_IP,
  WEB_NEEDS,
  WEB_NODE_PORT,
  WEB_PODS,
  WEB_PORT,
  WebLab,
  webSlice,
} from "../support/lab_web.ts";
import { e2eTest, program } from "../support/skip.ts";

const NEEDS = [...WEB_NEEDS, program("curl")];
const CLUSTER = { ip: WEB_CLUSTER_IP, port: WEB_PORT };
const NODE_PORT = { ip: "192.0.2.10", port: WEB_NODE_PORT };
const ANEW = "Configuration changed, starting anew with it";

interface Wanted {
  readonly healthz?: number;
  readonly masqueradeAll?: boolean;
  /** More top-level lines. */
  readonly more?: string;
}

function configText({ healthz = 10256, masqueradeAll = false, more = "" }: Wanted = {}): string {
  return [
    "apiVersion: kubeproxy.config.k8s.io/v1alpha1",
    "kind: KubeProxyConfiguration",
    "clusterCIDR: 10.244.0.0/16,fd00:10:244::/56",
    `healthzBindAddress: 0.0.0.0:${healthz}`,
    "bindAddressHardFail: true",
    `iptables: { masqueradeAll: ${masqueradeAll}, minSyncPeriod: 0s }`,
    more,
    "",
  ].join("\n");
}

/** A running kproxy with a configuration file, and what tests ask of it. */
class Reloading implements AsyncDisposable {
  private constructor(
    readonly web: WebLab,
    readonly folder: string,
    readonly kproxy: KproxyProcess,
  ) {}

  static async start(
    place: (folder: string) => Promise<void>,
    args: readonly string[] = [],
  ): Promise<Reloading> {
    const web = await WebLab.create();
    const folder = await Deno.makeTempDir({ prefix: "kproxy-config-" });
    try {
      await place(folder);
      const config = [`--config=${folder}/config.yaml`, "--hostname-override=node-a"];
      const kproxy = await KproxyProcess.start({
        netns: web.lab.node.netns,
        args: [...config, `--manifests=${web.manifests.folder}`, ...args],
      });
      return new Reloading(web, folder, kproxy);
    } catch (error) {
      await web[Symbol.asyncDispose]();
      await Deno.remove(folder, { recursive: true });
      throw error;
    }
  }

  /** Makes an edit that is refused; the log lines since. */
  async refused(edit: () => Promise<void>): Promise<string> {
    return (await this.kproxy.refused(edit)).map((line) => JSON.stringify(line)).join("\n");
  }

  /** HTTP status on the node; 0 if nothing answers. */
  async status(port: number): Promise<number> {
    return (await httpGet(this.web.lab.node.netns, `http://127.0.0.1:${port}/healthz`)).status;
  }

  metric(name: string): Promise<number | undefined> {
    return metricOf(this.web.lab.node.netns, name);
  }

  async masqueradesAll(): Promise<boolean> {
    const rules = await this.web.lab.node.netns.run(["iptables-save", "-t", "nat"]);
    return new RegExp(`-A KUBE-SVC-\\w+ -d ${WEB_CLUSTER_IP}/32 -p tcp .*-j KUBE-MARK-MASQ`).test(rules) &&
      !/-A KUBE-SVC-\w+ ! -s 10\.244/.test(rules);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kproxy[Symbol.asyncDispose]();
    await this.web[Symbol.asyncDispose]();
    await Deno.remove(this.folder, { recursive: true });
  }
}

/** Puts a text where a ConfigMap volume would have it, and swaps the link to it as the kubelet does. */
async function swap(folder: string, version: string, text: string): Promise<void> {
  await Deno.mkdir(`${folder}/..${version}`);
  await Deno.writeTextFile(`${folder}/..${version}/config.yaml`, text);
  const old = await Deno.readLink(`${folder}/..data`).catch(() => null);
  await Deno.symlink(`..${version}`, `${folder}/..data_tmp`);
  await Deno.rename(`${folder}/..data_tmp`, `${folder}/..data`);
  if (old === null) await Deno.symlink("..data/config.yaml", `${folder}/config.yaml`);
  else await Deno.remove(`${folder}/${old}`, { recursive: true });
}

// An edit in place: `switches_test.ts`, and below.
e2eTest(
  "no connection fails while the configuration changes by the swap of a ConfigMap's link: good, bad, good",
  NEEDS,
  async () => {
    await using lab = await Reloading.start((folder) => swap(folder, "v1", configText()));
    const { web, kproxy, folder } = lab;
    const loops = [
      await ConnectLoop.start(web.pod, CLUSTER),
      await ConnectLoop.start(web.client, NODE_PORT),
    ];
    await loops[0]!.answered(50);
    assertEquals([await lab.masqueradesAll(), await lab.status(10256)], [false, 200]);

    await lab.kproxy.anew(() => swap(folder, "v2", configText({ healthz: 10300, masqueradeAll: true })));
    assertEquals([await lab.masqueradesAll(), await lab.status(10256), await lab.status(10300)], [
      true,
      0,
      200,
    ]);
    assertEquals(await lab.metric("kproxy_config_reload_failures_total"), 0);
    await loops[0]!.answered(50);

    const bad = configText({ masqueradeAll: false, more: "mode: bogus\nbogusField: 1" });
    const said = await lab.refused(() => swap(folder, "v3", bad));
    assertMatch(said, /config\.yaml:7: mode/);
    assertMatch(said, /config\.yaml:8: bogusField/);
    assertMatch(said, /ConfigRefused/);
    assertEquals([await lab.masqueradesAll(), await lab.status(10300)], [true, 200]);
    assertEquals(await lab.metric("kproxy_config_reload_failures_total"), 1);
    assertEquals(await lab.metric("kproxy_config_last_reload_successful"), 0);
    await loops[0]!.answered(50);

    await lab.kproxy.anew(() => swap(folder, "v4", configText({ healthz: 10256, masqueradeAll: false })));
    assertEquals([await lab.masqueradesAll(), await lab.status(10256), await lab.status(10300)], [
      false,
      200,
      0,
    ]);
    assertEquals(await lab.metric("kproxy_config_reload_failures_total"), 1);
    assertEquals(await lab.metric("kproxy_config_last_reload_successful"), 1);
    // It is not only there, it works.
    await kproxy.change(
      () => web.manifests.replace("endpoints.json", [webSlice([WEB_PODS[2]])]),
      "shop/web",
    );
    await loops[0]!.answered(50);
    for (const loop of loops) await loop.stopUnbroken();
    assertEquals((await kproxy.stop()).code, 0);
  },
);

e2eTest("a configuration that cannot be served gives way to the former one", NEEDS, async () => {
  await using lab = await Reloading.start((folder) =>
    Deno.writeTextFile(`${folder}/config.yaml`, configText())
  );
  const loop = await ConnectLoop.start(lab.web.pod, CLUSTER);
  const write = (wanted: Wanted) => Deno.writeTextFile(`${lab.folder}/config.yaml`, configText(wanted));
  // A mode that the node cannot run is found out while the present life serves.
  assertMatch(await lab.refused(() => write({ more: "mode: ipvs" })), /ipvs/i);
  assertEquals(await lab.status(10256), 200);
  // Port 10249 is taken by the metrics: with bindAddressHardFail that is found out too late.
  const from = lab.kproxy.lines.length;
  assertMatch(await lab.refused(() => write({ healthz: 10249, masqueradeAll: true })), /Cannot listen on/);
  await lab.kproxy.untilServing(2, from);
  assertEquals([await lab.status(10256), await lab.masqueradesAll()], [200, false]);
  assertEquals(await lab.metric("kproxy_config_reload_failures_total"), 2);
  await loop.stopUnbroken();
});

e2eTest("a verbosity changes under the running proxy, a flag beside the file wins", NEEDS, async () => {
  await using lab = await Reloading.start((folder) =>
    Deno.writeTextFile(`${folder}/config.yaml`, configText())
  );
  const from = lab.kproxy.lines.length;
  // KproxyProcess starts with --v=2, so that what the file says about it changes nothing.
  await Deno.writeTextFile(`${lab.folder}/config.yaml`, configText({ more: "logging: { verbosity: 7 }" }));
  await lab.kproxy.untilMessage("Configuration file changed, but no setting in force", from);
  const since = lab.kproxy.lines.slice(from);
  assert(!since.some(({ msg }) => msg === ANEW), lab.kproxy.log);
});

e2eTest(
  "with --config-reload=exit other content ends kproxy with status 1, the rules stay",
  NEEDS,
  async () => {
    await using lab = await Reloading.start(
      (folder) => Deno.writeTextFile(`${folder}/config.yaml`, configText()),
      ["--config-reload=exit"],
    );
    const loop = await ConnectLoop.start(lab.web.pod, CLUSTER);
    await Deno.writeTextFile(`${lab.folder}/config.yaml`, configText({ masqueradeAll: true }));
    const { code } = await lab.kproxy.ended();
    assertEquals(code, 1);
    assertMatch(lab.kproxy.log, /content of the proxy server's configuration file was updated/);
    assertEquals(await lab.masqueradesAll(), false);
    await loop.answered(50);
    await loop.stopUnbroken();
  },
);
