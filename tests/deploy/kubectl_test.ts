/**
 * The lines with kubectl in the documentation: kubectl takes each of them, and those that change an object change it as intended. There is
 * no cluster; what a line asks of one is not tried.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import type { V1DaemonSet, V1Node } from "@kubernetes/client-node";
import { parse } from "@std/yaml";
import { runOk, systemExec } from "../../lib/kernel/exec.ts";
import { kubectlCommands } from "../../tools/doc_commands.ts";
import { ROOT } from "../../tools/project_files.ts";
import { e2eTest, program } from "../support/skip.ts";
import { KUBE_PROXY } from "./kustomization.ts";
import { tempFolder } from "../support/temp_files.ts";

/** No listener is there: a program that gets as far as this has understood the line. */
const NOBODY = "--server=http://127.0.0.1:9";

async function documented(): Promise<string[][]> {
  const commands: string[][] = [];
  for await (const { name } of Deno.readDir(`${ROOT}/docs`)) {
    if (name.endsWith(".md")) {
      commands.push(...kubectlCommands(await Deno.readTextFile(`${ROOT}/docs/${name}`)));
    }
  }
  return [...new Map(commands.map((words) => [words.join(" "), words])).values()];
}

/** A folder as the reader of docs/deploy.md has it: `deploy/`, and a kustomization beside it. */
async function inFolder(work: (folder: string) => Promise<void>): Promise<void> {
  await using temporary = await tempFolder();
  const folder = temporary.path;
  await runOk(systemExec, ["cp", "-r", `${ROOT}/deploy`, folder]);
  await Deno.writeTextFile(`${folder}/kustomization.yaml`, "resources: [deploy/kubernetes/base]\n");
  await work(folder);
}

async function kubectl(
  folder: string,
  args: readonly string[],
): Promise<{ code: number; stdout: string; stderr: string }> {
  const { code, stdout, stderr } = await new Deno.Command("kubectl", {
    args: [...args],
    cwd: folder,
    // No cluster of the user who runs the tests.
    env: { HOME: folder, KUBECONFIG: `${folder}/none` },
    stdin: "null",
  }).output();
  const decoder = new TextDecoder();
  return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
}

function atServer(words: readonly string[]): string[] {
  const [first = "", ...rest] = words;
  return [NOBODY, first, ...rest];
}

e2eTest("kubectl takes every line that the documentation has for it", [program("kubectl")], async () => {
  const lines = await documented();
  assert(lines.length >= 15, `${lines.length} lines`);
  await inFolder(async (folder) => {
    const refused = await Promise.all(lines.map(async (words) => {
      const { stderr } = await kubectl(folder, atServer(words));
      return /connection refused|was refused/.test(stderr) ? [] : [`kubectl ${words.join(" ")}: ${stderr}`];
    }));
    assertEquals(refused.flat(), []);
    const wrong = await kubectl(folder, atServer(["label", "node", "worker-1", "--labels=x"]));
    assert(!/connection refused|was refused/.test(wrong.stderr), "a wrong line would have been noticed");
  });
});

e2eTest(
  "the patch and the labels of the documentation do what they are for",
  [program("kubectl")],
  async () => {
    const lines = await documented();
    const find = (start: string): string[] => {
      const words = lines.find((one) => one.join(" ").includes(start));
      assert(words !== undefined, start);
      return words;
    };
    await inFolder(async (folder) => {
      const local = async (
        words: readonly string[],
        kind: string,
        name: string,
        text: string,
      ): Promise<unknown> => {
        await Deno.writeTextFile(`${folder}/object.yaml`, text);
        const rest = words.filter((word) => word !== kind && word !== name);
        const { code, stdout, stderr } = await kubectl(folder, [
          ...rest,
          "--local",
          "-f",
          "object.yaml",
          "-o",
          "yaml",
        ]);
        assertEquals(code, 0, stderr);
        return parse(stdout);
      };
      const set = await local(
        find("patch daemonset kube-proxy --patch-file"),
        "daemonset",
        "kube-proxy",
        KUBE_PROXY,
      ) as V1DaemonSet;
      const terms = set.spec?.template.spec?.affinity?.nodeAffinity
        ?.requiredDuringSchedulingIgnoredDuringExecution;
      assertEquals(terms?.nodeSelectorTerms, [{
        matchExpressions: [{ key: "kproxy/node", operator: "NotIn", values: ["true"] }],
      }]);
      assertEquals(set.spec?.template.spec?.nodeSelector, { "kubernetes.io/os": "linux" });
      const parked = await local(
        find("patch daemonset kube-proxy --patch="),
        "daemonset",
        "kube-proxy",
        KUBE_PROXY,
      ) as V1DaemonSet;
      assertEquals(parked.spec?.template.spec?.nodeSelector, {
        "kubernetes.io/os": "linux",
        "kproxy/none": "true",
      });
      const bare = "apiVersion: v1\nkind: Node\nmetadata: { name: worker-1 }\n";
      const there = await local(find("kproxy/node=true"), "node", "worker-1", bare) as V1Node;
      assertEquals(there.metadata?.labels, { "kproxy/node": "true" });
      const labelled = bare.replace("worker-1", "worker-1, labels: { kproxy/node: 'true' }");
      const back = await local(find("kproxy/node-"), "node", "worker-1", labelled) as V1Node;
      assertEquals(back.metadata?.labels ?? {}, {});
    });
  },
);
