/**
 * The configuration that a container of the Pods runs with, read as kproxy reads it.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import type { V1Container } from "@kubernetes/client-node";
import { configurationOf } from "../../lib/cli/flags/configuration.ts";
import { parseArgs } from "../../lib/cli/flags/parse_args.ts";
import type { KubeProxyConfiguration } from "../../lib/config/types.ts";
import { type Manifest, nameOf, podOf } from "./kustomization.ts";

/** The configuration that a container runs with, where the ConfigMap kube-proxy holds this. */
export async function configOf(
  container: V1Container,
  objects: readonly Manifest[],
  ofCluster: string,
): Promise<{ readonly config: KubeProxyConfiguration; readonly initOnly: boolean; readonly text: string }> {
  const args = (container.args ?? []).map((arg) => arg.replace("$(NODE_NAME)", "node-a"));
  const flags = parseArgs(args);
  assertEquals([flags.command, flags.warnings], ["run", []]);
  const mount = container.volumeMounts?.find(({ name }) => name === "config");
  assertEquals(flags.get("config"), `${mount?.mountPath}/config.conf`);
  const volume = podOf(objects).volumes?.find(({ name }) => name === "config");
  const source = volume?.projected?.sources?.find(({ configMap }) =>
    configMap?.items?.some(({ path }) => path === "config.conf")
  );
  const name = source?.configMap?.name;
  const own = objects.find((object) => nameOf(object) === `ConfigMap kube-system/${name}`);
  const text = name === "kube-proxy"
    ? ofCluster
    : (own as unknown as { data: Record<string, string> }).data["config.conf"];
  assert(text !== undefined);
  const file = { path: "config.conf", bytes: new TextEncoder().encode(text) };
  const { config, warnings } = await configurationOf(flags, file);
  assertEquals(warnings, []);
  return { config, initOnly: flags.get("init-only") ?? false, text };
}
