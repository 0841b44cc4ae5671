/**
 * The files of `deploy/systemd`: systemd itself reads them, and they fit what kproxy does.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { configurationOf } from "../../lib/cli/flags/configuration.ts";
import { parseArgs, type ParsedFlags } from "../../lib/cli/flags/parse_args.ts";
import { runOk, systemExec } from "../../lib/kernel/exec.ts";
import { ROOT } from "../../tools/project_files.ts";
import { e2eTest, program } from "../support/skip.ts";
import { tempFolder } from "../support/temp_files.ts";

const FOLDER = `${ROOT}/deploy/systemd`;
const PROGRAM = "/usr/local/bin/kproxy";
/** What systemd makes of the unit, in tenths: 0 is the safest, 100 the least safe. */
const MOST_EXPOSED = 18;

const TEXT = await Deno.readTextFile(`${FOLDER}/kproxy.service`);
const SERVICE = parseUnitFile(TEXT).get("Service") ?? new Map<string, readonly string[]>();

function setting(name: string): string {
  const values = SERVICE.get(name) ?? [];
  assertEquals(values.length, 1, name);
  return values[0] ?? "";
}

/** The arguments of kproxy in one of the unit's commands. */
function flagsOf(name: string): ParsedFlags {
  const [path = "", ...args] = setting(name).split(" ");
  assertEquals(path.replace(/^\+/, ""), PROGRAM);
  const flags = parseArgs(args);
  assertEquals([flags.command, flags.warnings], ["run", []]);
  return flags;
}

/** Runs `work` on a copy of the unit whose program is there. */
async function withUnit(
  work: (path: string) => Promise<void>,
  change = (text: string) => text,
): Promise<void> {
  await using temporary = await tempFolder();
  const folder = temporary.path;
  const path = `${folder}/kproxy.service`;
  await Deno.writeTextFile(path, change(TEXT.replaceAll(PROGRAM, "/bin/true")));
  await work(path);
}

const verify = (path: string) => systemExec.run(["systemd-analyze", "verify", "--man=no", path]);
const judge = (path: string) =>
  systemExec.run(["systemd-analyze", "security", "--offline=true", `--threshold=${MOST_EXPOSED}`, path]);

e2eTest(
  "systemd takes every setting of the unit, and would tell of others",
  [program("systemd-analyze")],
  async () => {
    await withUnit(async (path) => {
      const { code, stderr } = await verify(path);
      // Units of the machine that run beside it may have faults of their own.
      assertEquals([code, stderr.split("\n").filter((line) => line.includes("kproxy"))], [0, []]);
    });
    await withUnit(async (path) => {
      const { stderr } = await verify(path);
      assert(/kproxy\.service:\d+: .*ProtectSytem/.test(stderr), stderr);
    }, (text) => text.replace("ProtectSystem=", "ProtectSytem="));
  },
);

e2eTest(
  "systemd finds the unit hardly exposed, and would tell if it were",
  [program("systemd-analyze")],
  async () => {
    await withUnit(async (path) => {
      const { code, stdout } = await judge(path);
      assertEquals(code, 0, stdout);
    });
    await withUnit(async (path) => {
      assert((await judge(path)).code !== 0);
    }, (text) => text.replace(/^CapabilityBoundingSet=.*\n/m, ""));
  },
);

