import { assertEquals, assertThrows } from "@std/assert";
import { OWN_PROGRAMS } from "../lib/kernel/exec.ts";
import { kproxyTask, outdatedFiles, replaceSection, replaceTask } from "./docs.ts";
import { PERMISSIONS, permissionTable, runtimeFlags } from "./permissions.ts";
import { apiAccess, inClusterAccess } from "../lib/source/kube/api_access.ts";
import { projectFiles, ROOT } from "./project_files.ts";

Deno.test("the task kproxy runs with exactly the permissions of the list", async () => {
  const { tasks } = JSON.parse(await Deno.readTextFile(`${ROOT}/deno.json`));
  const command: string = tasks.kproxy.command;
  const [before = "", after = ""] = command.split(runtimeFlags().join(" "));
  assertEquals(before, 'ROOT=$PWD && cd "$INIT_CWD" && deno run -q --config "$ROOT/deno.json" ');
  assertEquals(after, ' "$ROOT/start.ts"');
});

Deno.test("docs/permissions.md has one row for every permission, and only those", async () => {
  const text = await Deno.readTextFile(`${ROOT}/docs/permissions.md`);
  const rows = [...text.matchAll(/^\| `(--[^`]+)` \| (.+) \|$/gm)].map(([, flag, why]) => `${flag}: ${why}`);
  const listed = PERMISSIONS.flatMap(({ flag, grants }) =>
    grants.map(({ value, reason }) => `${value === "" ? flag : `${flag}=${value}`}: ${reason}`)
  );
  assertEquals(rows.filter((row) => row.startsWith("--allow")), listed);
  assertEquals(text.includes(permissionTable()), true);
});

Deno.test("no permission is listed twice or without a reason", { permissions: "none" }, () => {
  const names = PERMISSIONS.flatMap(({ flag, grants }) => grants.map(({ value }) => `${flag}=${value}`));
  assertEquals(names.length, new Set(names).size);
  assertEquals(PERMISSIONS.flatMap(({ grants }) => grants).filter(({ reason }) => reason.length < 10), []);
});

Deno.test("no program that may be started can be a credential plugin", { permissions: "none" }, () => {
  const programs = PERMISSIONS.find(({ flag }) => flag === "--allow-run")?.grants ?? [];
  assertEquals(programs.map(({ value }) => value).toSorted(), OWN_PROGRAMS.toSorted());
});

Deno.test("every program that may be started is started by the code", async () => {
  const sources = (await projectFiles()).filter((path) =>
    /^lib\/.*\.ts$/.test(path) && !path.endsWith("_test.ts")
  );
  const text = (await Promise.all(sources.map((path) => Deno.readTextFile(`${ROOT}/${path}`)))).join("\n");
  const programs = PERMISSIONS.find(({ flag }) => flag === "--allow-run")?.grants ?? [];
  // Names of iptables' programs are composed of family, variant and action.
  const others = programs.map(({ value }) => value).filter((name) => !/^ip6?tables/.test(name));
  assertEquals(others.length > 5, true);
  assertEquals(others.filter((name) => !text.includes(`["${name}"`)), []);
});

/** An environment that records which variables are read. */
function recordingEnvironment(): { readonly asked: Set<string>; get(name: string): string } {
  const asked = new Set<string>();
  return {
    asked,
    get: (name) => {
      asked.add(name);
      return name === name.toUpperCase() && !name.includes("PROXY") ? "10.0.0.1" : "";
    },
  };
}

Deno.test("every variable that may be read is read by the code, and every one that is read may be", async () => {
  const env = recordingEnvironment();
  await apiAccess({ kubeconfig: "", master: "http://10.0.0.1:8080", env });
  const proxied = {
    ...env,
    get: (name: string) => env.get(name) || (name.startsWith("HTTPS") ? "http://p:3128" : ""),
  };
  assertThrows(() => inClusterAccess(env), Error, "https://10.0.0.1:10.0.0.1");
  await apiAccess({ kubeconfig: "", master: "https://10.0.0.1:6443", env: proxied });
  // An upper-case variable with an empty value is looked up in lower case.
  await apiAccess({ kubeconfig: "", master: "https://10.0.0.1:6443", env });
  const granted = PERMISSIONS.find(({ flag }) => flag === "--allow-env")?.grants ?? [];
  assertEquals([...env.asked].sort(), granted.map(({ value }) => value).sort());
  // No other file reads the environment.
  const sources = (await projectFiles()).filter((path) =>
    /^(lib\/.*|start|main|mod)\.ts$/.test(path) && !path.endsWith("_test.ts")
  );
  const readers: string[] = [];
  for (const path of sources) {
    const text = await Deno.readTextFile(`${ROOT}/${path}`);
    const uses = [...text.matchAll(/Deno\.env\b|process\.env\b/g)].length;
    const passed = [...text.matchAll(/apiAccess\(\{[^}]*env: Deno\.env \}\)/g)].length;
    if (uses > passed) readers.push(path);
  }
  // Doctor and the file check read a variable of the list, if permitted. The third file goes on without permission, as under the list.
  assertEquals(readers.sort(), [
    "lib/inspect/doctor/doctor.ts",
    "lib/kernel/file_owner.ts",
    "lib/source/kube/api_access.ts",
  ]);
});

Deno.test("generated parts of the documentation are in step with the code", async () => {
  assertEquals([...(await outdatedFiles()).keys()], []);
});

Deno.test("a changed list shows in the documentation and in the task", { permissions: "none" }, () => {
  const text = "a\n<!-- x:begin -->\nold\n<!-- x:end -->\nb\n";
  const replaced = replaceSection(text, "x", "new");
  assertEquals(
    [replaced.includes("new"), replaced.includes("old"), replaced.endsWith("<!-- x:end -->\nb\n")],
    [
      true,
      false,
      true,
    ],
  );
  assertEquals(replaceSection(replaced, "x", "new"), replaced);
  assertThrows(() => replaceSection(text, "y", ""), SyntaxError, "y:begin");
  const config = '{ "tasks": { "kproxy": { "command": "old" } } }';
  const expected = `{ "tasks": { "kproxy": { "command": ${JSON.stringify(kproxyTask(["--x"]))} } } }`;
  assertEquals(replaceTask(config, kproxyTask(["--x"])), expected);
  assertThrows(() => replaceTask("{}", ""), SyntaxError, "kproxy");
});
