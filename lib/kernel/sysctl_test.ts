import { assertEquals, assertRejects } from "@std/assert";
import { fakeSysctl, type SysctlRefusals } from "../../tests/support/fake_sysctl.ts";
import { ExecError } from "../errors.ts";
import type { Exec } from "./exec.ts";
import { changeSysctls, DISABLE_IPV6, nodeSysctls, readSysctls, type SysctlOutcome } from "./sysctl.ts";
import { silentLogger } from "../observe/log.ts";

const NAME = "net.ipv4.conf.all.route_localnet";

/** One setting, and what the program says when it is written. */
function sysctl(initial: string | null, refusal = ""): Exec & { value: string | null } {
  return {
    value: initial,
    run(argv) {
      const [, flag, setting = ""] = argv;
      if (this.value === null) {
        const stderr =
          "sysctl: cannot stat /proc/sys/net/ipv4/conf/all/route_localnet: No such file or directory";
        return Promise.resolve({ code: 1, stdout: "", stderr });
      }
      if (flag !== "-w") return Promise.resolve({ code: 0, stdout: `${NAME} = ${this.value}\n`, stderr: "" });
      if (refusal !== "") return Promise.resolve({ code: 1, stdout: "", stderr: refusal });
      this.value = setting.split("=")[1] ?? "";
      return Promise.resolve({ code: 0, stdout: setting, stderr: "" });
    },
  };
}

/** Changes a setting after it was read. */
async function ensure(exec: Exec, value: string): Promise<SysctlOutcome | undefined> {
  const change = { name: NAME, found: (await readSysctls(exec, [NAME])).get(NAME) ?? null, value };
  return (await changeSysctls(exec, [change]))[0];
}

Deno.test("a setting is written only if it differs", { permissions: "none" }, async () => {
  const setting = sysctl("0");
  assertEquals(await ensure(setting, "1"), { kind: "changed", found: "0" });
  assertEquals(setting.value, "1");
  assertEquals(await ensure(sysctl("1", "must not be written"), "1"), {
    kind: "unchanged",
    found: "1",
  });
});

Deno.test(
  "a read-only setting is distinguished from other refusals",
  { permissions: "none" },
  async () => {
    for (
      const message of [
        `sysctl: setting key "${NAME}": Read-only file system`,
        `sysctl: permission denied on key "${NAME}"`,
        `sysctl: setting key "${NAME}", ignoring: Operation not permitted`,
      ]
    ) {
      assertEquals(await ensure(sysctl("0", message), "1"), {
        kind: "readOnly",
        found: "0",
        error: new ExecError(["sysctl", "-w", `${NAME}=1`], 1, message),
      });
      assertEquals(await ensure(sysctl("1", message), "1"), { kind: "unchanged", found: "1" });
    }
    const invalid = sysctl("0", `sysctl: setting key "${NAME}": Invalid argument`);
    assertEquals(await ensure(invalid, "x"), {
      kind: "refused",
      found: "0",
      error: new ExecError(
        ["sysctl", "-w", `${NAME}=x`],
        1,
        `sysctl: setting key "${NAME}": Invalid argument`,
      ),
    });
  },
);

Deno.test("a setting this kernel does not have", { permissions: "none" }, async () => {
  assertEquals(await ensure(sysctl(null), "1"), { kind: "missing" });
});

Deno.test("a missing program is an error, not a missing setting", { permissions: "none" }, async () => {
  const exec: Exec = { run: (argv) => Promise.reject(new ExecError(argv, -1, "No such file or directory")) };
  await assertRejects(() => readSysctls(exec, [NAME]), ExecError, "status -1");
});

const VALUES = { "net.a": "1", "net.b": "32768\t60999", "net.c": "" };

function program(refusals: SysctlRefusals = {}): Exec {
  return { run: (argv) => Promise.resolve(fakeSysctl({ ...VALUES }, argv.slice(1), refusals)) };
}

Deno.test("many settings are read by one program, those that are missing keep their place", {
  permissions: "none",
}, async () => {
  const names = ["net.none", "net.b", "net.a", "net.other", "net.c"];
  assertEquals([...await readSysctls(program(), names)], [
    ["net.none", null],
    ["net.b", "32768\t60999"],
    ["net.a", "1"],
    ["net.other", null],
    ["net.c", ""],
  ]);
  assertEquals([...await readSysctls(program(), [])], []);
});

Deno.test(
  "a setting that may not be read is an error, and so is silence",
  { permissions: "none" },
  async () => {
    const message = 'sysctl: permission denied on key "net.a"';
    const refusing = program({ read: { "net.a": message } });
    await assertRejects(() => readSysctls(refusing, ["net.none", "net.a", "net.b"]), ExecError, message);
    const silent: Exec = { run: () => Promise.resolve({ code: 0, stdout: "", stderr: "" }) };
    await assertRejects(() => readSysctls(silent, ["net.a"]), ExecError, "sysctl net.a");
  },
);

