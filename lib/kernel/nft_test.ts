import { assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { ExecError } from "../errors.ts";
import { alreadyExists, describeNftFailure, Nft, nftErrors, nftFailureKind } from "./nft.ts";

const ARGV = ["nft", "-f", "-"];
const TWO = `/dev/stdin:2:39-56: Error: Could not process rule: File exists
add element ip kproxy endpoints-tcp { 10.96.0.5 . 80 . 0 : 1.2.3.4 . 80, 10.96.0.6 . 80 . 0 : 1.2.3.4 . 80 }
                                      ^^^^^^^^^^^^^^^^^^
/dev/stdin:3:39-56: Error: Could not process rule: File exists
add element ip kproxy endpoints-tcp { 10.96.0.7 . 80 . 0 : 1.2.3.4 . 80 }
                                      ^^^^^^^^^^^^^^^^^^
`;
const SYNTAX = `/dev/stdin:7:44-45: Error: syntax error, unexpected string, expecting comma or '}'
add element ip kproxy cluster-ips { 1.2.3.4.5 }
                                           ^^
`;

Deno.test({
  name: "every line that nft complains of is found",
  permissions: "none",
  fn: () => {
    assertEquals(nftErrors(TWO), [{ line: 2, message: "File exists" }, {
      line: 3,
      message: "File exists",
    }]);
    assertEquals(nftErrors(SYNTAX).map(({ line }) => line), [7]);
    assertEquals(nftErrors("netlink: Error: cache initialization failed: Operation not permitted\n"), []);
  },
});

Deno.test({
  name: "a failure is reported as what it is",
  permissions: "none",
  fn: () => {
    const cases: readonly [stderr: string, code: number, kind: string][] = [
      [TWO, 1, "rejected"],
      [SYNTAX, 1, "rejected"],
      ["", 139, "rejected"],
      ["", 137, "machine"],
      ["/dev/stdin:1:1-15: Error: Could not process rule: Operation not permitted\n", 1, "permission"],
      ["Operation not permitted (you must be root)\n", 1, "permission"],
      ["/dev/stdin:1:1-15: Error: Could not process rule: Cannot allocate memory\n", 1, "machine"],
      ["netlink: Error: Could not process rule: No buffer space available\n", 1, "machine"],
      ["entity not found: nft", -1, "machine"],
    ];
    for (const [stderr, code, kind] of cases) {
      assertEquals(nftFailureKind(new ExecError(ARGV, code, stderr)), kind, stderr);
    }
    assertEquals(alreadyExists(new ExecError(ARGV, 1, TWO)), true);
    assertEquals(alreadyExists(new ExecError(ARGV, 1, SYNTAX)), false);
  },
});

Deno.test({
  name: "a failure is described by its first complaint and the text it is about",
  permissions: "none",
  fn: () => {
    assertStringIncludes(
      describeNftFailure(new ExecError(ARGV, 1, TWO)),
      "File exists: add element ip kproxy endpoints-tcp { 10.96.0.5 . 80 . 0",
    );
    assertEquals(describeNftFailure(new ExecError(ARGV, 139, "")), "nft was killed by signal SIGSEGV");
    assertEquals(describeNftFailure(new ExecError(ARGV, 1, "Cannot open\nmore")), "Cannot open");
    const long = `add element ip kproxy cluster-ips { ${"10.0.0.1, ".repeat(1000)}bad }`;
    const place = long.indexOf("bad");
    const stderr = `/dev/stdin:1:${place}-${place}: Error: no\n${long}\n${" ".repeat(place)}^^^\n`;
    const described = describeNftFailure(new ExecError(ARGV, 1, stderr));
    assertStringIncludes(described, "bad");
    assertEquals(described.length < 350, true, described);
  },
});

Deno.test("a table is missing only if nft says so: a library or a list that is missing is a failure", {
  permissions: "none",
}, async () => {
  const nftThat = (code: number, stderr: string): Nft =>
    new Nft({ run: () => Promise.resolve({ code, stdout: "", stderr }) });
  const missing = nftThat(
    1,
    "Error: No such file or directory\nlist table ip kproxy\n              ^^^^^^\n",
  );
  assertEquals(await missing.listTable("ip", "kproxy"), null);
  await assertRejects(() => missing.listRules("ip", "kproxy"), ExecError);
  const broken = nftThat(
    127,
    "nft: error while loading shared libraries: libnftables.so.1: " +
      "cannot open shared object file: No such file or directory\n",
  );
  await assertRejects(() => broken.listTable("ip", "kproxy"), ExecError);
  await assertRejects(() => broken.hasTable("ip", "kproxy"), ExecError);
});