e2eTest(
  "systemd makes the user, and what only its group may read",
  [program("systemd-sysusers"), program("systemd-tmpfiles")],
  async () => {
    await using temporary = await tempFolder();
    const root = temporary.path;
    for (const kind of ["sysusers", "tmpfiles"]) {
      await Deno.mkdir(`${root}/usr/lib/${kind}.d`, { recursive: true });
      await Deno.copyFile(`${FOLDER}/kproxy.${kind}`, `${root}/usr/lib/${kind}.d/kproxy.conf`);
    }
    for (const name of ["etc", "run"]) await Deno.mkdir(`${root}/${name}`);
    // As iptables makes it.
    await Deno.writeTextFile(`${root}/run/xtables.lock`, "", { mode: 0o600 });
    await runOk(systemExec, ["systemd-sysusers", `--root=${root}`]);
    await runOk(systemExec, ["systemd-tmpfiles", `--root=${root}`, "--create"]);
    const [, uid, gid = "", home] = /^kproxy:x:(\d+):(\d+):[^:]*:([^:]*):.*nologin$/m.exec(
      await Deno.readTextFile(`${root}/etc/passwd`),
    ) ?? [];
    assert(Number(uid) > 0 && home === "/");
    const rights = await Promise.all(["etc/kproxy", "run/xtables.lock"].map(async (path) => {
      const { mode, uid: owner, gid: group } = await Deno.stat(`${root}/${path}`);
      return [path, ((mode ?? 0) & 0o777).toString(8), owner, String(group)];
    }));
    assertEquals(rights, [["etc/kproxy", "750", 0, gid], ["run/xtables.lock", "660", 0, gid]]);
  },
);

Deno.test("kproxy takes both command lines, and only the first one ends by itself and has all rights", async () => {
  const [init, run] = [flagsOf("ExecStartPre"), flagsOf("ExecStart")];
  assertEquals([init.get("init-only"), run.get("init-only")], [true, undefined]);
  assertEquals(["ExecStartPre", "ExecStart"].map((name) => setting(name).startsWith("+")), [true, false]);
  const file = {
    path: "config.conf",
    bytes: await Deno.readFile(`${ROOT}/tests/cli/configs/good/kubeadm.yaml`),
  };
  for (const flags of [init, run]) {
    assertEquals(flags.get("config"), "/etc/kproxy/config.conf");
    assertEquals((await configurationOf(flags, file)).warnings, []);
  }
  const { config } = await configurationOf(run, file);
  assertEquals(config.kproxy.snapshot, `/var/lib/${setting("StateDirectory")}/snapshot`);
});

Deno.test("the unit gives the process what kproxy says it needs, and nothing else", () => {
  const capabilities = "CAP_NET_ADMIN CAP_NET_RAW";
  assertEquals(["AmbientCapabilities", "CapabilityBoundingSet"].map(setting), [capabilities, capabilities]);
  assertEquals(["User", "Group", "ProtectSystem", "ReadWritePaths"].map(setting), [
    "kproxy",
    "kproxy",
    "strict",
    "-/run/xtables.lock",
  ]);
  // The engine makes code while it runs; kernel settings are read through the whole of /proc.
  assertEquals([SERVICE.has("MemoryDenyWriteExecute"), SERVICE.has("ProcSubset")], [false, false]);
  // An end may take 5 s and what programs take to end.
  assert(Number(setting("TimeoutStopSec")) > 6);
  assertEquals(setting("ExecReload"), "/bin/kill -HUP $MAINPID");
  // kproxy says nothing to systemd.
  assertEquals([setting("Type"), setting("Restart")], ["exec", "always"]);
});

/** A unit file's settings, by section and name; each in the order of its lines. */
type UnitFile = ReadonlyMap<string, ReadonlyMap<string, readonly string[]>>;

/** @throws {SyntaxError} on a line that is neither a section nor a setting */
function parseUnitFile(text: string): UnitFile {
  const sections = new Map<string, Map<string, string[]>>();
  let settings = new Map<string, string[]>();
  for (const line of text.split("\n")) {
    if (line === "" || line.startsWith("#")) continue;
    const section = /^\[(\w+)\]$/.exec(line)?.[1];
    if (section !== undefined) {
      settings = new Map();
      sections.set(section, settings);
      continue;
    }
    const [, name = "", value = ""] = /^(\w+)=(.*)$/.exec(line) ?? [];
    if (name === "") throw new SyntaxError(`no setting: ${line}`);
    settings.set(name, [...settings.get(name) ?? [], value]);
  }
  return sections;
}
