import { assertEquals, assertRejects } from "@std/assert";
import { fakeSysctl, type SysctlRefusals } from "../../tests/support/fake_sysctl.ts";
import { silentLogger } from "../observe/log.ts";
import { ExecError } from "../errors.ts";
import type { Exec } from "./exec.ts";
import { DISABLE_IPV6, nodeSysctls } from "./node_sysctls.ts";

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

Deno.test("one setting that cannot be read is told to whoever asks for it", NONE, async () => {
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
