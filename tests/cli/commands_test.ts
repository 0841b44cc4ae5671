import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import project from "../../deno.json" with { type: "json" };
import type { ObjectJson } from "../../lib/source/decode/api_json.ts";
import { ROOT } from "../../tools/project_files.ts";
import { buildCommit } from "../../tools/release/commit.ts";
import { inFolder, kproxy } from "./kproxy.ts";

const HEAD = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";

Deno.test("version, --version and -h answer on every command, on standard output", async () => {
  const version = `kproxy ${project.version} (kube-proxy rules 1.30, decisions 1.36)\n`;
  for (
    const argv of [["--version"], ["version", "--version"], ["run", "--version"], ["render", "--version"]]
  ) {
    assertEquals(await kproxy(argv), { code: 0, out: version, err: "" }, argv.join(" "));
  }
  // Sources tell what is checked out, wherever they were checked out.
  const commit = (await buildCommit()).replace("-dirty", "");
  const { out: told } = await kproxy(["version"]);
  assertEquals(told.split("\n").slice(0, 2), [version.trim(), `commit ${commit}`]);
  for (const argv of [["version", "--version=raw"], ["version", "-o", "json"]]) {
    const facts = JSON.parse((await kproxy(argv)).out);
    assertEquals([facts.version, facts.commit], [project.version, commit]);
  }
  for (const argv of [["help", "render"], ["render", "--help"], ["render", "-h"]]) {
    const { code, out, err } = await kproxy(argv);
    assertEquals([code, err], [0, ""]);
    assertStringIncludes(out, "Usage: kproxy render --manifests PATH [flags]\n");
  }
  for (const argv of [[], ["--help"], ["help"]]) {
    const { code, out } = await kproxy(argv);
    assertEquals(code, 0);
    assertStringIncludes(out, "Usage: kproxy COMMAND [flags]\n");
  }
});

Deno.test("wrong use is one line on standard error and ends with 2", async () => {
  const cases: [argv: readonly string[], err: string][] = [
    [["--confg=x"], 'Error: Unknown flag "--confg": did you mean "--config"?\n'],
    [["rendr"], 'Error: Unknown command "rendr": did you mean "render"?\n'],
    [["rnu"], 'Error: Unknown command "rnu": did you mean "run"?\n'],
    [["help", "rnu"], 'Error: Unknown command "rnu": did you mean "run"?\n'],
    [["run", "x"], 'Error: "kproxy run" does not take any arguments, got ["x"]\n'],
    [["help", "rendr"], 'Error: Unknown command "rendr": did you mean "render"?\n'],
    [
      ["completion", "bsh"],
      'Error: No completion for the shell "bsh": want bash, zsh, fish: did you mean "bash"?\n',
    ],
    [["completion"], "Error: Name a shell: kproxy completion bash|zsh|fish\n"],
    [["render"], "Error: Nothing to render: name files or folders with --manifests=PATH\n"],
    [
      ["render", "--manifests=/no/such/path"],
      'Error: Cannot read manifests: no such file or folder: "/no/such/path"\n',
    ],
    [
      ["write-config", "a.yaml", "--write-config-to=b.yaml"],
      'Error: Two files to write to, "a.yaml" and --write-config-to=b.yaml: name one\n',
    ],
  ];
  for (const [argv, err] of cases) {
    assertEquals(await kproxy(argv), { code: 2, out: "", err }, argv.join(" "));
  }
});

Deno.test("every problem of a configuration has its line and ends with 2", async () => {
  await inFolder(
    { "c.yaml": `${HEAD}mode: iptable\nclusterCidr: 10.0.0.0/8\noomScoreAdj: 2000\n` },
    async (folder) => {
      for (const command of ["run", "write-config", "render", "cleanup"]) {
        const { code, out, err } = await kproxy([command, "--config=c.yaml"], { cwd: folder });
        assertEquals([code, out], [2, ""], command);
        const lines = err.trimEnd().split("\n");
        assertEquals(lines.length, 3, err);
        assertMatch(lines[0] ?? "", /^Error: c\.yaml:3: mode: .*did you mean "iptables"/);
        assertMatch(lines[1] ?? "", /^Error: c\.yaml:4: clusterCidr: .*clusterCIDR/);
        assertMatch(lines[2] ?? "", /^Error: c\.yaml:5: oomScoreAdj: /);
      }
      const missing = await kproxy(["run", "--config=none.yaml"], { cwd: folder });
      assertEquals(missing, {
        code: 2,
        out: "",
        err: "Error: none.yaml: cannot read the configuration file: there is no such file\n",
      });
    },
  );
});

