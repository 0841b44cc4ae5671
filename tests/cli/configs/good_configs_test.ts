/**
 * Complete files of old and new kube-proxy versions: what they mean, what they warn of, and that writing loses nothing.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { parse } from "@std/yaml";
import { defaultConfig } from "../../../lib/config/defaults.ts";
import { FIELDS } from "../../../lib/config/fields.ts";
import { parseConfig, type ParsedConfig } from "../../../lib/config/parse.ts";
import { withFields } from "../../../lib/config/fields.ts";
import type { FieldValue } from "../../../lib/config/setting.ts";
import { writeConfigJson } from "../../../lib/config/write.ts";
import { writeConfigYaml } from "../../../lib/config/write_yaml.ts";

const FOLDER = new URL("./good/", import.meta.url);

function textOf(name: string): string {
  return Deno.readTextFileSync(new URL(name, FOLDER));
}

function load(name: string): ParsedConfig {
  return parseConfig(textOf(name), { file: name });
}

/** Every field with another value than its default, by path. */
function changedFields(fields: Record<string, FieldValue>): ReturnType<typeof defaultConfig> {
  return withFields(defaultConfig(), new Map(Object.entries(fields)));
}

Deno.test("the written defaults are kube-proxy's, and load back to the defaults", () => {
  assertEquals(writeConfigYaml(defaultConfig()), textOf("defaults.yaml"));
  assertEquals(load("defaults.yaml"), { config: defaultConfig(), warnings: [] });
});

Deno.test("kubeadm's file, full of zeros and nulls, stands for the defaults", () => {
  assertEquals(load("kubeadm.yaml"), {
    config: changedFields({
      "clientConnection.kubeconfig": "/var/lib/kube-proxy/kubeconfig.conf",
      clusterCIDR: "10.244.0.0/16",
    }),
    warnings: [],
  });
});

Deno.test("a complete file of kube-proxy 1.11 works, with one warning for each field and gate that is obsolete", () => {
  const { config, warnings } = load("kube-proxy-1.11.yaml");
  assertEquals(
    config,
    changedFields({
      "clientConnection.burst": 20,
      "clientConnection.kubeconfig": "/var/lib/kube-proxy/kubeconfig.conf",
      "clientConnection.qps": 8,
      clusterCIDR: "10.244.0.0/16",
      configSyncPeriod: 600_000,
      "conntrack.maxPerCore": 1,
      "conntrack.min": 300_000,
      "conntrack.tcpCloseWaitTimeout": 5_400_000,
      "conntrack.tcpEstablishedTimeout": 43_200_000,
      enableProfiling: true,
      featureGates: { SupportIPVSProxyMode: true, CustomPodDNS: false },
      hostnameOverride: "node-1",
      "iptables.masqueradeAll": true,
      "iptables.masqueradeBit": 15,
      "iptables.minSyncPeriod": 5_000,
      "iptables.syncPeriod": 60_000,
      "ipvs.excludeCIDRs": ["192.0.2.0/24"],
      "ipvs.minSyncPeriod": 2_000,
      "ipvs.scheduler": "lc",
      "ipvs.syncPeriod": 45_000,
      nodePortAddresses: ["192.168.0.0/16"],
      oomScoreAdj: -998,
      portRange: "30000-32767",
    }),
  );
  assertEquals(warnings.map((warning) => warning.split(" ").slice(0, 4).join(" ")), [
    "kube-proxy-1.11.yaml:13: conntrack.max: obsolete field,",
    "kube-proxy-1.11.yaml:21: featureGates.CustomPodDNS: feature gate",
    "kube-proxy-1.11.yaml:41: portRange: it has",
    "kube-proxy-1.11.yaml:42: resourceContainer: obsolete field",
  ]);
});

Deno.test("a complete file of the newest kube-proxy works without a warning", () => {
  const { config, warnings } = load("kube-proxy-newest.yaml");
  assertEquals(warnings, []);
  const { iptables, conntrack, logging } = config;
  assertEquals(config.metricsBindAddress, "[::1]:10249");
  assertEquals([conntrack.maxPerCore, conntrack.min, conntrack.tcpEstablishedTimeout], [0, 0, 0]);
  assertEquals([iptables.localhostNodePorts, iptables.syncPeriod, config.nftables.minSyncPeriod], [
    false,
    90_000,
    500,
  ]);
  assertEquals([
    logging.flushFrequency,
    logging.options.text.splitStream,
    logging.options.json.infoBufferSize,
  ], [
    3_000,
    true,
    "32768",
  ]);
  assertEquals(config.nodePortAddresses, ["primary", "localhost", "10.0.0.0/8"]);
  assertEquals(config.kproxy, {
    manifests: ["/etc/kproxy/objects"],
    proxyModeFallback: true,
    snapshot: "/var/lib/kproxy/snapshot",
    snapshotMaxAge: 129_600_000,
    ipvsTerminationDeadline: 90_000,
    userspaceListen: [],
    externalIPPolicy: {
      externalIPs: [],
      loadBalancerIPs: ["203.0.113.0/24", "fd00:5::/64"],
      nodeAddresses: true,
    },
    trafficCounters: true,
    socket: "/run/other/kproxy.sock",
    statusApi: false,
    statusPage: true,
    serving: {
      tlsCertFile: "/etc/kproxy/tls/tls.crt",
      tlsPrivateKeyFile: "/etc/kproxy/tls/tls.key",
      tlsMinVersion: "VersionTLS13",
      clientCAFile: "/etc/kproxy/tls/ca.crt",
      bearerTokenFile: "",
      delegatedAuthentication: true,
      healthz: true,
    },
  });
});

Deno.test("the newest file has every field there is", () => {
  const file = parse(textOf("kube-proxy-newest.yaml")) as Record<string, unknown>;
  const missing = FIELDS.map(({ path }) => path).filter((path) => {
    let value: unknown = file;
    for (const name of path.split(".")) value = (value as Record<string, unknown> | undefined)?.[name];
    return value === undefined;
  });
  // kube-proxy has had no mode userspace since 1.26.
  assertEquals(missing, ["udpIdleTimeout"]);
});

Deno.test("written again as YAML or JSON, each file means the same", () => {
  for (const { name } of Deno.readDirSync(FOLDER)) {
    const { config } = load(name);
    assertEquals(parseConfig(writeConfigYaml(config)).config, config, name);
    assertEquals(parseConfig(writeConfigJson(config)).config, config, name);
  }
});
