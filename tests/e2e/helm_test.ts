/**
 * The Helm chart, by Helm: it makes the objects of the kustomizations, one by one; wrong values are refused by name; the lines of
 * docs/deploy.md are ones it takes. It is here because Helm is built with the API server (`KAPI`).
 *
 * @module
 */
import { assert, assertEquals, assertMatch, assertRejects } from "@std/assert";
import type { V1DaemonSet } from "@kubernetes/client-node";
import { parse } from "@std/yaml";
import type { ProxyMode } from "../../lib/config/types.ts";
import { helmCommands } from "../../tools/doc_commands.ts";
import { ROOT } from "../../tools/project_files.ts";
import { problemsOf } from "../deploy/api_schema.ts";
import { configOf } from "../deploy/container_config.ts";
import { kustomizeText, type Manifest, nameOf, podOf, readManifests } from "../deploy/kustomization.ts";
import { askChart, askHelm, CHART, chartObjects, type Values } from "../support/helm_chart.ts";
import { KAPI_BUILD } from "../support/kapi.ts";
import { e2eTest, program } from "../support/skip.ts";

const IMAGE = { repository: "registry.example/kproxy" };
const DEPLOY = `${ROOT}/deploy`;
/** Values, and the kustomization that makes the same. */
const CASES: readonly [name: string, values: Values, kustomization: string][] = [
  ["the cluster's own mode", {}, "resources: [deploy/kubernetes/base]"],
  ...["iptables", "ipvs", "nftables"].map((mode): [string, Values, string] => [
    `mode ${mode}`,
    { mode },
    `resources: [deploy/kubernetes/overlays/${mode}]`,
  ]),
  [
    "every node",
    { mode: "nftables", everyNode: true },
    "resources: [deploy/kubernetes/overlays/nftables]\ncomponents: [deploy/kubernetes/components/every-node]",
  ],
  [
    "an image by its digest",
    { image: { ...IMAGE, digest: `sha256:${"0123456789abcdef".repeat(4)}` } },
    `resources: [deploy/kubernetes/base]
images: [{ name: kproxy, newName: registry.example/kproxy, digest: "sha256:${
      "0123456789abcdef".repeat(4)
    }" }]`,
  ],
];
const CHART_LABELS = ["app.kubernetes.io/managed-by", "app.kubernetes.io/version", "helm.sh/chart"];

/** Objects as they are compared: sorted, configurations as what they say, without the chart's own labels. */
function comparable(objects: readonly Manifest[]): unknown[] {
  return objects.toSorted((a, b) => nameOf(a) < nameOf(b) ? -1 : 1).map((object) => {
    const copy = structuredClone(object) as Manifest & {
      data?: Record<string, unknown>;
      metadata: { labels?: Record<string, string> };
    };
    for (const label of CHART_LABELS) delete copy.metadata.labels?.[label];
    if (Object.keys(copy.metadata.labels ?? {}).length === 0) delete copy.metadata.labels;
    if (copy.data !== undefined) copy.data["config.conf"] = parse(String(copy.data["config.conf"]));
    return copy;
  });
}

/** The lines with Helm in the documentation. */
async function documented(): Promise<string[][]> {
  const pages = await Promise.all(
    ["deploy", "migrate"].map((page) => Deno.readTextFile(`${ROOT}/docs/${page}.md`)),
  );
  return pages.flatMap(helmCommands);
}

async function kustomized(kustomization: string): Promise<Manifest[]> {
  const image = "images: [{ name: kproxy, newName: registry.example/kproxy, newTag: 0.1.0 }]";
  return await kustomizeText(
    kustomization.includes("images:") ? kustomization : `${kustomization}\n${image}`,
  );
}