Deno.test("write-config prints what loads back to the same, as YAML or JSON", async () => {
  const yaml = await kproxy(["write-config"]);
  assertEquals([yaml.code, yaml.err], [0, ""]);
  assertStringIncludes(yaml.out, "\nmode: iptables\n");
  const json = await kproxy(["write-config", "-o", "json"]);
  assertEquals(JSON.parse(json.out).healthzBindAddress, "0.0.0.0:10256");
  await inFolder({ "c.yaml": yaml.out, "c.json": json.out }, async (folder) => {
    for (const file of ["c.yaml", "c.json"]) {
      const again = await kproxy(["write-config", "--config", file], { cwd: folder });
      assertEquals(again, { code: 0, out: yaml.out, err: "" }, file);
    }
  });
});

Deno.test("write-config and --write-config-to write what is in force, for the owner only", async () => {
  await inFolder({ "old.yaml": `${HEAD}udpTimeoutMilliseconds: 250\nmode: ipvs\n` }, async (folder) => {
    const ways = [
      ["write-config", "--proxy-mode=ipvs", "-v=3", "out.yaml"],
      ["write-config", "--proxy-mode=ipvs", "-v=3", "--write-config-to=out.yaml"],
      ["run", "--proxy-mode=ipvs", "-v=3", "--write-config-to=out.yaml"],
      ["--proxy-mode=ipvs", "-v=3", "--write-config-to", "out.yaml", "--cleanup"],
    ];
    const texts = new Set<string>();
    for (const argv of ways) {
      const { code, out } = await kproxy(argv, { cwd: folder });
      assertEquals([code, out], [0, ""], argv.join(" "));
      assertEquals((await Deno.stat(`${folder}/out.yaml`)).mode! & 0o777, 0o600);
      texts.add(await Deno.readTextFile(`${folder}/out.yaml`));
      await Deno.remove(`${folder}/out.yaml`);
    }
    assertEquals(texts.size, 1);
    const [text = ""] = texts;
    assertStringIncludes(text, "\nmode: ipvs\n");
    assertMatch(text, /^ {2}verbosity: 3$/m);

    const { code, err } = await kproxy(["run", "--config=old.yaml", "--write-config-to=new.yaml"], {
      cwd: folder,
    });
    assertEquals(code, 0, err);
    assertMatch(err, /^W\d{4} [^\n]*udpTimeoutMilliseconds/);
    assertMatch(err, /^I\d{4} [^\n]*"Wrote configuration" file="new\.yaml"$/m);
  });
});

Deno.test("a file is not written through a symbolic link, and the failure ends with 1", async () => {
  await inFolder({ "target": "precious\n" }, async (folder) => {
    await Deno.symlink(`${folder}/target`, `${folder}/link.yaml`);
    const { code, err } = await kproxy(["write-config", "link.yaml"], { cwd: folder });
    assertEquals(code, 1);
    assertMatch(err, /^Error: [^\n]*link\.yaml[^\n]*\n$/);
    assertEquals(await Deno.readTextFile(`${folder}/target`), "precious\n");
  });
});

Deno.test("a file that cannot be written is named as it was given", async () => {
  const cases = [["write-config", "/nonexist/dir/x"], ["run", "--write-config-to=/nonexist/dir/x"]];
  for (const argv of cases) {
    assertEquals(await kproxy(argv), {
      code: 1,
      out: "",
      err: 'Error: Cannot write "/nonexist/dir/x": No such file or directory (os error 2)\n',
    });
  }
});

Deno.test("at verbosity 1 run logs every flag with its value, in alphabetical order", async () => {
  await inFolder({}, async (folder) => {
    const given = [
      "-v=1",
      "--nodeport-addresses=10.0.0.0/8,primary",
      "--feature-gates=KubeProxyDrainingTerminatingNodes=true",
      "--conntrack-udp-timeout=90s",
      '--hostname-override=no"de',
      "--logtostderr",
      "--vmodule=run=3",
    ];
    const { code, err } = await kproxy(["run", ...given, "--write-config-to=out.yaml"], { cwd: folder });
    assertEquals(code, 0, err);
    const lines = err.split("\n").flatMap((line) => /^I\d{4} [^\]]*\] FLAG: (--.*)$/.exec(line)?.[1] ?? []);
    const names = lines.map((line) => line.slice(2, line.indexOf("=")));
    assertEquals(names, [...names].sort());
    assert(names.length > 60, `${names.length}`);
    for (
      const line of [
        '--cleanup="false"',
        '--config=""',
        '--conntrack-max-per-core="32768"',
        '--conntrack-udp-timeout="1m30s"',
        '--feature-gates="KubeProxyDrainingTerminatingNodes=true"',
        '--hostname-override="no\\"de"',
        '--logtostderr="true"',
        '--manifests="[]"',
        '--nodeport-addresses="[10.0.0.0/8,primary]"',
        '--v="1"',
        '--version="false"',
        '--vmodule="run=3"',
        '--write-config-to="out.yaml"',
      ]
    ) assert(lines.includes(line), `${line}\n${lines.join("\n")}`);
    const quiet = await kproxy(["run", "--write-config-to=out.yaml"], { cwd: folder });
    assert(!quiet.err.includes("FLAG:"));
  });
});

