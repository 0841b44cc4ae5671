/** kproxy on systems without Linux' packet filter: what works at a desk, and what is refused. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { runtimeFlags } from "../../tools/permissions.ts";
import { ROOT } from "../../tools/project_files.ts";
import { inFolder, kproxy, type Run } from "./kproxy.ts";

const OBJECTS = `${ROOT}/tests/golden/all-examples/objects.yaml`;
const NODE = [
  "--hostname-override=node-a",
  "--bind-address=192.0.2.10",
  "--cluster-cidr=10.244.0.0/16",
  `--manifests=${OBJECTS}`,
];

/** The outcomes of commands on a system of this name, with kproxy's permissions. */
async function runOn(os: string, commands: readonly (readonly string[])[]): Promise<readonly Run[]> {
  const program = `${ROOT}/tests/cli/other_system_agent.ts`;
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      "-q",
      "--config",
      `${ROOT}/deno.json`,
      ...runtimeFlags(),
      program,
      os,
      JSON.stringify(commands),
    ],
    stdin: "null",
  }).output();
  const decoder = new TextDecoder();
  assertEquals(code, 0, decoder.decode(stderr));
  return JSON.parse(decoder.decode(stdout));
}

/** Commands that say the same wherever they run. `FOLDER` has the rules of a node. */
const OFFLINE: readonly (readonly string[])[] = [
  ["render", ...NODE, "--proxy-mode=iptables"],
  ["render", ...NODE, "--proxy-mode=ipvs"],
  ["render", ...NODE, "--proxy-mode=nftables"],
  ["trace", "world", "shop/web", "--no-live", ...NODE],
  ["explain", "world", "shop/web", "--live-from=FOLDER/live.rules", ...NODE, "-o", "json"],
  ["trace", "world", "10.96.10.1:80", "--no-desired", "--live-from=FOLDER/live.rules"],
  ["service", "list", "--no-live", ...NODE],
  ["service", "get", "shop/web", "--live-from=FOLDER/live.rules", ...NODE],
  ["check", "--live-from=FOLDER/live.rules", ...NODE],
  ["write-config", "--proxy-mode=nftables"],
  ["write-config", "-o", "json", "FOLDER/written.json"],
  ["run", "--proxy-mode=ipvs", "--write-config-to=FOLDER/written.yaml"],
  ["help", "run"],
  ["completion", "zsh"],
  ["--version"],
];

Deno.test("rules, traces and configurations are made on macOS and Windows as on Linux, and nothing of a node is asked for", async () => {
  const { out: rules } = await kproxy(["render", ...NODE, "--family=ipv4"]);
  await inFolder({ "live.rules": rules }, async (folder) => {
    const commands = OFFLINE.map((argv) => argv.map((word) => word.replace("FOLDER", folder)));
    const [mac, windows] = [await runOn("darwin", commands), await runOn("windows", commands)];
    for (const [index, argv] of commands.entries()) {
      // Its line in the log has a time.
      if (argv[0] === "run") {
        assertEquals([mac[index]?.code, windows[index]?.code], [0, 0]);
        continue;
      }
      assertEquals(mac[index], await kproxy(argv), argv.join(" "));
      assertEquals(windows[index], mac[index], argv.join(" "));
    }
    assertEquals(
      JSON.parse(await Deno.readTextFile(`${folder}/written.json`)).kind,
      "KubeProxyConfiguration",
    );
    assertStringIncludes(await Deno.readTextFile(`${folder}/written.yaml`), "mode: ipvs");
  });
});

const REFUSED: readonly [argv: readonly string[], err: string][] = [
  ...[["run"], ["--proxy-mode=ipvs"], ["run", "--cleanup"], ["run", "--init-only"]].map((
    argv,
  ): [string[], string] => [argv, "run"]),
  ...["cleanup", "doctor", "selftest"].map((name): [string[], string] => [[name], name]),
  [["sysdump", "a.tar.gz"], "sysdump"],
].map(([argv = [], name]) => [
  argv as string[],
  `Error: "kproxy ${name}" needs Linux, and this is macOS: render, trace --no-live, service --no-live and write-config work here\n`,
]);
const LOOKING: readonly [argv: readonly string[], err: string][] = [
  [
    ["trace", "world", "10.96.10.1:80", ...NODE],
    'Error: "kproxy trace" reads the rules of Linux, and this is macOS: give it --no-live, or --live-from FILE with what the tools of a node printed\n',
  ],
  [
    ["service", "list", ...NODE],
    'Error: "kproxy service" reads the rules of Linux, and this is macOS: give it --no-live, or --live-from FILE with what the tools of a node printed\n',
  ],
  [
    ["diff", ...NODE],
    'Error: "kproxy diff" reads the rules of Linux, and this is macOS: give it --live-from FILE with what the tools of a node printed\n',
  ],
];

Deno.test("what needs the kernel of a node ends with 1 and one line on other systems", async () => {
  const cases = [...REFUSED, ...LOOKING];
  const runs = await runOn("darwin", cases.map(([argv]) => argv));
  for (const [index, [argv, err]] of cases.entries()) {
    assertEquals(runs[index], { code: 1, out: "", err }, argv.join(" "));
  }
  const [help, wrong] = await runOn("windows", [["run", "--help"], ["run", "--no-such-flag"]]);
  assertEquals([help?.code, wrong?.code], [0, 2]);
});
