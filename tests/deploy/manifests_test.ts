/**
 * The manifests of `deploy/kubernetes`: that the API knows all that they say, that they fit kubeadm's kube-proxy, kproxy's own
 * command line and configuration, and that no account has more rights than the documentation says.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import type { V1DaemonSet, V1PodSpec } from "@kubernetes/client-node";
import { parse } from "@std/yaml";
import type { KubeProxyConfiguration, ProxyMode } from "../../lib/config/types.ts";
import { runOk, systemExec } from "../../lib/kernel/exec.ts";
import { ROOT } from "../../tools/project_files.ts";
import { e2eTest, program } from "../support/skip.ts";
import { problemsOf, schemaProblems } from "./api_schema.ts";
import { configOf } from "./container_config.ts";
import {
  baseManifests,
  containersOf,
  KUBE_PROXY,
  kustomize,
  kustomizeText,
  type Manifest,
  nameOf,
  podOf,
  readManifests,
} from "./kustomization.ts";

const KUBECTL = [program("kubectl")];
const FOLDER = `${ROOT}/deploy/kubernetes`;
const PAGE = await Deno.readTextFile(`${ROOT}/docs/deploy.md`);
const OVERLAYS = ["iptables", "ipvs", "nftables"] as const;
/** Every way in which it may be applied. */
const FOLDERS: readonly string[] = ["base", ...OVERLAYS.map((mode) => `overlays/${mode}`)];
/** What kubeadm makes for kube-proxy: it must survive the removal of kproxy. */
const OF_KUBEADM = [
  "ServiceAccount kube-system/kube-proxy",
  "ConfigMap kube-system/kube-proxy",
  "DaemonSet kube-system/kube-proxy",
  "ClusterRoleBinding kubeadm:node-proxier",
];

for (const folder of FOLDERS) {
  e2eTest(`${folder}: the API knows every field, and nothing of kube-proxy's is in it`, KUBECTL, async () => {
    const objects = await kustomize(`${FOLDER}/${folder}`);
    assert(objects.length >= 3);
    for (const object of objects) {
      assertEquals(problemsOf(object), [], nameOf(object));
    }
    const names = objects.map(nameOf);
    assertEquals(new Set(names).size, names.length);
    assertEquals(names.filter((name) => OF_KUBEADM.includes(name)), []);
  });
}

Deno.test("a field that the API does not know, or of another type, would have been noticed", async () => {
  const objects = await baseManifests();
  const set = structuredClone(objects.find(({ kind }) => kind === "DaemonSet")) as unknown as V1DaemonSet;
  const container = podOf([set as unknown as Manifest]).containers[0];
  assert(container !== undefined);
  Object.assign(container, { readinesProbe: {}, tty: "true" });
  Object.assign(container.livenessProbe ?? {}, { periodSeconds: "10" });
  assertEquals(schemaProblems(set, "V1DaemonSet"), [
    ".spec.template.spec.containers[0].livenessProbe.periodSeconds: no number",
    ".spec.template.spec.containers[0].readinesProbe: unknown",
    ".spec.template.spec.containers[0].tty: no boolean",
  ]);
});

e2eTest(
  "the kustomization of docs/deploy.md names the image of both containers",
  KUBECTL,
  async () => {
    const [, text = ""] = /```yaml\n(# kustomization.yaml\n[^]*?)```/.exec(PAGE) ?? [];
    const images = containersOf(podOf(await kustomizeText(text))).map(({ image }) => image);
    assertEquals(images, ["registry.example/kproxy:0.1.0", "registry.example/kproxy:0.1.0"]);
  },
);

