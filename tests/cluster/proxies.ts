/**
 * The service proxy of a cluster: kproxy by the manifests of `deploy/`, or kube-proxy as kubeadm runs it, for control.
 *
 * @module
 */
import type { ProxyMode } from "../../lib/config/types.ts";
import { ROOT } from "../../tools/project_files.ts";
import type { Cluster } from "./cluster.ts";
import { KPROXY_IMAGE, KUBE_PROXY_IMAGE } from "./image.ts";
import { script } from "./machine.ts";
import { apiServerUrl, clusterCidr, type ClusterPlan } from "./plan.ts";

export type ProxyName = "kproxy" | "kube-proxy";

const NAMESPACE = "kube-system";
const ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount";
/** Modes with an overlay; others run by the cluster's own configuration. */
const OVERLAYS: readonly ProxyMode[] = ["iptables", "ipvs", "nftables"];

/** What kubeadm makes for kube-proxy: its account, its rights and nothing more, its configuration. */
export async function makeKubeProxyObjects(cluster: Cluster, mode: ProxyMode): Promise<void> {
  const named = { name: "kube-proxy", namespace: NAMESPACE };
  await cluster.apply(
    { apiVersion: "v1", kind: "ServiceAccount", metadata: named },
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRoleBinding",
      metadata: { name: "kubeadm:node-proxier" },
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "system:node-proxier" },
      subjects: [{ kind: "ServiceAccount", ...named }],
    },
    {
      apiVersion: "v1",
      kind: "ConfigMap",
      metadata: { ...named, labels: { app: "kube-proxy" } },
      data: { "config.conf": configOf(cluster.plan, mode), "kubeconfig.conf": kubeconfigOf(cluster.plan) },
    },
  );
}

function configOf(plan: ClusterPlan, mode: ProxyMode): string {
  return `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: ${mode}
clientConnection: { kubeconfig: /var/lib/kube-proxy/kubeconfig.conf }
clusterCIDR: ${clusterCidr(plan)}
# Upstream's tests read them through the API server.
metricsBindAddress: "${plan.families[0] === "IPv6" ? "[::]" : "0.0.0.0"}:10249"
# These are the whole machine's, which a node in a namespace may not set.
conntrack: { maxPerCore: 0, min: 0 }
`;
}

function kubeconfigOf(plan: ClusterPlan): string {
  const cluster = { server: apiServerUrl(plan), "certificate-authority": `${ACCOUNT}/ca.crt` };
  return JSON.stringify({
    apiVersion: "v1",
    kind: "Config",
    clusters: [{ name: "default", cluster }],
    contexts: [{ name: "default", context: { cluster: "default", namespace: "default", user: "default" } }],
    "current-context": "default",
    users: [{ name: "default", user: { tokenFile: `${ACCOUNT}/token` } }],
  });
}

/** Where the kustomization is that runs kproxy in the mode on these nodes; made as docs/deploy.md says. */
export async function kustomization(
  cluster: Cluster,
  mode: ProxyMode,
  nodes: "every" | "labelled" = "every",
): Promise<string> {
  const folder = `${cluster.plan.folder}/kustomize`;
  await script([`rm -rf '${folder}'`, `mkdir '${folder}'`, `cp -r '${ROOT}/deploy' '${folder}'`]);
  const base = OVERLAYS.includes(mode) ? `overlays/${mode}` : "base";
  if (base !== "base") {
    // The cluster's own configuration with the mode in it.
    const name = `jsonpath={.data.config\\.conf}`;
    const text = await cluster.kubectl(["-n", NAMESPACE, "get", "configmap", "kube-proxy", "-o", name]);
    const path = `${folder}/deploy/kubernetes/${base}/config.conf`;
    await Deno.writeTextFile(path, text.replace(/^mode: .*/m, `mode: ${mode}`));
  }
  const [newName, newTag] = KPROXY_IMAGE.split(/:(?=[^/]*$)/);
  const text = {
    apiVersion: "kustomize.config.k8s.io/v1beta1",
    kind: "Kustomization",
    resources: [`deploy/kubernetes/${base}`],
    components: nodes === "every" ? ["deploy/kubernetes/components/every-node"] : [],
    images: [{ name: "kproxy", newName, newTag }],
  };
  await Deno.writeTextFile(`${folder}/kustomization.yaml`, JSON.stringify(text));
  return folder;
}

