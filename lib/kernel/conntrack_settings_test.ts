import { assert, assertEquals } from "@std/assert";
import { fakeSysctl, type SysctlRefusals } from "../../tests/support/fake_sysctl.ts";
import { withNetns } from "../../tests/support/netns.ts";
import { recordingLog } from "../../tests/support/recording_log.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../../tests/support/skip.ts";
import {
  applyConntrackSettings,
  type ConntrackSetting,
  conntrackSettings,
  type RefusedSetting,
} from "./conntrack_settings.ts";
import { ExecError } from "../errors.ts";
import { type Logger, silentLogger } from "../observe/log.ts";
import { cpuCount } from "./machine.ts";
import type { Exec } from "./exec.ts";
import { nodeSysctls } from "./sysctl.ts";
import { defaultConfig } from "../config/defaults.ts";
import type { ConntrackConfig } from "../config/types.ts";

const MAX = "net.netfilter.nf_conntrack_max";
const BUCKETS = "net.netfilter.nf_conntrack_buckets";
const UDP = "net.netfilter.nf_conntrack_udp_timeout";
const ASKED = "sysctl net.ipv6.conf.all.disable_ipv6";

/** Settings and what the program says instead of reading or writing one. */
function sysctls(
  values: Record<string, string>,
  refusals: SysctlRefusals = {},
): Exec & { started: string[]; writes: string[] } {
  const started: string[] = [];
  return {
    started,
    get writes() {
      return started.filter((line) => line.startsWith("sysctl -w "));
    },
    run(argv) {
      started.push(argv.join(" "));
      return Promise.resolve(fakeSysctl(values, argv.slice(1), refusals));
    },
  };
}

/** On a node of which nothing was read before but whether there is a program to ask. */
async function apply(
  exec: Exec,
  settings: readonly ConntrackSetting[],
  log: Logger,
): Promise<readonly RefusedSetting[]> {
  return await applyConntrackSettings(exec, settings, log, await nodeSysctls(exec, silentLogger));
}

function wanted(name: string, value: number, atLeast: boolean): ConntrackSetting {
  return { name, value, atLeast };
}

Deno.test("settings are written only if they differ, limits only if they are lower", {
  permissions: "none",
}, async () => {
  const values = { [MAX]: "262144", [BUCKETS]: "1024", [UDP]: "30" };
  const exec = sysctls(values);
  const { log, lines } = recordingLog();
  const settings = [wanted(MAX, 131072, true), wanted(BUCKETS, 32768, true), wanted(UDP, 10, false)];
  assertEquals(await apply(exec, settings, log), []);
  assertEquals(values, { [MAX]: "262144", [BUCKETS]: "32768", [UDP]: "10" });
  assertEquals(lines, [
    `I "Set sysctl" name="${BUCKETS}" value=32768 before="1024"`,
    `I "Set sysctl" name="${UDP}" value=10 before="30"`,
  ]);
  assertEquals(exec.writes, [`sysctl -w ${BUCKETS}=32768 ${UDP}=10`], "by one program");
  const again = sysctls(values);
  assertEquals(await apply(again, settings, log), []);
  assertEquals(again.started, [ASKED, `sysctl ${MAX} ${BUCKETS} ${UDP}`], "it finds them as they should be");
});

Deno.test("what cannot be written is a warning, and the others are still written", {
  permissions: "none",
}, async () => {
  for (
    const problem of [
      `sysctl: setting key "${BUCKETS}": Read-only file system`,
      `sysctl: permission denied on key "${BUCKETS}", ignoring`,
      `sysctl: setting key "${BUCKETS}": Invalid argument`,
    ]
  ) {
    const exec = sysctls({ [BUCKETS]: "1024", [UDP]: "30" }, { write: { [BUCKETS]: problem } });
    const { log, lines } = recordingLog();
    const settings = [wanted(MAX, 131072, true), wanted(BUCKETS, 32768, true), wanted(UDP, 10, false)];
    assertEquals(await apply(exec, settings, log), [
      { name: MAX, wanted: 131072, found: null, problem: "this kernel does not have it, or not loaded it" },
      { name: BUCKETS, wanted: 32768, found: "1024", problem },
    ], problem);
    assertEquals(lines.map((line) => line[0]), ["W", "W", "I"]);
  }
});

Deno.test("one setting that cannot be read keeps no other from being set", {
  permissions: "none",
}, async () => {
  const problem = `sysctl: permission denied on key "${BUCKETS}"`;
  const values = { [MAX]: "1024", [BUCKETS]: "1024", [UDP]: "30" };
  const exec = sysctls(values, { read: { [BUCKETS]: problem } });
  const settings = [wanted(MAX, 131072, true), wanted(BUCKETS, 32768, true), wanted(UDP, 10, false)];
  const refused = await apply(exec, settings, recordingLog().log);
  assertEquals(refused.map(({ problem, ...rest }) => ({ ...rest, problem: problem.trim() })), [
    { name: BUCKETS, wanted: 32768, found: null, problem },
  ]);
  assertEquals(values, { [MAX]: "131072", [BUCKETS]: "1024", [UDP]: "10" });
});

Deno.test("nothing to set starts no other program", { permissions: "none" }, async () => {
  const exec = sysctls({});
  assertEquals(await apply(exec, [], recordingLog().log), []);
  assertEquals(exec.started, [ASKED]);
});

