/**
 * A rollout by the lines of docs/deploy.md and docs/migrate.md, given to kapi (`KAPI`) from the first one to the last, by
 * kubectl and by Helm. There are no controllers: what becomes of Pods is not seen.
 *
 * @module
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import type { V1DaemonSet, V1Node } from "@kubernetes/client-node";
import { parse } from "@std/yaml";
import { runOk, systemExec } from "../../lib/kernel/exec.ts";
import { helmCommands, kubectlCommands } from "../../tools/doc_commands.ts";
import { ROOT } from "../../tools/project_files.ts";
import { KUBE_PROXY, podOf } from "../deploy/kustomization.ts";
import { type Values, withValues } from "../support/helm_chart.ts";
import { buildHelm, KAPI, Kapi } from "../support/kapi.ts";
import { e2eTest, program } from "../support/skip.ts";
import { tempFolder } from "../support/temp_files.ts";

const PAGES = (await Promise.all(
  ["deploy", "migrate"].map((page) => Deno.readTextFile(`${ROOT}/docs/${page}.md`)),
)).join("\n");
const KUBEADM = `
apiVersion: v1
kind: Namespace
metadata: { name: kube-system }
---
apiVersion: v1
kind: Node
metadata: { name: worker-1 }
---
apiVersion: v1
kind: ConfigMap
metadata: { name: kube-proxy, namespace: kube-system }
data: { config.conf: "", kubeconfig.conf: "" }
---
${KUBE_PROXY}`;
const LINUX = { "kubernetes.io/os": "linux" };
const LABELLED = { ...LINUX, "kproxy/node": "true" };

/** A cluster as kubeadm leaves it, and an operator with the project's folder, a kustomization beside it and both programs. */
class Cluster {
  readonly folder: string;
  readonly #env: Readonly<Record<string, string>>;

  private constructor(folder: string, kubeconfig: string) {
    this.folder = folder;
    this.#env = { HOME: folder, KUBECONFIG: kubeconfig };
  }

  static async with(work: (cluster: Cluster) => Promise<void>): Promise<void> {
    await using kapi = await Kapi.start();
    await using temporary = await tempFolder();
    const folder = temporary.path;
    const cluster = new Cluster(folder, kapi.kubeconfig);
    await runOk(systemExec, ["cp", "-r", `${ROOT}/deploy`, folder]);
    await Deno.writeTextFile(`${folder}/kubeadm.yaml`, KUBEADM);
    await cluster.run("kubectl", ["apply", "-f", "kubeadm.yaml"]);
    await work(cluster);
  }

  async run(program: "kubectl" | "helm", args: readonly string[]): Promise<string> {
    const path = program === "helm" ? await buildHelm() : program;
    const { success, stdout, stderr } = await new Deno.Command(path, {
      args: [...args],
      cwd: this.folder,
      env: this.#env,
      stdin: "null",
    }).output();
    assert(success, `${program} ${args.join(" ")}: ${new TextDecoder().decode(stderr)}`);
    return new TextDecoder().decode(stdout);
  }

  /** Runs the shortest line of the documentation that has all these words. */
  async documented(program: "kubectl" | "helm", ...words: readonly string[]): Promise<void> {
    const lines = program === "kubectl" ? kubectlCommands(PAGES) : helmCommands(PAGES);
    const [line] = lines.filter((args) => words.every((word) => args.join(" ").includes(word)))
      .toSorted((a, b) => a.join(" ").length - b.join(" ").length);
    assert(line !== undefined, `no line with ${words.join(", ")}`);
    await this.run(program, line);
  }

  /** What Helm prints when the chart is installed with these values. */
  async notes(values: Values): Promise<string> {
    const text = await withValues(values, (file) =>
      this.run("helm", [
        ...["install", "kproxy", "deploy/helm/kproxy", "--namespace=kube-system", "--dry-run=client"],
        `--values=${file}`,
      ]));
    return text.slice(text.indexOf("\nNOTES:\n"));
  }

  async kustomization(change: (text: string) => string): Promise<void> {
    const [, text = ""] = /```yaml\n(# kustomization.yaml\n[^]*?)```/.exec(PAGES) ?? [];
    await Deno.writeTextFile(`${this.folder}/kustomization.yaml`, change(text));
  }

