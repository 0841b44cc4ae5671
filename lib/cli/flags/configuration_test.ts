import { assert, assertEquals, assertRejects } from "@std/assert";
import { defaultConfig } from "../../config/defaults.ts";
import { ConfigError } from "../../errors.ts";
import { effectiveConfiguration } from "./configuration.ts";
import { nodeName } from "../../kernel/machine.ts";
import { parseArgs } from "./parse_args.ts";
import { withYamlFile } from "../../../tests/support/temp_files.ts";

const HEAD = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";

Deno.test("without flags the defaults are in force", async () => {
  const { config, warnings } = await effectiveConfiguration(parseArgs(["run"]));
  assertEquals(config, defaultConfig());
  assertEquals(warnings, []);
});

const WRONG_MODE = 'Invalid value: "iptable": must be iptables, ipvs, nftables, userspace, auto or blank ' +
  '(blank means iptables); did you mean "iptables"?';

Deno.test("an unknown mode is refused, by flag and in a file", async () => {
  const byFlag = ["run", "--proxy-mode=iptable"];
  const error = await assertRejects(() => effectiveConfiguration(parseArgs(byFlag)), ConfigError);
  assertEquals(error.message, `--proxy-mode: ${WRONG_MODE}`);
  await withYamlFile(`${HEAD}mode: iptable\n`, async (path) => {
    for (const more of [[], ["--proxy-mode-fallback=false"]]) {
      const flags = parseArgs([`--config=${path}`, ...more]);
      const error = await assertRejects(() => effectiveConfiguration(flags), ConfigError);
      assertEquals(error.message, `${path}:3: mode: ${WRONG_MODE}`);
    }
  });
});

Deno.test("with --proxy-mode-fallback an unknown mode is a warning, by flag and in a file", async () => {
  const TOLD = 'there is no mode "iptable", iptables takes its place';
  const flags = parseArgs(["run", "--proxy-mode=iptable", "--proxy-mode-fallback"]);
  assertEquals((await effectiveConfiguration(flags)).warnings, [`--proxy-mode: ${TOLD}`]);
  const text = `${HEAD}mode: iptable\n`;
  await withYamlFile(text, async (path) => {
    const beside = await effectiveConfiguration(parseArgs([`--config=${path}`, "--proxy-mode-fallback"]));
    assertEquals(beside.warnings, [`${path}:3: mode: ${TOLD}`]);
    assertEquals(beside.config.kproxy.proxyModeFallback, true);
  });
  await withYamlFile(`${text}kproxy: {proxyModeFallback: true}\n`, async (path) => {
    assertEquals((await effectiveConfiguration(parseArgs([`--config=${path}`]))).warnings, [
      `${path}:3: mode: ${TOLD}`,
    ]);
    const against = parseArgs([`--config=${path}`, "--proxy-mode-fallback=false"]);
    await assertRejects(() => effectiveConfiguration(against), ConfigError, WRONG_MODE);
  });
});

Deno.test("beside a file the flags count that count in kube-proxy, the others are named", async () => {
  const text = `${HEAD}mode: ipvs\nhostnameOverride: from-file\nlogging:\n  verbosity: 1\n`;
  await withYamlFile(text, async (path) => {
    const { config, warnings } = await effectiveConfiguration(parseArgs([
      `--config=${path}`,
      "--proxy-mode=iptables",
      "--hostname-override=from-flag",
      "--v=5",
      "--manifests=objects",
    ]));
    assertEquals(config.mode, "ipvs");
    assertEquals(config.hostnameOverride, "from-flag");
    assertEquals(config.logging.verbosity, 5);
    assertEquals(config.kproxy.manifests, ["objects"]);
    assertEquals(warnings, ["--proxy-mode: ignored because --config is given"]);
  });
});

Deno.test("an unknown field is refused, and passed over with --config-lenient", async () => {
  await withYamlFile(`${HEAD}clusterCidr: 10.0.0.0/8\n`, async (path) => {
    const error = await assertRejects(
      () => effectiveConfiguration(parseArgs([`--config=${path}`])),
      ConfigError,
      "clusterCidr",
    );
    assertEquals(error.file, path);
    assertEquals(error.problems[0]?.line, 3);
    const lenient = await effectiveConfiguration(parseArgs([`--config=${path}`, "--config-lenient"]));
    assertEquals(lenient.config.clusterCIDR, "");
    assertEquals(lenient.warnings.length, 1);
    assert(lenient.warnings[0]?.startsWith(`${path}:3: clusterCidr: `), lenient.warnings[0]);
  });
});

Deno.test("ports of the host are reported to have no effect where no mode takes them, and are read where one does", async () => {
  const words = ["--proxy-port-range=30000-31000", "--udp-timeout=1s"];
  const { config, warnings } = await effectiveConfiguration(parseArgs(words));
  assertEquals([config.portRange, config.udpIdleTimeout], ["30000-31000", 1_000]);
  const why = "it has no effect: only mode userspace listens on ports of the host";
  assertEquals(warnings, [`--proxy-port-range: ${why}`, `--udp-timeout: ${why}`]);
  for (const more of ["--proxy-mode=userspace", "--proxy-mode-fallback"]) {
    assertEquals((await effectiveConfiguration(parseArgs([...words, more]))).warnings, []);
    await assertRejects(
      () => effectiveConfiguration(parseArgs(["--proxy-port-range=31000-30000", "--udp-timeout=0s", more])),
      ConfigError,
      "must be a valid port range (e.g. 30000-31000)",
    );
  }
});

Deno.test("--userspace-listen chooses the mode, also beside a file, and another mode says that it has no effect", async () => {
  const listen = "--userspace-listen=127.0.0.0/8,::1";
  const { config, warnings } = await effectiveConfiguration(parseArgs(["run", listen]));
  assertEquals([config.mode, config.kproxy.userspaceListen], ["userspace", ["127.0.0.0/8", "::1"]]);
  assertEquals(warnings, []);
  const other = await effectiveConfiguration(parseArgs(["run", listen, "--proxy-mode=nftables"]));
  assertEquals(other.config.mode, "nftables");
  assertEquals(other.warnings, [
    "--userspace-listen: it has no effect: only mode userspace listens on ports of the host",
  ]);
  await assertRejects(
    () => effectiveConfiguration(parseArgs(["run", "--userspace-listen=localhost"])),
    ConfigError,
    "must be an address or a network of this node",
  );
});

Deno.test("the node's name is the override or the host's name, as Node names are written", {
  permissions: "none",
}, () => {
  const config = defaultConfig();
  assertEquals(nodeName(config, () => " HOST.example "), "host.example");
  assertEquals(nodeName({ ...config, hostnameOverride: " N1 " }, () => "host"), "n1");
  let message = "";
  try {
    nodeName(config, () => " ");
  } catch (error) {
    if (error instanceof ConfigError) message = error.message;
  }
  assertEquals(message, "hostnameOverride: must name the node, the host has no name");
});
