import { assertEquals } from "@std/assert";
import { isLockBusy } from "./iptables_lock.ts";

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
