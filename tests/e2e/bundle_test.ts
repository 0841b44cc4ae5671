/** What `deno task bundle` builds is kproxy: without a network, without packages, with the same rights, rules and log lines. */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { VERSION } from "../../lib/node/version.ts";
import { type Bundle, bundle, writeBundle } from "../../tools/bundle.ts";
import { runtimeFlags } from "../../tools/permissions.ts";
import { ROOT } from "../../tools/project_files.ts";
import { smokeProblems } from "../../tools/release/smoke.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { withNetns } from "../support/netns.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";
import { tempFolder } from "../support/temp_files.ts";

const COMMIT = "0123456789abcdef0123456789abcdef01234567";
const OBJECTS = `--manifests=${ROOT}/tests/golden/mixed-dual-stack/objects.yaml`;

async function deno(args: readonly string[], env: Readonly<Record<string, string>>): Promise<string> {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [...args],
    env: { ...env, NO_COLOR: "1" },
  }).output();
  assertEquals(code, 0, new TextDecoder().decode(stderr));
  return new TextDecoder().decode(stdout);
}

/** Every place that log lines may name is a line of the source that logs. */
async function assertPlaces(files: Bundle): Promise<void> {
  const text = files.get("places.js") ?? "";
  const places = Object.values(JSON.parse(text.slice(text.indexOf("=") + 1, -2)) as Record<string, string>);
  assert(places.length > 100, `${places.length} places`);
  const sources = new Map<string, string[]>();
  for await (const path of sourcePaths(`${ROOT}/lib`)) {
    const name = path.split("/").at(-1) ?? "";
    sources.set(name, [...sources.get(name) ?? [], await Deno.readTextFile(path)]);
  }
  for (const place of places) {
    const [name = "", line] = place.split(":");
    const lines = (sources.get(name) ?? []).map((source) => source.split("\n")[Number(line) - 1] ?? "");
    assert(lines.some((one) => /\.(info|warn|error|text)\b/.test(one)), `${place}: ${lines.join(" | ")}`);
  }
}

/** Whatever is imported on demand is there, and nothing of it is read at a start: what Deno sees is what it reads then. */
async function assertReadOnDemand(
  files: Bundle,
  main: string,
  env: Readonly<Record<string, string>>,
): Promise<void> {
  const hidden = [...files.values()].flatMap((text) =>
    [...text.matchAll(/import\(import\.meta\.resolve\("\.\/([^"]+)"\)\)/g)].map(([, name = ""]) => name)
  );
  for (const name of ["doctor", "help", "render"]) {
    assert(hidden.some((file) => file.startsWith(`${name}-`)), `${name} is imported from the start`);
  }
  assertEquals(hidden.filter((file) => !files.has(file)), []);
  const graph = await deno(["info", "--no-config", "--json", main], env);
  const read = new Set([...graph.matchAll(/"specifier": ?"[^"]*\/([^"\/]+\.js)"/g)].map(([, file]) => file));
  // A file costs some 25 kB and its time, however small it is.
  assert(read.has("start.js") && read.size < 30, [...read].join());
  assertEquals(hidden.filter((file) => read.has(file)), []);
}

async function* sourcePaths(folder: string): AsyncGenerator<string> {
  for await (const { name, isDirectory } of Deno.readDir(folder)) {
    if (isDirectory) yield* sourcePaths(`${folder}/${name}`);
    else if (name.endsWith(".ts")) yield `${folder}/${name}`;
  }
}

e2eTest("the bundle runs kproxy without network and packages, with the same rules, rights and log lines", [
  ROOT_NAMESPACES,
  program("nft"),
], async () => {
  const files = await bundle(COMMIT);
  await assertPlaces(files);
  await using temporary = await tempFolder();
  const folder = temporary.path;
  await writeBundle(files, `${folder}/js`);
  const main = `${folder}/js/kproxy.js`;
  const env = { DENO_DIR: `${folder}/cache` };
  const own = ["--no-config", "--cached-only", ...runtimeFlags(), main];
  await assertReadOnDemand(files, main, env);
  await withNetns(async (netns) => {
    const start = [
      "ip",
      "netns",
      "exec",
      netns.name,
      "env",
      `DENO_DIR=${env.DENO_DIR}`,
      Deno.execPath(),
      "run",
      "-q",
    ];
    assertEquals(await smokeProblems([...start, ...own], { version: VERSION, commit: COMMIT }), []);
    // Its children have fewer rights, and must read what they are all the same.
    await netns.run([...start.slice(4), ...own, "selftest", "--proxy-mode=nftables"]);
    const other = { version: "0.0.0", commit: COMMIT };
    assertEquals((await smokeProblems([...start, ...own, "help"], other)).length, 5);
    for (const mode of ["nftables", "userspace"]) {
      const args = [`--proxy-mode=${mode}`, "--hostname-override=node-a", OBJECTS];
      const started = { main, cache: env.DENO_DIR };
      await using kproxy = await KproxyProcess.start({ netns, args, bundle: started });
      const starting = kproxy.lines.find(({ msg }) => msg === "Starting");
      assertMatch(String(starting?.caller), /^run\.ts:\d+$/);
      if (mode === "nftables") assertMatch(await netns.run(["nft", "list", "tables"]), /table ip kproxy/);
      else {
        // By a thread of its own, beside the servers of the main one.
        const listening = (await netns.run(["ss", "-Hltn"])).trim().split("\n");
        assert(listening.some((line) => !/:102(?:49|56) /.test(line)), listening.join("\n"));
      }
    }
  });
});