Deno.test("the Pods take the place of kubeadm's: account, name of the configuration, mounts, priority", async () => {
  const objects = await baseManifests();
  const pod = podOf(objects);
  assertEquals(
    [pod.serviceAccountName, pod.priorityClassName, pod.hostNetwork, pod.tolerations, pod.nodeSelector],
    ["kube-proxy", "system-node-critical", true, [{ operator: "Exists" }], {
      "kubernetes.io/os": "linux",
      "kproxy/node": "true",
    }],
  );
  assertEquals(
    pod.volumes?.map(({ name, hostPath, projected, emptyDir }) => [name, hostPath ?? projected ?? emptyDir]),
    [
      ["config", {
        sources: ["config.conf", "kubeconfig.conf"].map((key) => ({
          configMap: { name: "kube-proxy", items: [{ key, path: key }] },
        })),
      }],
      ["xtables-lock", { path: "/run/xtables.lock", type: "FileOrCreate" }],
      ["lib-modules", { path: "/lib/modules" }],
      // Beyond kube-proxy's; it goes with the Pod.
      ["socket", { sizeLimit: "1Mi" }],
    ],
  );
  for (const { name, volumeMounts } of containersOf(pod)) {
    assertEquals(volumeMounts, [
      { name: "config", mountPath: "/var/lib/kube-proxy", readOnly: true },
      { name: "xtables-lock", mountPath: "/run/xtables.lock" },
      { name: "lib-modules", mountPath: "/lib/modules", readOnly: true },
      // Of the one that is asked.
      ...(name === "kproxy" ? [{ name: "socket", mountPath: "/run/kproxy" }] : []),
    ], name);
  }
});

Deno.test("only the container that ends has all rights; the other one has two, and cannot get more", async () => {
  const pod = podOf(await baseManifests());
  const [init, ...others] = containersOf(pod);
  assertEquals([init?.name, init?.args?.includes("--init-only")], ["init", true]);
  assertEquals(init?.securityContext, { privileged: true, readOnlyRootFilesystem: true, runAsUser: 0 });
  assertEquals(others.map(({ name, securityContext }) => [name, securityContext]), [["kproxy", {
    runAsUser: 0,
    allowPrivilegeEscalation: false,
    readOnlyRootFilesystem: true,
    capabilities: { drop: ["ALL"], add: ["NET_ADMIN", "NET_RAW"] },
    seccompProfile: { type: "RuntimeDefault" },
  }]]);
  assertEquals([pod.hostPID, pod.hostIPC], [undefined, undefined]);
});

const CLUSTER_CONFIG = await Deno.readTextFile(`${ROOT}/tests/cli/configs/good/kubeadm.yaml`);

const MODES: readonly [folder: string, mode: ProxyMode][] = [
  ["base", "iptables"],
  ...OVERLAYS.map((mode): [string, ProxyMode] => [`overlays/${mode}`, mode]),
];

for (const [folder, mode] of MODES) {
  e2eTest(
    `${folder}: kproxy takes its command line and its configuration, and runs mode ${mode}`,
    KUBECTL,
    async () => {
      const objects = await kustomize(`${FOLDER}/${folder}`);
      const pod = podOf(objects);
      const runs = await Promise.all(
        containersOf(pod).map((container) => configOf(container, objects, CLUSTER_CONFIG)),
      );
      assertEquals(runs.map(({ initOnly }) => initOnly), [true, false]);
      for (const { config } of runs) {
        assertEquals([config.mode, config.hostnameOverride, config.clientConnection.kubeconfig], [
          mode,
          "node-a",
          "/var/lib/kube-proxy/kubeconfig.conf",
        ]);
        assertProbes(pod, config);
      }
    },
  );
}

/** The probes and ports are those of the addresses that the configuration stands for. */
function assertProbes(pod: V1PodSpec, config: KubeProxyConfiguration): void {
  const main = pod.containers[0];
  const ports = main?.ports?.map(({ name, containerPort }) => `${name} ${containerPort}`);
  const portOf = (address: string): string => address.slice(address.lastIndexOf(":") + 1);
  assertEquals(ports, [
    `healthz ${portOf(config.healthzBindAddress)}`,
    `metrics ${portOf(config.metricsBindAddress)}`,
  ]);
  assertEquals(
    [main?.startupProbe, main?.livenessProbe, main?.readinessProbe].map((probe) => probe?.httpGet),
    ["/livez", "/livez", "/readyz"].map((path) => ({ path, port: "healthz" })),
  );
  // A start may wait 5 min for the Node's pod CIDRs.
  const { periodSeconds = 0, failureThreshold = 0 } = main?.startupProbe ?? {};
  assert(periodSeconds * failureThreshold > 300);
}

