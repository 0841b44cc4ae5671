import { assertEquals, assertRejects } from "@std/assert";
import { FakeIptables } from "../../tests/support/fake_iptables.ts";
import { ExecError } from "../errors.ts";
import type { IpFamily } from "../model/objects.ts";
import type { Exec, ExecResult } from "./exec.ts";
import { silentLogger } from "../observe/log.ts";
import { iptablesOfNode } from "./iptables_variant.ts";
import { describeRestoreFailure, isLockBusy, isRuleRefusal } from "./tool_errors.ts";
import { UNKNOWN_SYSCTLS } from "./sysctl.ts";

type Answer = ExecResult | ExecError;

function failing(code: number, stderr: string): ExecResult {
  return { code, stdout: "", stderr: `${stderr}\n` };
}

/** Words of kernels without the family, as both variants print them, and one that needs no program to tell. */
const ABSENT: readonly Answer[] = [
  failing(
    3,
    "ip6tables v1.8.9 (legacy): can't initialize ip6tables table `nat': Table does not exist (do you need to insmod?)",
  ),
  failing(
    3,
    "ip6tables v1.8.9 (legacy): can't initialize ip6tables table `nat': Address family not supported by protocol",
  ),
  failing(3, "ip6tables v1.8.9 (legacy): can't initialize ip6tables table `nat': Protocol not available"),
  failing(1, "ip6tables: Failed to initialize nft: Protocol not supported"),
  failing(1, "ip6tables v1.8.9 (nf_tables): Could not fetch rule set generation id: Invalid argument"),
  failing(4, "ip6tables v1.8.9 (nf_tables):  TABLE_ADD failed (Operation not supported): table nat"),
  failing(
    4,
    "ip6tables v1.8.9 (nf_tables):  CHAIN_ADD failed (No such file or directory): chain POSTROUTING",
  ),
  failing(1, "ip6tables v1.8.9 (nf_tables): table `nat' is incompatible, use 'nft' tool."),
  new ExecError(["ip6tables"], -1, "entity not found"),
];
/** What a machine in trouble, or a program that is not what it was, leads to. */
const UNCLEAR: readonly Answer[] = [
  new ExecError(["ip6tables"], 137, ""),
  new ExecError(["ip6tables"], 139, ""),
  new ExecError(["ip6tables"], -2, "Resource temporarily unavailable (os error 11)"),
  new ExecError(["ip6tables"], 143, "", { timedOutMs: 30_000 }),
  failing(3, "ip6tables v1.8.9 (legacy): can't initialize ip6tables table `nat': Cannot allocate memory"),
  failing(
    1,
    "ip6tables v1.8.9 (nf_tables): Could not fetch rule set generation id: No buffer space available",
  ),
  failing(
    127,
    "ip6tables: error while loading shared libraries: libmnl.so.0: cannot open shared object file",
  ),
  failing(1, ""),
  failing(0, ""),
];

/** The families in use, and those refused, where the IPv6 programs answer every question like this. */
async function families(answer: Answer): Promise<[readonly IpFamily[], readonly IpFamily[]]> {
  const fake = new FakeIptables();
  const exec: Exec = {
    run: (argv, options) => {
      if (!argv[0]?.startsWith("ip6tables")) return fake.run(argv, options);
      // A kernel without the family still has programs that tell their version.
      if (ABSENT.includes(answer) && argv.includes("--version") && !(answer instanceof ExecError)) {
        return fake.run(argv, options);
      }
      return answer instanceof ExecError ? Promise.reject(answer) : Promise.resolve(answer);
    },
  };
  const options = { primaryFamily: "IPv4", sysctls: UNKNOWN_SYSCTLS, log: silentLogger } as const;
  const { families, refused } = await iptablesOfNode(exec, options);
  return [[...families.keys()], refused.map(({ family }) => family)];
}

for (const answer of ABSENT) {
  const words = answer.stderr.trim();
  Deno.test(`a family is absent where its programs say: ${words}`, { permissions: "none" }, async () => {
    assertEquals(await families(answer), [["IPv4"], ["IPv6"]]);
  });
}

for (const answer of UNCLEAR) {
  const words = answer instanceof ExecError ? answer.ending : `${answer.code} ${answer.stderr.trim()}`;
  Deno.test(`it is unknown whether a family is there after: ${words}`, { permissions: "none" }, async () => {
    await assertRejects(() => families(answer), ExecError);
  });
}

const LOCK = "Another app is currently holding the xtables lock. Perhaps you want to use the -w option?";