Deno.test("deprecated flags warn once each, before anything else", async () => {
  const { code, out, err } = await kproxy([
    "write-config",
    "--logtostderr=true",
    "--logtostderr=true",
    "--log-dir=/logs",
    "--healthz-port=0",
  ]);
  assertEquals(code, 0);
  assertStringIncludes(out, "healthzBindAddress: ");
  const lines = err.trimEnd().split("\n");
  assertEquals(lines.slice(0, 3), [
    "Flag --logtostderr has been deprecated, it has no effect: kproxy logs to standard error",
    "Flag --log-dir has been deprecated, it has no effect: kproxy logs to standard error",
    "Flag --healthz-port has been deprecated, use --healthz-bind-address instead",
  ]);
  // Only a flag can switch the health server off, so the file cannot say it.
  assertEquals(lines.length, 4);
  assertMatch(lines[3] ?? "", /^Warning: healthzBindAddress: /);
});

Deno.test("a reader that has seen enough is no failure", async () => {
  const { code, stderr } = await new Deno.Command("bash", {
    args: [
      "-c",
      `set -o pipefail; "$@" | true`,
      "bash",
      Deno.execPath(),
      ...(await import("./kproxy.ts")).kproxyArgv(),
      "help",
      "run",
    ],
    stdin: "null",
    stdout: "null",
    stderr: "piped",
  }).output();
  assertEquals([code, new TextDecoder().decode(stderr)], [0, ""]);
});

Deno.test("through the task, relative paths are the caller's", async () => {
  const service = {
    apiVersion: "v1",
    kind: "Service",
    metadata: { namespace: "shop", name: "web" },
    spec: { clusterIP: "10.96.0.1", clusterIPs: ["10.96.0.1"], ipFamilies: ["IPv4"], ports: [{ port: 80 }] },
  } satisfies ObjectJson<"Service">;
  await inFolder({ "my objects.json": JSON.stringify(service) }, async (cwd) => {
    // Tasks and npm set it only if it is not set; the tests may themselves run in a task.
    const { INIT_CWD: _, ...env } = Deno.env.toObject();
    const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: [
        "task",
        "-q",
        "--config",
        `${ROOT}/deno.json`,
        "kproxy",
        "render",
        "--manifests",
        "my objects.json",
      ],
      cwd,
      env,
      clearEnv: true,
      stdin: "null",
    }).output();
    const decoder = new TextDecoder();
    assertEquals([code, decoder.decode(stderr)], [0, ""]);
    assertStringIncludes(decoder.decode(stdout), "10.96.0.1");
  });
});

Deno.test("kproxy version does not load the API client or the planners", async () => {
  const { stdout } = await new Deno.Command(Deno.execPath(), {
    args: ["info", "--json", "main.ts"],
    cwd: new URL("../..", import.meta.url).pathname,
    stdin: "null",
    stderr: "null",
  }).output();
  interface Module {
    readonly specifier: string;
    readonly dependencies?: readonly {
      readonly code?: { readonly specifier?: string };
      readonly isDynamic?: boolean;
    }[];
  }
  const graph: { roots: string[]; modules: Module[] } = JSON.parse(new TextDecoder().decode(stdout));
  const byName = new Map(graph.modules.map((module) => [module.specifier, module]));
  const atStart = new Set(graph.roots);
  for (const name of atStart) {
    for (const { code, isDynamic } of byName.get(name)?.dependencies ?? []) {
      if (isDynamic !== true && code?.specifier !== undefined) atStart.add(code.specifier);
    }
  }
  assert(atStart.size > 5, "the graph was not followed");
  for (const name of atStart) {
    assert(
      !/client-node|npm:yaml|\/(cli|yaml)\/mod\.ts$|\/terminal\/(?!printable\.ts)|\/(backend|source|sync)\/|\/kernel\/(?!clock\.ts)/
        .test(name),
      `${name} is loaded at every start`,
    );
  }
});