e2eTest(
  "the chart makes what kustomize makes, object by object, in every mode",
  [...KAPI_BUILD, program("kubectl")],
  async () => {
    for (const [name, values, kustomization] of CASES) {
      const objects = await chartObjects({ image: IMAGE, ...values });
      assertEquals(comparable(objects), comparable(await kustomized(kustomization)), name);
      for (const { metadata } of objects as { metadata: { labels?: Record<string, string> } }[]) {
        assertEquals(CHART_LABELS.filter((label) => metadata.labels?.[label] === undefined), [], name);
      }
    }
  },
);

e2eTest("Helm takes every line that the documentation has for it", KAPI_BUILD, async () => {
  const commands = await documented();
  assert(commands.length >= 8, `${commands.length} lines`);
  // No listener is there: a program that gets as far as this has understood the line.
  const ask = (words: readonly string[]) => askHelm([...words, "--kube-apiserver=http://127.0.0.1:9"]);
  for (const words of commands) assertMatch((await ask(words)).stderr, /connection refused/, words.join(" "));
  assertMatch((await ask(["rollback", "kproxy", "--nowhere"])).stderr, /unknown flag/);
});

e2eTest("Helm's rules for charts find nothing in it", KAPI_BUILD, async () => {
  for (const values of [{}, { mode: "ipvs", image: IMAGE, clusterCIDR: "10.244.0.0/16" }]) {
    const { code, stdout } = await askChart("lint", values);
    // An icon is only recommended.
    assertEquals(stdout.split("\n").filter((line) => /WARNING|ERROR/.test(line)), []);
    assertEquals(code, 0, stdout);
  }
});

