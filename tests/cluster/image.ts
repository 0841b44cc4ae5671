/**
 * kproxy's image by the steps of `deploy/Dockerfile`, and kube-proxy's on the same base, without a container engine: a root file
 * system by mmdebstrap, what the file copies, what it runs, and all of it as an archive that containerd imports.
 *
 * @module
 */
import { bundle, writeBundle } from "../../tools/bundle.ts";
import { ROOT } from "../../tools/project_files.ts";
import { buildCommit } from "../../tools/release/commit.ts";
import { copiesIn, type Instruction, readInstructions } from "../deploy/dockerfile.ts";
import { pathExists } from "../support/path_exists.ts";
import { run, script } from "./machine.ts";

export const KPROXY_IMAGE = "registry.example/kproxy:0.1.0";
export const KUBE_PROXY_IMAGE = "registry.example/kube-proxy:control";
/** In the project; the build makes it, and the image has it. */
const BUNDLE = "dist/kproxy-js";

/** Makes the archives in `images` of the folder, those that are not there; `binaries` has kube-proxy. */
export async function makeImages(folder: string, binaries: string): Promise<void> {
  await Deno.mkdir(`${folder}/images`, { recursive: true });
  const instructions = await readInstructions();
  const base = await baseSystem(folder, instructions);
  const kproxy = `${folder}/images/kproxy.tar`;
  if (!await pathExists(kproxy)) {
    await withRoot(folder, base, async (root) => {
      await copyProject(root, instructions);
      // As a container of the build runs it.
      for (const command of runsOfKproxy(instructions)) await inRoot(root, command);
      await archive(root, { path: kproxy, name: KPROXY_IMAGE, entrypoint: ["kproxy"] });
    });
  }
  const control = `${folder}/images/kube-proxy.tar`;
  if (await pathExists(control) || !await pathExists(`${binaries}/kube-proxy`)) return;
  await withRoot(folder, base, async (root) => {
    await run(["install", "-m", "755", `${binaries}/kube-proxy`, `${root}/usr/local/bin/kube-proxy`]);
    await archive(root, { path: control, name: KUBE_PROXY_IMAGE, entrypoint: ["kube-proxy"] });
  });
}

/** The packages that the file installs, on Debian's minimal system, as an archive. */
async function baseSystem(folder: string, instructions: readonly Instruction[]): Promise<string> {
  const path = `${folder}/base.tar`;
  if (await pathExists(path)) return path;
  const install = instructions.find(({ name, words }) => name === "RUN" && words.includes("install"));
  const words = install?.words ?? [];
  const packages = words.slice(words.indexOf("install") + 1, words.lastIndexOf("&&"))
    .filter((word) => !word.startsWith("-"));
  const include = `--include=${packages.join(",")}`;
  await run(["mmdebstrap", "--variant=minbase", include, "bookworm", path], { timeoutMs: 1_200_000 });
  return path;
}

async function withRoot(folder: string, base: string, work: (root: string) => Promise<void>): Promise<void> {
  const root = `${folder}/root`;
  await script([
    `rm -rf '${root}'`,
    `mkdir -p '${root}'`,
    `tar -xf '${base}' -C '${root}' --exclude=./dev/*`,
  ]);
  await work(root);
  await script([`rm -rf '${root}'`]);
}

async function copyProject(root: string, instructions: readonly Instruction[]): Promise<void> {
  await run(["install", "-m", "755", Deno.execPath(), `${root}/usr/local/bin/deno`]);
  for (const { sources, target } of copiesIn(instructions)) {
    for (const source of sources) {
      if (source === BUNDLE) {
        await Deno.mkdir(`${root}${target}`, { recursive: true });
        await writeBundle(await bundle(await buildCommit()), `${root}${target}`);
      } else await run(["install", "-m", "755", `${ROOT}/${source}`, `${root}${target}`]);
    }
  }
}

/** The commands of its lines `RUN` that start kproxy. */
function runsOfKproxy(instructions: readonly Instruction[]): string[] {
  return instructions.filter(({ name, words }) => name === "RUN" && words[0] === "kproxy")
    .map(({ words }) => words.join(" "));
}

async function inRoot(root: string, command: string): Promise<void> {
  const lines = [
    "mount --make-rprivate /",
    `mount -t proc proc '${root}/proc'`,
    `mount --bind /dev '${root}/dev'`,
    `exec chroot '${root}' env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin sh -ec '${command}'`,
  ];
  await run(["unshare", "-m", "sh", "-ec", lines.join("\n")], { timeoutMs: 300_000 });
}

interface Image {
  readonly path: string;
  readonly name: string;
  readonly entrypoint: readonly string[];
}

/** Writes it as `docker save` does. */
async function archive(root: string, { path, name, entrypoint }: Image): Promise<void> {
  const parts = `${path}.parts`;
  await script([`rm -rf '${parts}'`, `mkdir '${parts}'`, `tar -cf '${parts}/layer.tar' -C '${root}' .`]);
  const [digest = ""] = (await run(["sha256sum", `${parts}/layer.tar`])).split(" ");
  const architecture = Deno.build.arch === "x86_64" ? "amd64" : "arm64";
  const env = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"];
  const rootfs = { type: "layers", diff_ids: [`sha256:${digest}`] };
  const config = {
    architecture,
    os: "linux",
    config: { Entrypoint: entrypoint, Env: env },
    rootfs,
    history: [],
  };
  await Deno.writeTextFile(`${parts}/config.json`, JSON.stringify(config));
  const manifest = [{ Config: "config.json", RepoTags: [name], Layers: ["layer.tar"] }];
  await Deno.writeTextFile(`${parts}/manifest.json`, JSON.stringify(manifest));
  await script([`tar -cf '${path}' -C '${parts}' .`, `rm -rf '${parts}'`]);
}