/** Failures of iptables-restore in the words of both variants, and whether a rule is to blame. */
const RESTORES: readonly (readonly [blames: boolean, code: number, stderr: string])[] = [
  [true, 1, "iptables-restore: line 3 failed"],
  [true, 1, "iptables-restore: line 3 failed: No chain/target/match by that name."],
  [
    true,
    4,
    "iptables-restore v1.8.9 (nf_tables): \nline 3: RULE_APPEND failed (Invalid argument): rule in chain KUBE-SVC-X",
  ],
  [
    true,
    4,
    "iptables-restore v1.8.9 (nf_tables): \nline 3: RULE_APPEND failed (No such file or directory): rule in chain X",
  ],
  [
    true,
    4,
    "iptables-restore v1.8.9 (nf_tables): \nline 3: RULE_APPEND failed (Device or resource busy): rule in chain X",
  ],
  [
    true,
    4,
    "iptables-restore v1.8.9 (nf_tables): \nline 3: RULE_APPEND failed (Operation not supported): rule in chain X",
  ],
  [true, 2, "iptables-restore v1.8.9 (legacy): host/network `nobody' not found\nError occurred at line: 3"],
  [true, 2, "iptables-restore v1.8.9 (nf_tables): Set KUBE-X doesn't exist.\n\nError occurred at line: 3"],
  [false, 4, LOCK],
  [
    false,
    4,
    `${
      LOCK.replace(". Perhaps", "; still 5s 0us time ahead to have a chance to grab the lock...\n Perhaps")
    }`,
  ],
  [false, 4, "iptables-restore: Resource temporarily unavailable"],
  [false, 4, "Fatal: can't open lock file /run/xtables.lock: Read-only file system"],
  [false, 4, "Fatal: can't open lock file /run/xtables.lock: No such file or directory"],
  [
    false,
    4,
    "iptables-restore v1.8.9 (nf_tables): \nline 3: RULE_APPEND failed (No space left on device): rule in chain X",
  ],
  [
    false,
    4,
    "iptables-restore v1.8.9 (nf_tables): \nline 3: RULE_APPEND failed (Cannot allocate memory): rule in chain X",
  ],
  [
    false,
    4,
    "iptables-restore v1.8.9 (nf_tables): \nline 3: RULE_APPEND failed (Out of memory): rule in chain X",
  ],
  [false, 4, "iptables-restore v1.8.9 (nf_tables): \nline 9: COMMIT failed (Interrupted system call)"],
  [
    false,
    4,
    "iptables-restore v1.8.9 (nf_tables): Could not fetch rule set generation id: Too many open files",
  ],
  [false, 1, "iptables-restore: Memory allocation problem."],
  [false, 4, "iptables-restore v1.8.9 (nf_tables): Could not fetch rule set generation id: Invalid argument"],
  [
    false,
    4,
    "iptables-restore v1.8.9 (nf_tables): Could not fetch rule set generation id: Permission denied (you must be root)",
  ],
  [false, 3, "iptables-restore v1.8.9 (legacy): can't initialize iptables table `nat': Table does not exist"],
  [false, 3, "Error: cmp sreg undef\niptables-restore v1.8.9 (nf_tables): Parsing nftables rule failed"],
  [
    false,
    127,
    "iptables-restore: error while loading shared libraries: libmnl.so.0: cannot open shared object file",
  ],
  [false, 137, ""],
  [false, 139, "iptables-restore: line 3 failed"],
  [false, -1, "entity not found"],
  [false, -2, "Resource temporarily unavailable (os error 11)"],
];

Deno.test("which failures of iptables-restore are the fault of a rule", { permissions: "none" }, () => {
  // A Service may be called so.
  const input =
    '*nat\n:KUBE-SVC-X - [0:0]\n-A KUBE-SVC-X -m comment --comment "shop/lock:No-space left" -j RETURN\nCOMMIT\n';
  for (const [blames, code, stderr] of RESTORES) {
    const error = new ExecError(["iptables-restore"], code, describeRestoreFailure(stderr, input));
    assertEquals(isRuleRefusal(error), blames, `${code} ${stderr}`);
  }
  const late = new ExecError(["iptables-restore"], 1, "line 3 failed", { timedOutMs: 30_000 });
  assertEquals([isRuleRefusal(late), isRuleRefusal(new Error("line 3 failed"))], [false, false]);
});

// Texts of iptables 1.8.9 on Debian 12.
const CASES: readonly { name: string; code: number; stderr: string; busy: boolean }[] = [
  {
    name: "another program holds the lock",
    code: 4,
    stderr:
      "Another app is currently holding the xtables lock; still 0s 0us time ahead to have a chance to grab the lock...\n",
    busy: true,
  },
  {
    name: "short of resources",
    code: 4,
    stderr: "RULE_APPEND failed (Resource temporarily unavailable)",
    busy: true,
  },
  {
    name: "refused by the kernel",
    code: 4,
    stderr: "CHAIN_DEL failed (Device or resource busy)",
    busy: false,
  },
  {
    name: "no place for the lock file",
    code: 4,
    stderr: "Fatal: can't open lock file /run/xtables.lock: Read-only file system\n",
    busy: false,
  },
  {
    name: "not root",
    code: 4,
    stderr:
      "iptables v1.8.9 (nf_tables): Could not fetch rule set generation id: Permission denied (you must be root)\n",
    busy: false,
  },
  {
    name: "refused: no such chain to append to",
    code: 4,
    stderr:
      "iptables-restore v1.8.9 (nf_tables): \nline 3: RULE_APPEND failed (No such file or directory): rule in chain X\n",
    busy: false,
  },
  {
    name: "interrupted",
    code: 4,
    stderr: "TABLE_FLUSH failed (Interrupted system call): table nat",
    busy: true,
  },
  { name: "nothing said", code: 4, stderr: "", busy: false },
  { name: "another status", code: 1, stderr: "holding the xtables lock", busy: false },
];

for (const { name, code, stderr, busy } of CASES) {
  Deno.test(`lock: ${name}`, { permissions: "none" }, () => assertEquals(isLockBusy({ code, stderr }), busy));
}