/** Values that are refused, and what the message has to name. */
const REFUSED: readonly [values: Values, named: RegExp][] = [
  [{ mode: "ebpf" }, /'?\/mode'?: value must be one of .*'nftables'/],
  [{ mod: "ipvs" }, /additional properties 'mod' not allowed/],
  [{ image: { ...IMAGE, tag: 0.1 } }, /\/image\/tag'?: got number, want string/],
  [{ image: { repository: "registry.example/kproxy:0.1.0" } }, /\/image\/repository'?: .* does not match/],
  [{ image: { ...IMAGE, digest: "sha256:12" } }, /\/image\/digest'?: .* does not match/],
  [{ image: { ...IMAGE, pullPolicy: "Sometimes" } }, /\/image\/pullPolicy/],
  [{ mode: "ipvs", clusterCIDR: "10.244.0.0" }, /\/clusterCIDR'?: .* does not match/],
  [{ mode: "ipvs", detectLocal: { mode: "Guess" } }, /\/detectLocal\/mode/],
  [{ mode: "ipvs", metricsBindAddress: "10249" }, /\/metricsBindAddress'?: .* does not match/],
  [{ mode: "ipvs", config: { mode: "iptables" } }, /\/config\/mode/],
  [
    { mode: "ipvs", config: { clientConnection: { kubeconfig: "/x" } } },
    /\/config\/clientConnection\/kubeconfig/,
  ],
  [{ mode: "ipvs", config: { modes: "ipvs" } }, /\/config'?: additional properties 'modes' not allowed/],
  [
    { mode: "ipvs", config: { ipvs: { shceduler: "rr" } } },
    /\/config\/ipvs'?: additional properties 'shceduler'/,
  ],
  [
    { mode: "ipvs", config: { conntrack: { min: "many" } } },
    /\/config\/conntrack\/min'?: got string, want .*integer/,
  ],
  [
    { mode: "ipvs", config: { logging: { format: "xml" } } },
    /\/config\/logging\/format'?: value must be one of/,
  ],
  [{ apiServer: { server: "10.0.0.1:6443" } }, /\/apiServer\/server'?: .* does not match/],
  [{ nodeSelector: { "kproxy/node": true } }, /\/nodeSelector\/kproxy~1node'?: got boolean, want string/],
  [{ resources: { request: {} } }, /\/resources'?: additional properties 'request' not allowed/],
  [{ prometheusRule: { enabled: "yes" } }, /\/prometheusRule\/enabled'?: got string, want boolean/],
  // What is the cluster's own configuration then cannot be changed from here.
  [{ clusterCIDR: "10.244.0.0/16" }, /clusterCIDR: set mode, too/],
  [{ metricsBindAddress: "0.0.0.0:10249" }, /metricsBindAddress: set mode, too/],
  [{ config: { oomScoreAdj: -999 } }, /config: set mode, too/],
  [{ detectLocal: { mode: "NodeCIDR" } }, /detectLocal.mode: set mode, too/],
  [{ image: {} }, /image.repository: name the image/],
  [{ metricsTLS: { secretName: "tls" } }, /metricsTLS: set mode, too/],
  [{ metricsTLS: { secret: "tls" } }, /secret/],
];

e2eTest("wrong values are refused, and the message names the field", KAPI_BUILD, async () => {
  for (const [values, named] of REFUSED) {
    const { code, stderr } = await askChart("template", { image: IMAGE, ...values });
    assertEquals(code, 1, JSON.stringify(values));
    assertMatch(stderr, named);
  }
  await assertRejects(() => chartObjects({ image: IMAGE }, "default"), Error, "--namespace=kube-system");
});

const CHOSEN: Values = {
  image: { ...IMAGE, pullPolicy: "Always" },
  imagePullSecrets: [{ name: "registry" }],
  mode: "nftables",
  clusterCIDR: "10.244.0.0/16,fd00:10:244::/56",
  detectLocal: { mode: "InterfaceNamePrefix", interfaceNamePrefix: "veth" },
  metricsBindAddress: "[::]:9249",
  config: {
    healthzBindAddress: "0.0.0.0:9256",
    clientConnection: { qps: 20 },
    conntrack: { min: 1_000_000 },
    kproxy: { trafficCounters: true },
  },
  apiServer: { server: "https://10.0.0.1:6443" },
  serviceAccount: { name: "kproxy", create: true },
  resources: { requests: { memory: "256Mi" }, limits: { memory: "1Gi" } },
};
const CHOSEN_NAMES = [
  "ClusterRole kproxy",
  "ClusterRoleBinding kproxy",
  "ConfigMap kube-system/kproxy-api-server",
  "ConfigMap kube-system/kproxy-nftables",
  "DaemonSet kube-system/kproxy",
  "ServiceAccount kube-system/kproxy",
];

async function assertChosenConfig(objects: readonly Manifest[]): Promise<void> {
  const [main] = podOf(objects).containers;
  assert(main !== undefined);
  const { config } = await configOf(main, objects, "");
  assertEquals(
    [config.mode, config.clusterCIDR, config.detectLocalMode, config.detectLocal.interfaceNamePrefix],
    ["nftables", "10.244.0.0/16,fd00:10:244::/56", "InterfaceNamePrefix", "veth"],
  );
  assertEquals(
    [config.clientConnection.qps, config.conntrack.min, config.kproxy.trafficCounters],
    [20, 1e6, true],
  );
  assertEquals(config.clientConnection.kubeconfig, "/var/lib/kube-proxy/kubeconfig.conf");
}

function assertChosenPod(objects: readonly Manifest[]): void {
  const pod = podOf(objects);
  const [main] = pod.containers;
  assertEquals(main?.ports?.map(({ name, containerPort }) => `${name} ${containerPort}`), [
    "healthz 9256",
    "metrics 9249",
  ]);
  assertEquals([main?.imagePullPolicy, main?.resources, pod.imagePullSecrets, pod.serviceAccountName], [
    "Always",
    { requests: { cpu: "100m", memory: "256Mi" }, limits: { memory: "1Gi" } },
    [{ name: "registry" }],
    "kproxy",
  ]);
  const sources = pod.volumes?.[0]?.projected?.sources?.map(({ configMap }) => configMap?.name);
  assertEquals(sources, ["kproxy-nftables", "kproxy-api-server"]);
}

function assertChosenAccess(objects: readonly Manifest[]): void {
  const access = objects.find(({ metadata }) => metadata.name === "kproxy-api-server");
  const { "kubeconfig.conf": text = "" } = (access as unknown as { data: Record<string, string> }).data;
  const { clusters, users } = parse(text) as {
    clusters: { cluster: unknown }[];
    users: { user: unknown }[];
  };
  const secrets = "/var/run/secrets/kubernetes.io/serviceaccount";
  assertEquals([clusters[0]?.cluster, users[0]?.user], [
    { server: "https://10.0.0.1:6443", "certificate-authority": `${secrets}/ca.crt` },
    { tokenFile: `${secrets}/token` },
  ]);
  const binding = objects.find(({ kind }) => kind === "ClusterRoleBinding") as unknown as {
    subjects: unknown;
  };
  assertEquals(binding.subjects, [{ kind: "ServiceAccount", name: "kproxy", namespace: "kube-system" }]);
}

e2eTest(
  "the values become the configuration, the Pod and its access to the API server",
  KAPI_BUILD,
  async (t) => {
    const objects = await chartObjects(CHOSEN);
    for (const object of objects) assertEquals(problemsOf(object), [], nameOf(object));
    assertEquals(objects.map(nameOf).sort(), CHOSEN_NAMES);
    await t.step("kproxy takes the configuration", () => assertChosenConfig(objects));
    await t.step("the Pod has its ports, image and limits", () => assertChosenPod(objects));
    await t.step(
      "kproxy asks the server that was chosen, by the account that was",
      () => assertChosenAccess(objects),
    );
  },
);

e2eTest(
  "metrics over TLS: files of a Secret, and rights to ask for reviews only where they are wanted",
  KAPI_BUILD,
  async () => {
    const values = { image: IMAGE, mode: "nftables", clusterCIDR: "10.244.0.0/16" };
    const metricsTLS = { secretName: "metrics-tls" };
    const delegated = { ...metricsTLS, clientCertificates: true, delegatedAuthentication: true };
    const bindings = (objects: readonly Manifest[]): string[] =>
      objects.map(nameOf).filter((name) => name.startsWith("ClusterRoleBinding")).sort();
    const OWN = "ClusterRoleBinding kproxy";
    assertEquals(bindings(await chartObjects({ ...values, metricsTLS })), [OWN]);
    const config = { kproxy: { serving: { healthz: true } } };
    const objects = await chartObjects({ ...values, metricsTLS: delegated, config });
    for (const object of objects) assertEquals(problemsOf(object), [], nameOf(object));
    assertEquals(bindings(objects), [OWN, `${OWN}:auth-delegator`]);
    const pod = podOf(objects);
    const [main] = pod.containers;
    assert(main !== undefined);
    const { config: { kproxy: { serving } } } = await configOf(main, objects, "");
    const folder = main.volumeMounts?.find(({ name }) => name === "metrics-tls")?.mountPath;
    assertEquals([serving.tlsCertFile, serving.tlsPrivateKeyFile, serving.clientCAFile], [
      `${folder}/tls.crt`,
      `${folder}/tls.key`,
      `${folder}/ca.crt`,
    ]);
    assertEquals([serving.delegatedAuthentication, serving.healthz], [true, true]);
    const probes = JSON.stringify(main).match(/"scheme":"HTTPS"/g);
    assertEquals(probes?.length, 3);
  },
);

e2eTest("the operator of Prometheus gets the alerts and the labels that they go by", KAPI_BUILD, async () => {
  const objects = await chartObjects({
    image: IMAGE,
    prometheusRule: {
      enabled: true,
      labels: { release: "prometheus" },
      runbookPrefix: "https://git.example/kproxy/",
    },
    podMonitor: { enabled: true, labels: { release: "prometheus" } },
  });
  const [rule, monitor] = ["PrometheusRule", "PodMonitor"].map((wanted) =>
    objects.find(({ kind }) => kind === wanted) as unknown as {
      metadata: Manifest["metadata"] & { labels: Values };
      spec: Values;
    }
  );
  assert(rule !== undefined && monitor !== undefined);
  const expected = (await Deno.readTextFile(`${DEPLOY}/prometheus/rules.yaml`))
    .replaceAll("runbook: docs/", "runbook: https://git.example/kproxy/docs/");
  assertEquals(rule.spec, parse(expected));
  const { scrape_configs: [scrape] } = parse(await Deno.readTextFile(`${DEPLOY}/prometheus/scrape.yaml`)) as {
    scrape_configs: {
      job_name: string;
      relabel_configs: { source_labels: string[]; target_label?: string }[];
    }[];
  };
  const node = scrape?.relabel_configs.find(({ target_label }) => target_label === "node");
  assertEquals(monitor.spec, {
    selector: podSelector(objects),
    podMetricsEndpoints: [{
      port: "metrics",
      relabelings: [
        { targetLabel: "job", replacement: scrape?.job_name },
        { sourceLabels: node?.source_labels, targetLabel: "node" },
      ],
    }],
  });
  assertEquals([rule, monitor].map(({ metadata }) => [metadata.namespace, metadata.labels["release"]]), [
    ["kube-system", "prometheus"],
    ["kube-system", "prometheus"],
  ]);
});

/** By which the DaemonSet knows its Pods, whatever else their labels say. */
function podSelector(objects: readonly Manifest[]): unknown {
  return (objects.find(({ kind }) => kind === "DaemonSet") as unknown as V1DaemonSet).spec?.selector;
}

e2eTest("the chart takes what the documentation has Helm set", KAPI_BUILD, async () => {
  const commands = await documented();
  const installs = commands.filter((words) => words.includes(CHART.slice(ROOT.length + 1)));
  assert(installs.length >= 3, commands.join("\n"));
  const modes: ProxyMode[] = [];
  for (const words of installs) {
    const values: Record<string, unknown> = {};
    for (const word of words) {
      const [, path, value] = /^--set=([^=]+)=(.*)$/.exec(word) ?? [];
      if (path !== undefined) setAt(values, path.split("."), value === "true" ? true : value);
    }
    // What `--reset-then-reuse-values` keeps of the install before.
    const all = { image: IMAGE, ...values };
    const objects = await chartObjects(
      words.includes("--reset-then-reuse-values") ? { ...all, image: { ...IMAGE, ...all.image } } : all,
    );
    const [main] = podOf(objects).containers;
    assert(main !== undefined && words.includes("--namespace=kube-system"), words.join(" "));
    const kubeadm = await Deno.readTextFile(`${ROOT}/tests/cli/configs/good/kubeadm.yaml`);
    modes.push((await configOf(main, objects, kubeadm)).config.mode as ProxyMode);
  }
  assert(modes.includes("nftables") && modes.includes("iptables"), modes.join());
});

function setAt(
  values: Record<string, unknown>,
  [first = "", ...rest]: readonly string[],
  value: unknown,
): void {
  if (rest.length === 0) values[first] = value;
  else setAt((values[first] ??= {}) as Record<string, unknown>, rest, value);
}

Deno.test("the chart's version is kproxy's, and the account in it the one of the role", async () => {
  const { version } = JSON.parse(await Deno.readTextFile(`${ROOT}/deno.json`)) as { version: string };
  const chart = parse(await Deno.readTextFile(`${CHART}/Chart.yaml`)) as Values;
  assertEquals(
    [chart["version"], chart["appVersion"]],
    [version, version],
    "deploy/helm/kproxy/Chart.yaml, deno.json",
  );
  const [, binding] = await readManifests(`${DEPLOY}/kubernetes/base/rbac.yaml`);
  const values = parse(await Deno.readTextFile(`${CHART}/values.yaml`)) as {
    serviceAccount: { name: string };
  };
  const { subjects } = binding as unknown as { subjects: { name: string }[] };
  assertEquals(subjects.map(({ name }) => name), [values.serviceAccount.name]);
});