Deno.test("a missing program is a warning for each setting", { permissions: "none" }, async () => {
  const exec: Exec = { run: (argv) => Promise.reject(new ExecError(argv, -1, "No such file or directory")) };
  const refused = await apply(exec, [wanted(UDP, 10, false)], recordingLog().log);
  assertEquals(refused.map(({ name, found }) => [name, found]), [[UDP, null]]);
  assert(refused[0]?.problem.includes("sysctl"), refused[0]?.problem);
});

e2eTest("settings of a namespace are set on the kernel, and the machine's own are refused", [
  ROOT_NAMESPACES,
  program("sysctl"),
], async () => {
  await withNetns(async ({ exec, run }) => {
    const { log } = recordingLog();
    const huge = 2 ** 31 - 1;
    const settings = [wanted(BUCKETS, huge, true), wanted(UDP, 47, false)];
    const refused = await apply(exec, settings, log);
    assertEquals(refused.map(({ name, wanted }) => [name, wanted]), [[BUCKETS, huge]]);
    assertEquals((await run(["sysctl", "-n", UDP])).trim(), "47");
    assertEquals(await apply(exec, [wanted(UDP, 47, false)], log), []);
  });
});

e2eTest(
  "a read-only /proc/sys is a warning",
  [ROOT_NAMESPACES, program("sysctl")],
  async () => {
    await withNetns(async ({ exec, run }) => {
      const before = (await run(["sysctl", "-n", UDP])).trim();
      const readOnly: Exec = {
        run: (argv, options) => {
          const script =
            'mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys && exec "$@"';
          return exec.run(["unshare", "--mount", "sh", "-c", script, "sh", ...argv], options);
        },
      };
      const { log, lines } = recordingLog();
      const refused = await apply(readOnly, [wanted(UDP, 47, false)], log);
      assertEquals(refused.map(({ name, wanted, found }) => [name, wanted, found]), [[UDP, 47, before]]);
      assert(/Read-only file system|permission denied/i.test(refused[0]!.problem), refused[0]!.problem);
      assertEquals(lines.length, 1);
      assertEquals(await apply(readOnly, [wanted(UDP, Number(before), false)], log), []);
    });
  },
);

Deno.test("the CPUs of the machine are counted", async () => {
  const online = (await Deno.readTextFile("/proc/cpuinfo")).match(/^processor/gm)?.length;
  assertEquals(await cpuCount(), online);
});

Deno.test(
  "without the permission the CPUs this process may use are counted",
  { permissions: "none" },
  async () => {
    assertEquals(await cpuCount(), navigator.hardwareConcurrency);
  },
);

const NOTHING: ConntrackConfig = {
  maxPerCore: 0,
  min: 0,
  tcpEstablishedTimeout: 0,
  tcpCloseWaitTimeout: 0,
  tcpBeLiberal: false,
  udpTimeout: 0,
  udpStreamTimeout: 0,
};

/** `name` without its prefix → value. */
function settings(fields: Partial<ConntrackConfig>, cpuCount = 1): Record<string, number> {
  return Object.fromEntries(
    conntrackSettings({ ...NOTHING, ...fields }, cpuCount).map(({ name, value }) => [
      name.replace("net.netfilter.nf_conntrack_", ""),
      value,
    ]),
  );
}

const SIZES: readonly [cpuCount: number, max: number, fields?: Partial<ConntrackConfig>][] = [
  [1, 131072],
  [4, 131072],
  [8, 262144],
  [32, 1048576],
  [64, 1048576],
  [1, 200000, { min: 200000 }],
  [1, 32768, { min: 0 }],
  [2, 7, { maxPerCore: 3, min: 7 }],
  // Scaled beyond the cap, min is not looked at.
  [64, 1048576, { min: 2000000 }],
  [1, 2000000, { min: 2000000 }],
];

Deno.test("the size of the table follows CPUs, floor and cap; the hash size is a quarter of it", {
  permissions: "none",
}, () => {
  const { maxPerCore, min } = defaultConfig().conntrack;
  for (const [cpuCount, max, fields] of SIZES) {
    assertEquals(
      settings({ maxPerCore, min, ...fields }, cpuCount),
      { max, buckets: Math.floor(max / 4) },
      `${cpuCount} CPUs ${JSON.stringify(fields)}`,
    );
  }
});

Deno.test("the defaults set size and TCP timeouts, in this order", { permissions: "none" }, () => {
  assertEquals(conntrackSettings(defaultConfig().conntrack, 2), [
    { name: "net.netfilter.nf_conntrack_max", value: 131072, atLeast: true },
    { name: "net.netfilter.nf_conntrack_buckets", value: 32768, atLeast: true },
    { name: "net.netfilter.nf_conntrack_tcp_timeout_established", value: 86400, atLeast: false },
    { name: "net.netfilter.nf_conntrack_tcp_timeout_close_wait", value: 3600, atLeast: false },
  ]);
});

Deno.test("what is 0 is left alone", { permissions: "none" }, () => {
  assertEquals(settings({}), {});
  assertEquals(settings({ min: 131072 }, 64), {});
});

Deno.test("fractions of a second are rounded up", { permissions: "none" }, () => {
  assertEquals(settings({ udpTimeout: 1, udpStreamTimeout: 1500, tcpCloseWaitTimeout: 1000 }), {
    tcp_timeout_close_wait: 1,
    udp_timeout: 1,
    udp_timeout_stream: 2,
  });
});

Deno.test("tcpBeLiberal sets 1 and never 0", { permissions: "none" }, () => {
  assertEquals(settings({ tcpBeLiberal: true }), { tcp_be_liberal: 1 });
  assertEquals(settings({ tcpBeLiberal: false }), {});
});