/** Runs this proxy on every node, in the place of what ran before; resolves when it is ready there. */
export async function runProxy(cluster: Cluster, proxy: ProxyName, mode: ProxyMode): Promise<void> {
  await endProxies(cluster);
  await makeKubeProxyObjects(cluster, mode);
  if (proxy === "kproxy") await cluster.kubectl(["apply", "-k", await kustomization(cluster, mode)]);
  else await cluster.apply(kubeProxyDaemonSet());
  await proxyReady(cluster, proxy);
}

/** Resolves when the DaemonSet is ready on every node. */
export async function proxyReady(cluster: Cluster, proxy: ProxyName): Promise<void> {
  await cluster.kubectl(["-n", NAMESPACE, "rollout", "status", `daemonset/${proxy}`, "--timeout=240s"]);
}

/** Ends every proxy, and takes its rules away. */
export async function endProxies(cluster: Cluster): Promise<void> {
  const ending = [
    "delete",
    "daemonset",
    "kproxy",
    "kube-proxy",
    "--ignore-not-found",
    "--cascade=foreground",
  ];
  await cluster.kubectl(["-n", NAMESPACE, ...ending, "--timeout=120s"]);
  const roles = ["clusterrole,clusterrolebinding", "kproxy", "--ignore-not-found"];
  await cluster.kubectl(["delete", ...roles]);
  const tables = ["ip kube-proxy", "ip6 kube-proxy", "ip kproxy", "ip6 kproxy", "inet kproxy"];
  for (const node of await cluster.nodes()) {
    const lines = ["kube-proxy --cleanup", ...tables.map((table) => `nft delete table ${table}`)];
    await node.run(["sh", "-c", `{ ${lines.join("; ")}; } >/dev/null 2>&1; true`]);
  }
}

/** kube-proxy's on all nodes, as kubeadm makes it. */
export function kubeProxyDaemonSet(): unknown {
  const labels = { "k8s-app": "kube-proxy" };
  const mounts = [
    ["config", "/var/lib/kube-proxy", true],
    ["xtables-lock", "/run/xtables.lock", false],
    ["lib-modules", "/lib/modules", true],
  ] as const;
  return {
    apiVersion: "apps/v1",
    kind: "DaemonSet",
    metadata: { name: "kube-proxy", namespace: NAMESPACE, labels },
    spec: {
      selector: { matchLabels: labels },
      template: {
        metadata: { labels },
        spec: {
          hostNetwork: true,
          priorityClassName: "system-node-critical",
          serviceAccountName: "kube-proxy",
          tolerations: [{ operator: "Exists" }],
          containers: [{
            name: "kube-proxy",
            image: KUBE_PROXY_IMAGE,
            imagePullPolicy: "IfNotPresent",
            command: [
              "kube-proxy",
              "--config=/var/lib/kube-proxy/config.conf",
              "--hostname-override=$(NODE_NAME)",
            ],
            env: [{ name: "NODE_NAME", valueFrom: { fieldRef: { fieldPath: "spec.nodeName" } } }],
            securityContext: { privileged: true },
            // kubeadm gives it none; so readiness means here what it does for kproxy.
            readinessProbe: { httpGet: { path: "/healthz", port: 10256 }, periodSeconds: 2 },
            volumeMounts: mounts.map(([name, mountPath, readOnly]) => ({ name, mountPath, readOnly })),
          }],
          volumes: [
            { name: "config", configMap: { name: "kube-proxy" } },
            { name: "xtables-lock", hostPath: { path: "/run/xtables.lock", type: "FileOrCreate" } },
            { name: "lib-modules", hostPath: { path: "/lib/modules" } },
          ],
        },
      },
    },
  };
}
