/**
 * Files that a kubelet makes for the Pod of `deploy/kubernetes`, and its probes, on the lab's node: configuration, a kubeconfig
 * as kubeadm writes it, the service account's token.
 *
 * @module
 */
import { assertStringIncludes } from "@std/assert";
import type { V1PodSpec } from "@kubernetes/client-node";
import type { Manifest } from "../deploy/kustomization.ts";
import { type Kapi, KAPI_TOKEN } from "./kapi.ts";
import type { Netns } from "./netns.ts";
import { NODE_ADDRESSES } from "./node_lab.ts";

/** Configuration for tests: a log that they can read, and all counters. */
const TEST_SETTINGS = `
logging: { format: json, verbosity: 2 }
kproxy: { trafficCounters: true }
iptables: { minSyncPeriod: 0s }
nftables: { minSyncPeriod: 0s }
`;

/** Kubeconfig like that of kubeadm's ConfigMap. */
function kubeconfigOf(kapi: Kapi): string {
  const secrets = "/var/run/secrets/kubernetes.io/serviceaccount";
  return `apiVersion: v1
kind: Config
clusters:
- cluster:
    certificate-authority: ${secrets}/ca.crt
    server: ${kapi.url}
  name: default
contexts:
- context:
    cluster: default
    namespace: default
    user: default
  name: default
current-context: default
users:
- name: default
  user:
    tokenFile: ${secrets}/token
`;
}

/** Runs `work` with the kubelet's files for the Pod, in a folder (`PodHost.folder`). */
export async function withPodFolder<T>(
  config: string,
  kapi: Kapi,
  work: (folder: string) => Promise<T>,
): Promise<T> {
  const folder = await Deno.makeTempDir({ prefix: `kproxy-pod-${Deno.pid}-` });
  try {
    for (const name of ["config", "secrets"]) await Deno.mkdir(`${folder}/${name}`);
    await Deno.writeTextFile(`${folder}/lock`, "");
    await Deno.writeTextFile(`${folder}/config/config.conf`, config + TEST_SETTINGS);
    await Deno.writeTextFile(`${folder}/config/kubeconfig.conf`, kubeconfigOf(kapi));
    await Deno.writeTextFile(`${folder}/secrets/token`, KAPI_TOKEN);
    await Deno.copyFile(kapi.ca, `${folder}/secrets/ca.crt`);
    return await work(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** Setting that an overlay leaves to its user. */
const NO_CLUSTER_CIDR = 'clusterCIDR: ""';

/** Configuration of an overlay, for the lab's network. */
export function configIn(objects: readonly Manifest[], mode: string): string {
  const map = objects.find(({ kind, metadata }) =>
    kind === "ConfigMap" && metadata.name === `kproxy-${mode}`
  );
  const { "config.conf": text = "" } = (map as unknown as { data: Record<string, string> }).data;
  assertStringIncludes(text, NO_CLUSTER_CIDR);
  return text.replace(NO_CLUSTER_CIDR, "clusterCIDR: 10.244.0.0/16,fd00:10:244::/56");
}

/** Body of a URL's answer in a namespace. @throws {ExecError} on any other status than 2xx or 3xx */
export async function curl(netns: Netns, url: string): Promise<string> {
  return await netns.run(["curl", "-sf", "--max-time", "30", "--noproxy", "*", url]);
}

/** Runs every probe of the Pod as its kubelet does: at the node's address. */
export async function assertProbes(pod: V1PodSpec, netns: Netns): Promise<void> {
  const [main] = pod.containers;
  const probes = [main?.startupProbe, main?.livenessProbe, main?.readinessProbe];
  for (const probe of probes) {
    const { path, port } = probe?.httpGet ?? {};
    const number = main?.ports?.find(({ name }) => name === port)?.containerPort;
    // Fails on any status but 200.
    await curl(netns, `http://${NODE_ADDRESSES.eth0[0]}:${number}${path}`);
  }
}
