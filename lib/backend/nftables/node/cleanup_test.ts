import { assertEquals } from "@std/assert";
import { FakeNft } from "../../../../tests/support/fake_nft.ts";
import type { CleanupProxy } from "../../../config/types.ts";
import { ExecError } from "../../../errors.ts";
import type { Exec } from "../../../kernel/exec.ts";
import { NFTABLES_CLEANUP } from "./cleanup.ts";

const NONE = { permissions: "none" } as const;
const OWN = ["ip kube-proxy", "ip kproxy", "ip kproxy-next", "ip6 kproxy"];
const OTHERS = ["ip other", "inet kproxy", "ip kproxy-nextdoor"];

async function node(): Promise<FakeNft> {
  const fake = new FakeNft();
  await fake.others([...OWN, ...OTHERS].map((table) => `add table ${table}\n`).join(""));
  return fake;
}

async function clean(exec: Exec, dryRun = false, of?: CleanupProxy) {
  const report = await NFTABLES_CLEANUP.removeOthers?.({
    exec,
    families: ["IPv4", "IPv6"],
    dryRun,
    ...(of === undefined ? {} : { of }),
  });
  return {
    removed: report?.removed.map(({ command }) => command),
    failed: report?.failed.map(({ place, error }) => `${place}: ${error.message}`),
  };
}

Deno.test("exactly our tables go, and nothing is listed", NONE, async () => {
  const fake = await node();
  const commands = OWN.map((table) => `delete table ${table}`);
  assertEquals(await clean(fake, true), { removed: commands, failed: [] });
  assertEquals(fake.transactions, []);
  assertEquals(await clean(fake), { removed: commands, failed: [] });
  for (const table of OWN) assertEquals(fake.listed(table), "", table);
  for (const table of OTHERS) assertEquals(fake.listed(table) === "", false, table);
  assertEquals(fake.lists, []);
  assertEquals(await clean(fake), { removed: [], failed: [] });
});

Deno.test("one proxy's tables go, and the other's stay", NONE, async () => {
  for (const owner of ["kproxy", "kube-proxy"] as const) {
    const fake = await node();
    const wanted = OWN.filter((table) => table.endsWith(" kube-proxy") === (owner === "kube-proxy"));
    const commands = wanted.map((table) => `delete table ${table}`);
    assertEquals(await clean(fake, false, owner), { removed: commands, failed: [] });
    for (const table of OWN) assertEquals(fake.listed(table) === "", wanted.includes(table), table);
    assertEquals(await clean(fake, false, owner), { removed: [], failed: [] });
  }
});

Deno.test("a table that stays does not keep the others; missing rights are reported once", NONE, async () => {
  const fake = await node();
  fake.fail = (_argv, stdin) =>
    stdin.startsWith("add") && stdin.includes("ip kproxy\n")
      ? {
        code: 1,
        stdout: "",
        stderr: "/dev/stdin:2:1-9: Error: Could not process rule: Device or resource busy\n",
      }
      : undefined;
  const { removed, failed } = await clean(fake);
  assertEquals(removed, OWN.filter((table) => table !== "ip kproxy").map((table) => `delete table ${table}`));
  assertEquals(failed?.length, 1);
  fake.fail = () => ({ code: 1, stdout: "", stderr: "Operation not permitted (you must be root)\n" });
  assertEquals((await clean(fake)).failed?.length, 1);
});

Deno.test("a table that another process owns stays, and does not keep the others", NONE, async () => {
  const fake = new FakeNft();
  await fake.others(
    "add table ip kproxy { flags owner ; }\nadd table ip kproxy-next\nadd table ip6 kproxy\n",
  );
  for (const dryRun of [true, false]) {
    const { removed, failed } = await clean(fake, dryRun);
    assertEquals(removed, ["delete table ip kproxy-next", "delete table ip6 kproxy"]);
    assertEquals(failed, [
      "nft ip kproxy: table ip kproxy belongs to another process (nft) (flags owner), and no other program may change or " +
      "remove it until that ends",
    ]);
  }
});

Deno.test("no program and no nf_tables mean that nothing is there", NONE, async () => {
  const missing: Exec = { run: (argv) => Promise.reject(new ExecError(argv, -1, "entity not found: nft")) };
  assertEquals(await clean(missing), { removed: [], failed: [] });
  const none: Exec = {
    run: () =>
      Promise.resolve({
        code: 1,
        stdout: "",
        stderr: "netlink: Error: cache initialization failed: Protocol not supported\n",
      }),
  };
  assertEquals(await clean(none), { removed: [], failed: [] });
});
