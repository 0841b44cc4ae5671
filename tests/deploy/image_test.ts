/**
 * `deploy/Dockerfile`, which no test can build: what it copies is there and enough, it installs what kproxy starts, and the
 * program in it runs with kproxy's permissions.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { COMMIT_FILE } from "../../lib/node/build.ts";
import { runtimeFlags } from "../../tools/permissions.ts";
import { projectFiles, ROOT } from "../../tools/project_files.ts";
import { NODE_PACKAGES } from "../../tools/setup.ts";
import { denoDir } from "../support/deno_dir.ts";
import { copiesIn, readInstructions } from "./dockerfile.ts";

async function textOf(path: string): Promise<string> {
  return await Deno.readTextFile(`${ROOT}/${path}`);
}

/** The files of the project that an image holds. */
async function filesInImage(): Promise<Set<string>> {
  const sources = copiesIn(await readInstructions()).flatMap(({ sources }) => sources);
  const lines = (await textOf("deploy/Dockerfile.dockerignore")).split("\n");
  const [all, ...rest] = lines.filter((line) => line !== "" && !line.startsWith("#"));
  assertEquals(all, "*", "everything is left out but what is named");
  const named = rest.filter((line) => line.startsWith("!")).map((line) => line.slice(1));
  assertEquals(named.toSorted(), sources.toSorted());
  const leftOut = rest.filter((line) => line.startsWith("**/")).map((line) => line.slice(3));
  assertEquals(named.length + leftOut.length, rest.length);
  const patterns = leftOut.map((glob) => new RegExp(`(^|/)${glob.replaceAll("*", "[^/]*")}(/|$)`));
  const isNamed = (path: string): boolean =>
    sources.some((source) => path === source || path.startsWith(`${source}/`));
  return new Set(
    (await projectFiles()).filter((path) => isNamed(path) && !patterns.some((one) => one.test(path))),
  );
}

Deno.test("everything that an image is made of is there, and every module that kproxy may load is in it", async () => {
  const held = await filesInImage();
  for (const { sources } of copiesIn(await readInstructions())) {
    for (const source of sources) {
      assert([...held].some((path) => path === source || path.startsWith(`${source}/`)), source);
    }
  }
  const { stdout, success } = await new Deno.Command(Deno.execPath(), {
    args: ["info", "--json", "--config", `${ROOT}/deno.json`, `${ROOT}/main.ts`],
    stderr: "null",
  }).output();
  assert(success);
  const graph = JSON.parse(new TextDecoder().decode(stdout)) as {
    readonly modules: readonly { readonly specifier: string }[];
  };
  const prefix = `file://${ROOT}/`;
  const needed = graph.modules.filter(({ specifier }) => specifier.startsWith(prefix))
    .map(({ specifier }) => specifier.slice(prefix.length));
  assert(needed.length > 300);
  assertEquals(needed.filter((path) => !held.has(path)), []);
  assertEquals([...held].filter((path) => /_test\.ts$|^tests|^\.git/.test(path)), []);
});

Deno.test("the image has the packages that a node needs, and the release of Deno that the project is tested with", async () => {
  const steps = await readInstructions();
  const install = steps.find(({ name, words }) => name === "RUN" && words.includes("install"))?.words ?? [];
  const from = install.indexOf("--no-install-recommends") + 1;
  const packages = install.slice(from, install.indexOf("&&", from));
  assertEquals(packages, NODE_PACKAGES.map(({ name }) => name).toSorted());
  const [, version] = /npx -y deno@([\d.]+) task test/.exec(await textOf("README.md")) ?? [];
  const bases = steps.filter(({ name }) => name === "FROM").map(({ words }) => words[0]);
  assertEquals(bases, [`denoland/deno:bin-${version}`, "debian:bookworm-slim"]);
});

Deno.test("the image's program is the launcher, with the task's permissions and no network to load modules from", async () => {
  const steps = await readInstructions();
  const launcher = copiesIn(steps).find(({ sources }) => sources.includes("deploy/kproxy"));
  assertEquals(launcher?.target, "/usr/local/bin/kproxy");
  const entry = steps.find(({ name }) => name === "ENTRYPOINT")?.words.join(" ");
  assertEquals(entry, '["kproxy"]');
  // Where the sources have no Git repository, kproxy reads its commit from this file beside them.
  const written = steps.find(({ words }) => words.at(-2) === ">");
  assertEquals([written?.name, written?.words.join(" ")], ["RUN", `echo "$COMMIT" > ${COMMIT_FILE}`]);
  // A program compiled on the whole of deno would ignore the permissions that it carries.
  assert(!steps.some(({ words }) => words.includes("compile")));
  const text = await textOf("deploy/kproxy");
  const run = text.split("\n").findLast((line) => line.startsWith("exec "));
  const flags = runtimeFlags().join(" ");
  assertEquals(
    run,
    `exec deno run -q --cached-only --frozen --config "$home/deno.json" ${flags} "$home/start.ts" "$@"`,
  );
  assert(((await Deno.stat(`${ROOT}/deploy/kproxy`)).mode ?? 0) & 0o111);
});

Deno.test("the launcher starts kproxy from whatever folder, with its arguments as they are", async () => {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-launcher-" });
  try {
    await Deno.symlink(Deno.execPath(), `${folder}/deno`);
    const run = async (...args: string[]): Promise<[number, string]> => {
      const { code, stdout, stderr } = await new Deno.Command(`${ROOT}/deploy/kproxy`, {
        args,
        cwd: folder,
        env: {
          KPROXY_HOME: ROOT,
          PATH: `${folder}:${Deno.env.get("PATH") ?? ""}`,
          DENO_DIR: await denoDir(),
        },
      }).output();
      return [code, new TextDecoder().decode(code === 0 ? stdout : stderr)];
    };
    const [code, version] = await run("version");
    assertEquals([code, version.startsWith("kproxy ")], [0, true], version);
    const [wrong, told] = await run("run", "--proxy-mode=a b");
    assertEquals([wrong, told.includes("a b")], [2, true], told);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