  async names(kind: string): Promise<string[]> {
    const text = await this.run("kubectl", ["-n", "kube-system", "get", kind, "-o", "name"]);
    return text.split("\n").filter((line) => line !== "").map((line) => line.replace(/^.*\//, ""));
  }

  async #get<T>(kind: string, name: string): Promise<T> {
    return JSON.parse(await this.run("kubectl", ["-n", "kube-system", "get", kind, name, "-o", "json"])) as T;
  }

  async labels(): Promise<unknown> {
    return (await this.#get<V1Node>("node", "worker-1")).metadata?.labels ?? {};
  }

  /** What kproxy's Pods run with: the image, the nodes, the ConfigMap. */
  async kproxy(): Promise<readonly unknown[]> {
    const set = await this.#get<V1DaemonSet>("daemonset", "kproxy");
    const pod = podOf([{ ...set, apiVersion: "apps/v1", kind: "DaemonSet" } as never]);
    return [
      pod.containers[0]?.image?.replace("registry.example/kproxy:", ""),
      pod.nodeSelector,
      pod.volumes?.[0]?.projected?.sources?.[0]?.configMap?.name,
    ];
  }

  /** The nodes of kube-proxy: those without the label, and with these. */
  async kubeProxy(): Promise<readonly unknown[]> {
    const set = await this.#get<V1DaemonSet>("daemonset", "kube-proxy");
    const terms = set.spec?.template.spec?.affinity?.nodeAffinity
      ?.requiredDuringSchedulingIgnoredDuringExecution?.nodeSelectorTerms;
    return [terms?.[0]?.matchExpressions?.[0]?.operator, set.spec?.template.spec?.nodeSelector];
  }
}

e2eTest(
  "a rollout by kubectl: kube-proxy keeps off, nodes go there and back, another mode, every node, the end",
  [...KAPI, program("kubectl")],
  async () => {
    await Cluster.with(async (cluster) => {
      await cluster.documented("kubectl", "patch daemonset kube-proxy", "--patch-file");
      assertEquals(await cluster.kubeProxy(), ["NotIn", LINUX]);
      await cluster.kustomization((text) => text);
      await cluster.documented("kubectl", "apply -k .");
      assertEquals(await cluster.kproxy(), ["0.1.0", LABELLED, "kube-proxy"]);
      await cluster.documented("kubectl", "label node worker-1 kproxy/node=true");
      assertEquals(await cluster.labels(), { "kproxy/node": "true" });
      await cluster.documented("kubectl", "label node worker-1 kproxy/node-");
      assertEquals(await cluster.labels(), {});
      await cluster.kustomization((text) => text.replace("kubernetes/base", "kubernetes/overlays/nftables"));
      await cluster.documented("kubectl", "apply -k .");
      assertEquals(await cluster.kproxy(), ["0.1.0", LABELLED, "kproxy-nftables"]);
      await cluster.documented("kubectl", "patch daemonset kube-proxy", "kproxy/none");
      assertEquals(await cluster.kubeProxy(), ["NotIn", { ...LINUX, "kproxy/none": "true" }]);
      await cluster.kustomization((text) => `${text}components: [deploy/kubernetes/components/every-node]\n`);
      await cluster.documented("kubectl", "apply -k .");
      assertEquals(await cluster.kproxy(), ["0.1.0", LINUX, "kube-proxy"]);
      await cluster.documented("kubectl", "delete -k .");
      assertEquals(await cluster.names("daemonset"), ["kube-proxy"]);
      assert((await cluster.names("configmap")).includes("kube-proxy"));
    });
  },
);

async function assertNotes(cluster: Cluster): Promise<void> {
  const image = { repository: "registry.example/kproxy" };
  const patchIn = (notes: string) => parse(/--patch='(.*)'/.exec(notes)?.[1] ?? "") as V1DaemonSet;
  const notes = await cluster.notes({ image, mode: "ipvs" });
  assertEquals(
    patchIn(notes),
    parse(await Deno.readTextFile(`${ROOT}/deploy/kubernetes/kube-proxy-elsewhere.yaml`)),
  );
  assertMatch(notes, /kubectl label node NODE kproxy\/node=true\n.*kubectl label node NODE kproxy\/node-\n/);
  assertMatch(notes, /mode ipvs, image registry.example\/kproxy:0.1.0/);
  // One that has only one of two labels is kube-proxy's.
  const { spec } = patchIn(await cluster.notes({ image, nodeSelector: { zone: "a" } }));
  const terms = spec?.template.spec?.affinity?.nodeAffinity?.requiredDuringSchedulingIgnoredDuringExecution;
  assertEquals(terms?.nodeSelectorTerms.length, 2);
  assertMatch(await cluster.notes({ image, everyNode: true }), /on every node/);
}

e2eTest(
  "a rollout by Helm: notes, from kustomize's objects, another mode, a new version and back, every node, the end",
  [...KAPI, program("kubectl")],
  async () => {
    await Cluster.with(async (cluster) => {
      await assertNotes(cluster);
      await cluster.kustomization((text) => text);
      await cluster.documented("kubectl", "apply -k .");
      await cluster.documented("helm", "upgrade --install", "--take-ownership");
      assertEquals(await cluster.kproxy(), ["0.1.0", LABELLED, "kube-proxy"]);
      await cluster.documented("helm", "uninstall");
      await cluster.documented("helm", "upgrade --install kproxy");
      await cluster.documented("helm", "upgrade kproxy", "--set=mode=nftables");
      assertEquals(await cluster.kproxy(), ["0.1.0", LABELLED, "kproxy-nftables"]);
      const chart = `${cluster.folder}/deploy/helm/kproxy/Chart.yaml`;
      const text = await Deno.readTextFile(chart);
      await Deno.writeTextFile(chart, text.replaceAll(/ersion: 0\.1\.0/g, "ersion: 0.2.0"));
      await cluster.documented("helm", "upgrade kproxy", "--reset-then-reuse-values");
      assertEquals(await cluster.kproxy(), ["0.2.0", LABELLED, "kproxy-nftables"]);
      await cluster.documented("helm", "rollback");
      assertEquals(await cluster.kproxy(), ["0.1.0", LABELLED, "kproxy-nftables"]);
      await cluster.documented("helm", "upgrade kproxy", "everyNode=true");
      assertEquals((await cluster.kproxy())[1], LINUX);
      await cluster.documented("helm", "uninstall");
      assertEquals(await cluster.names("daemonset"), ["kube-proxy"]);
      assert((await cluster.names("configmap")).includes("kube-proxy"));
    });
  },
);
