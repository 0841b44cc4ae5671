/**
 * What `deploy/Dockerfile` says: it copies kproxy and nothing else, it installs what kproxy starts, and the program in it runs with
 * kproxy's permissions. `tests/e2e/image_test.ts` runs what it builds.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { runtimeFlags } from "../../tools/permissions.ts";
import { ROOT } from "../../tools/project_files.ts";
import { NODE_PACKAGES } from "../../tools/setup.ts";
import { basesIn, copiesIn, readInstructions } from "./dockerfile.ts";
import { baseManifests, containersOf, podOf } from "./kustomization.ts";
import { tempFolder } from "../support/temp_files.ts";

/** Where the runtime keeps what it has downloaded and translated. */
async function denoDir(): Promise<string> {
  const { stdout } = await new Deno.Command(Deno.execPath(), { args: ["info", "--json"] }).output();
  return (JSON.parse(new TextDecoder().decode(stdout)) as { readonly denoDir: string }).denoDir;
}

async function textOf(path: string): Promise<string> {
  return await Deno.readTextFile(`${ROOT}/${path}`);
}

Deno.test("everything that an image is made of is sent to its build, and nothing else of the project", async () => {
  const sources = copiesIn(await readInstructions()).flatMap((copy) => copy.sources);
  // What `deno task bundle` makes is all of kproxy: no package of tests or tools comes with it.
  assertEquals(sources.toSorted(), ["deploy/kproxy", "dist/kproxy-js"]);
  const lines = (await textOf("deploy/Dockerfile.dockerignore")).split("\n");
  const [all, ...named] = lines.filter((line) => line !== "" && !line.startsWith("#"));
  assertEquals(all, "*", "everything is left out but what is named");
  assertEquals(named.toSorted(), sources.map((source) => `!${source}`).toSorted());
  const tool = await textOf("tools/bundle.ts");
  assert(tool.includes("const folder = `${ROOT}/dist/kproxy-js`;"), "where the bundle is built");
});

Deno.test("the image keeps what Deno finds out at the first start, and no container of the Pod can write there", async () => {
  const steps = await readInstructions();
  // Twice: see tests/e2e/read_only_cache_test.ts.
  const version = ["kproxy", "version"];
  assertEquals(steps.findLast(({ name }) => name === "RUN")?.words, [...version, "&&", ...version]);
  const pod = podOf(await baseManifests());
  const home = copiesIn(steps).find(({ sources }) => sources.includes("dist/kproxy-js"))?.target ?? "";
  assertEquals(home, "/opt/kproxy");
  // Code that the container kproxy left would be run by the first one, with all rights, when the Pod starts anew.
  for (const { name, securityContext, volumeMounts = [], env = [] } of containersOf(pod)) {
    assertEquals(securityContext?.readOnlyRootFilesystem, true, name);
    assertEquals(volumeMounts.filter(({ mountPath }) => mountPath.startsWith(home)), [], name);
    assertEquals(env.filter((one) => /^(DENO|KPROXY)/.test(one.name)), [], name);
  }
});

Deno.test("the image has the packages that a node needs, and the release of Deno that the project is tested with", async () => {
  const steps = await readInstructions();
  const install = steps.find(({ name, words }) => name === "RUN" && words.includes("install"))?.words ?? [];
  const from = install.indexOf("--no-install-recommends") + 1;
  const packages = install.slice(from, install.indexOf("&&", from));
  assertEquals(packages, NODE_PACKAGES.map(({ name }) => name).toSorted());
  const [, version] = /npx -y deno@([\d.]+) task test/.exec(await textOf("README.md")) ?? [];
  const bases = basesIn(steps).map((base) => base.replace(/\d{8}/, "DATE"));
  // With the registry's name, which others than Docker ask for.
  assertEquals(bases.map((base) => base.replace(/@.*/, "")), [
    `docker.io/denoland/deno:bin-${version}`,
    "docker.io/library/debian:bookworm-DATE-slim",
  ]);
});

Deno.test("the image stands on what digests name: a tag that was moved in the registry changes nothing", async () => {
  const bases = basesIn(await readInstructions());
  assertEquals(bases.filter((base) => !/@sha256:[0-9a-f]{64}$/.test(base)), []);
  // Every line that fetches an image, or a file of another place, is one of these.
  const steps = await readInstructions();
  const fetched = steps.filter(({ name, words }) =>
    name === "ADD" || words.some((word) => word.startsWith("--from="))
  );
  assertEquals(fetched.map(({ words }) => words[0]), ["--from=deno"]);
});

Deno.test("the image's program is the launcher, with the task's permissions and no network to load modules from", async () => {
  const steps = await readInstructions();
  const launcher = copiesIn(steps).find(({ sources }) => sources.includes("deploy/kproxy"));
  assertEquals(launcher?.target, "/usr/local/bin/kproxy");
  const entry = steps.find(({ name }) => name === "ENTRYPOINT")?.words.join(" ");
  assertEquals(entry, '["kproxy"]');
  // A program compiled on the whole of deno would ignore the permissions that it carries.
  assert(!steps.some(({ words }) => words.includes("compile")));
  const text = await textOf("deploy/kproxy");
  const run = text.split("\n").findLast((line) => line.startsWith("exec "));
  assertEquals(run, `exec deno run -q --cached-only ${runtimeFlags().join(" ")} "$@"`);
  assert(((await Deno.stat(`${ROOT}/deploy/kproxy`)).mode ?? 0) & 0o111);
});

// A bundle is what tests/e2e/deploy_test.ts starts by it.
Deno.test("the launcher starts kproxy from whatever folder, with its arguments as they are", async () => {
  await using temporary = await tempFolder();
  const folder = temporary.path;
  await Deno.symlink(Deno.execPath(), `${folder}/deno`);
  const runIn = async (home: string, ...args: string[]): Promise<[number, string]> => {
    const { code, stdout, stderr } = await new Deno.Command(`${ROOT}/deploy/kproxy`, {
      args,
      cwd: folder,
      env: {
        KPROXY_HOME: home,
        PATH: `${folder}:${Deno.env.get("PATH") ?? ""}`,
        DENO_DIR: await denoDir(),
      },
    }).output();
    return [code, new TextDecoder().decode(code === 0 ? stdout : stderr)];
  };
  const [code, version] = await runIn(ROOT, "version");
  assertEquals([code, version.startsWith("kproxy ")], [0, true], version);
  const [wrong, told] = await runIn(ROOT, "run", "--proxy-mode=a b");
  assertEquals([wrong, told.includes("a b")], [2, true], told);
  assertEquals(await runIn(folder, "version"), [
    1,
    `Error: ${folder} holds neither kproxy.js nor deno.json: KPROXY_HOME names the folder that holds kproxy\n`,
  ]);
});