e2eTest(
  "the command of docs/deploy.md makes an overlay's configuration of the cluster's",
  [program("sed")],
  async () => {
    const [, script = ""] = /\| *\n *sed '([^']*)' > deploy\/kubernetes\/overlays\/nftables/.exec(PAGE) ?? [];
    const text = await runOk(systemExec, ["sed", script], { stdin: CLUSTER_CONFIG });
    const objects = await baseManifests();
    const [container] = podOf(objects).containers;
    assert(container !== undefined);
    const { config } = await configOf(container, objects, text);
    assertEquals([config.mode, config.clusterCIDR], ["nftables", "10.244.0.0/16"]);
  },
);

Deno.test("the nodes that kproxy serves are those that kube-proxy is kept off", async () => {
  const patch = parse(await Deno.readTextFile(`${FOLDER}/kube-proxy-elsewhere.yaml`)) as V1DaemonSet;
  assertEquals(schemaProblems(patch, "V1DaemonSet"), []);
  const terms = patch.spec?.template.spec?.affinity?.nodeAffinity
    ?.requiredDuringSchedulingIgnoredDuringExecution?.nodeSelectorTerms;
  const selector = podOf(await baseManifests()).nodeSelector ?? {};
  const own = Object.entries(selector).filter(([key]) => !key.startsWith("kubernetes.io/"));
  assertEquals(
    terms,
    own.map(([key, value]) => ({ matchExpressions: [{ key, operator: "NotIn", values: [value] }] })),
  );
});

function setOf(objects: readonly Manifest[]): V1DaemonSet {
  return objects.find(({ kind }) => kind === "DaemonSet") as unknown as V1DaemonSet;
}

e2eTest(
  "Pods have kube-proxy's label where no kube-proxy is left, and the set selects by one that stays",
  KUBECTL,
  async () => {
    const base = await baseManifests();
    const everywhere = await kustomizeText(
      "resources: [deploy/kubernetes/base]\ncomponents: [deploy/kubernetes/components/every-node]",
    );
    assertEquals(podOf(everywhere).nodeSelector, { "kubernetes.io/os": "linux" });
    const kubeProxy = parse(KUBE_PROXY) as V1DaemonSet;
    for (const [objects, isKubeProxys] of [[base, false], [everywhere, true]] as const) {
      const { spec } = setOf(objects);
      const labels: Record<string, string | undefined> = spec?.template.metadata?.labels ?? {};
      assertEquals(spec?.selector.matchLabels, {
        "app.kubernetes.io/name": labels["app.kubernetes.io/name"] ?? "",
      });
      assertEquals(spec?.selector, setOf(base).spec?.selector, "the API server takes no other one later");
      const wanted = Object.entries(kubeProxy.spec?.selector.matchLabels ?? {});
      assertEquals(
        wanted.every(([key, value]) => labels[key] === value),
        isKubeProxys,
        JSON.stringify(labels),
      );
    }
  },
);

Deno.test("the rights are given to the account of the Pods", async () => {
  const objects = await baseManifests();
  const set = setOf(objects);
  const [role, binding] = await readManifests(`${FOLDER}/base/rbac.yaml`);
  assert(role !== undefined && binding !== undefined);
  const { roleRef, subjects } = binding as unknown as Record<string, unknown>;
  assertEquals(roleRef, {
    apiGroup: "rbac.authorization.k8s.io",
    kind: role.kind,
    name: role.metadata.name,
  });
  assertEquals(subjects, [{
    kind: "ServiceAccount",
    name: podOf(objects).serviceAccountName,
    namespace: set.metadata?.namespace,
  }]);
});

Deno.test("the role is the one of docs/operations.md", async () => {
  const [role] = await readManifests(`${FOLDER}/base/rbac.yaml`);
  const page = await Deno.readTextFile(`${ROOT}/docs/operations.md`);
  const [, yaml = ""] = /^```yaml\n(apiVersion: rbac.*?)^```$/ms.exec(page) ?? [];
  const { rules } = role as unknown as { rules: unknown };
  assertEquals(rules, (parse(yaml) as { rules: unknown }).rules);
});
