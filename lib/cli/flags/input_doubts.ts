/**
 * Checks that only root and the user of a command can write its inputs. As root it uses no others, unless a flag allows it.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../config/types.ts";
import { ConfigError } from "../../errors.ts";
import { anyoneMayRead, writableByOthers } from "../../kernel/file_owner.ts";
import type { ClusterAccess } from "../../source/kube/kubeconfig.ts";
import type { EffectiveConfiguration } from "./configuration.ts";
import type { ParsedFlags } from "./parse_args.ts";

/** Inputs of a command. */
export interface Inputs {
  readonly config: KubeProxyConfiguration;
  /** Files that control kproxy: the configuration, manifests, the snapshot, those of clients that may read metrics. */
  readonly files: readonly string[];
}

/** Doubts about all inputs of a run. */
export async function runDoubts(
  flags: ParsedFlags,
  { config, file }: Pick<EffectiveConfiguration, "config" | "file">,
): Promise<readonly string[]> {
  const { manifests, snapshot, serving } = config.kproxy;
  const { tlsCertFile, tlsPrivateKeyFile, clientCAFile, bearerTokenFile } = serving;
  const named = [snapshot, tlsCertFile, tlsPrivateKeyFile, clientCAFile, bearerTokenFile];
  const files = [...file === null ? [] : [file.path], ...manifests, ...named.filter((path) => path !== "")];
  return await inputDoubts(flags, { config, files });
}

/**
 * Doubts about inputs, one sentence each: files that others may write or, where they are secret, read, and credentials that go
 * over plain HTTP.
 *
 * @throws {ConfigError} as root, unless `--allow-insecure-files` is given, if others may write one of the files
 */
export async function inputDoubts(flags: ParsedFlags, { config, files }: Inputs): Promise<readonly string[]> {
  const { kubeconfig } = config.clientConnection;
  const sentences = await writableFiles(flags, [...files, ...kubeconfig === "" ? [] : [kubeconfig]]);
  const master = flags.get("master") ?? "";
  if (kubeconfig === "") return sentences;
  const access = await accessIn(kubeconfig, master);
  if (access === null) return sentences;
  const { accessFiles, credentialsWarning } = await import("../../source/kube/access_warnings.ts");
  const named = accessFiles(access);
  sentences.push(
    ...await writableFiles(flags, named.map(({ path }) => path).filter((path) => path !== kubeconfig)),
  );
  for (const { path, isSecret } of named) if (isSecret) sentences.push(...await readable(path));
  const doubt = credentialsWarning(access);
  return doubt === null ? sentences : [...sentences, doubt];
}

/** Access in a kubeconfig; null if it cannot be read, which is reported where it is used. */
async function accessIn(kubeconfig: string, master: string): Promise<ClusterAccess | null> {
  const { isFile } = await Deno.stat(kubeconfig).catch(() => ({ isFile: false }));
  // A pipe can be read once.
  if (!isFile) return null;
  const { loadKubeconfig } = await import("../../source/kube/kubeconfig.ts");
  try {
    return await loadKubeconfig(kubeconfig, master);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return null;
  }
}

async function writableFiles(flags: ParsedFlags, paths: readonly string[]): Promise<string[]> {
  const problems: string[] = [];
  for (const path of new Set(paths)) {
    const problem = path === "-" ? null : await writableByOthers(path);
    if (problem === null) continue;
    const place = problem.startsWith(`${path} `) ? problem : `${path}: ${problem}`;
    problems.push(`${place}, so that others decide what kproxy does`);
  }
  if (problems.length === 0 || Deno.uid() !== 0 || flags.get("allow-insecure-files") === true) {
    return problems;
  }
  throw new ConfigError(problems.map((problem) => ({
    path: "",
    message: `${problem}; give it to root (chown root, chmod go-w), or allow it by --allow-insecure-files`,
  })));
}

async function readable(path: string): Promise<readonly string[]> {
  if (!await anyoneMayRead(path) || await isOfKubelet(path)) return [];
  return [`${path}: holds credentials, and every user of this machine can read it; chmod o-r`];
}

/** True for the token of a pod, which has mode 0644 where only the pod has it. */
async function isOfKubelet(path: string): Promise<boolean> {
  const link = await Deno.readLink(path).catch(() => "");
  return link.startsWith("..data/");
}
