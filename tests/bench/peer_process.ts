/**
 * Another proxy beside kproxy: a kube-proxy, or what is started like one.
 *
 * @module
 */
import { systemExec } from "../../lib/kernel/exec.ts";
import { kubeconfigText } from "../support/kubeconfig_text.ts";
import type { Netns } from "../support/netns.ts";
import { NODE_NAME } from "./fake_objects.ts";
import type { BenchMode } from "./mode.ts";
import { ProxyProcess } from "./proxy_process.ts";

const ASK_TIMEOUT_MS = 60_000;

/** A program that can be measured beside kproxy. */
export interface Peer {
  /** An absolute path. */
  readonly path: string;
  /** What it says of itself, e.g. `Kubernetes v1.36.2`. */
  readonly version: string;
}

/** How a peer is started. */
export interface PeerOptions {
  /** `http://127.0.0.1:18080`. */
  readonly master: string;
  readonly mode: BenchMode["proxyMode"];
  /** Put in front of the whole command, see {@linkcode ProxyProcess}. */
  readonly starter: readonly string[];
  /** Where its files go; must exist. */
  readonly folder: string;
}

/**
 * Asks a program for its version.
 *
 * @throws {RangeError} if it is not there, cannot be run, or does not answer
 */
export async function findPeer(path: string): Promise<Peer> {
  const failed = (why: string): RangeError => new RangeError(`--peer ${path}: ${why}`);
  let realPath: string;
  try {
    realPath = await Deno.realPath(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) throw failed("there is no such file");
    throw error;
  }
  try {
    const { code, stdout, stderr } = await systemExec.run([realPath, "--version"], {
      timeoutMs: ASK_TIMEOUT_MS,
    });
    const version = stdout.trim().split("\n").at(-1) ?? "";
    if (code !== 0 || version === "") {
      throw failed(`"--version" ended with ${code} and no version: ${stderr.trim()}`);
    }
    return { path: realPath, version };
  } catch (error) {
    if (error instanceof RangeError) throw error;
    throw failed(`cannot be run: ${error instanceof Error ? error.message : String(error)}`);
  }
}

/**
 * What a peer is told: the same as kproxy, in kube-proxy's words. What a node has once and not in each network namespace, the size of the
 * table of connections, is left alone.
 */
function peerConfiguration(options: PeerOptions, kubeconfig: string): string {
  return JSON.stringify({
    apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
    kind: "KubeProxyConfiguration",
    mode: options.mode,
    hostnameOverride: NODE_NAME,
    clientConnection: { kubeconfig },
    conntrack: { maxPerCore: 0, min: 0 },
  });
}

/** Starts a peer in a namespace. */
export async function startPeer({ path }: Peer, netns: Netns, options: PeerOptions): Promise<ProxyProcess> {
  const { folder, master, starter } = options;
  const kubeconfig = `${folder}/peer.kubeconfig`;
  const configuration = `${folder}/peer.config`;
  await Deno.writeTextFile(kubeconfig, kubeconfigText({ cluster: { server: master }, user: {} }));
  await Deno.writeTextFile(configuration, peerConfiguration(options, kubeconfig));
  return new ProxyProcess("The peer", netns, [path, `--config=${configuration}`, "--v=2"], starter);
}