Deno.test("many settings are written by one program, also where some of them are refused", {
  permissions: "none",
}, async () => {
  const writing = (refusals: SysctlRefusals) => {
    const values: Record<string, string> = { "net.a": "0", "net.b": "0", "net.c": "1" };
    const started: string[] = [];
    const exec: Exec = {
      run: (argv) => {
        started.push(argv.join(" "));
        return Promise.resolve(fakeSysctl(values, argv.slice(1), refusals));
      },
    };
    return { values, started, exec };
  };
  const changes = ["net.a", "net.none", "net.c", "net.b"].map((name) => ({
    name,
    found: name === "net.none" ? null : name === "net.c" ? "1" : "0",
    value: "1",
  }));
  const allowed = writing({});
  assertEquals(await changeSysctls(allowed.exec, changes), [
    { kind: "changed", found: "0" },
    { kind: "missing" },
    { kind: "unchanged", found: "1" },
    { kind: "changed", found: "0" },
  ]);
  assertEquals(allowed.values, { "net.a": "1", "net.b": "1", "net.c": "1" });
  assertEquals(allowed.started, ["sysctl -w net.a=1 net.b=1"]);

  const message = 'sysctl: setting key "net.a": Read-only file system';
  const refused = writing({ write: { "net.a": message } });
  assertEquals(
    (await changeSysctls(refused.exec, changes)).map((outcome) => outcome.kind),
    ["readOnly", "missing", "unchanged", "changed"],
  );
  assertEquals(refused.values["net.b"], "1");
  // Which one it means shows when each is written once more.
  assertEquals(refused.started, ["sysctl -w net.a=1 net.b=1", "sysctl -w net.a=1", "sysctl -w net.b=1"]);
  assertEquals(await changeSysctls(writing({}).exec, []), []);
});

const NONE = { permissions: "none" } as const;

function machine(values: Record<string, string>, refusals: SysctlRefusals = {}) {
  const started: string[] = [];
  const exec: Exec = {
    run: (argv) => {
      started.push(argv.join(" "));
      return Promise.resolve(fakeSysctl(values, argv.slice(1), refusals));
    },
  };
  return { exec, started };
}

Deno.test(
  "what is read ahead is not read again, but for what was missing or has been written",
  NONE,
  async () => {
    const values: Record<string, string> = { "a.one": "1", "a.two": "2", [DISABLE_IPV6]: "0" };
    const { exec, started } = machine(values);
    const sysctls = await nodeSysctls(exec, silentLogger, ["a.one", "a.two", "a.module"]);
    assertEquals(started, [`sysctl a.one a.two a.module ${DISABLE_IPV6}`]);
    assertEquals([sysctls.known, sysctls.ipv6Disabled], [true, "0"]);
    assertEquals([...await sysctls.read(["a.two", "a.one"])], [["a.two", "2"], ["a.one", "1"]]);
    assertEquals(started.length, 1);
    values["a.module"] = "3";
    assertEquals([...await sysctls.read(["a.one", "a.module"])], [["a.one", "1"], ["a.module", "3"]]);
    assertEquals(started.slice(1), ["sysctl a.module"]);
    await sysctls.change([{ name: "a.one", found: "1", value: "9" }]);
    values["a.two"] = "8";
    sysctls.forget(["a.two"]);
    assertEquals([...await sysctls.read(["a.one", "a.two"])], [["a.one", "9"], ["a.two", "8"]]);
    assertEquals(started.slice(2), ["sysctl -w a.one=9", "sysctl a.one a.two"]);
  },
);

Deno.test("one setting that cannot be read fails its reader alone", NONE, async () => {
  const problem = 'sysctl: permission denied on key "a.one"';
  const { exec } = machine({ "a.one": "1", "a.two": "2", [DISABLE_IPV6]: "1" }, {
    read: { "a.one": problem },
  });
  const sysctls = await nodeSysctls(exec, silentLogger, ["a.one", "a.two"]);
  assertEquals([sysctls.ipv6Disabled, (await sysctls.read(["a.two"])).get("a.two")], ["1", "2"]);
  await assertRejects(() => sysctls.read(["a.one"]), ExecError, "permission denied");
});

Deno.test(
  "a value that may not be written is an outcome, one that the kernel refuses is an error",
  NONE,
  async () => {
    const values = { "a.one": "1", "a.two": "2", [DISABLE_IPV6]: "0" };
    const { exec } = machine(values, {
      write: {
        "a.one": 'sysctl: setting key "a.one": Read-only file system',
        "a.two": 'sysctl: setting key "a.two": Invalid argument',
      },
    });
    const sysctls = await nodeSysctls(exec, silentLogger);
    const outcomes = await sysctls.change([{ name: "a.one", found: "1", value: "9" }]);
    assertEquals(outcomes?.map(({ kind }) => kind), ["readOnly"]);
    const both = ["1", "2"].map((found, index) => ({
      name: `a.${["one", "two"][index]}`,
      found,
      value: "9",
    }));
    await assertRejects(() => sysctls.change(both), ExecError, "Invalid argument");
  },
);
