import { assertEquals } from "@std/assert";
import { findProgram, installPackages, missingPackages, NODE_PACKAGES, TEST_PACKAGES } from "./setup.ts";

const ABSENT = { name: "absent-package", program: "no-such-program" };

Deno.test("programs are found on the PATH, folders and absent ones are not", () => {
  assertEquals(findProgram("sh")?.endsWith("/sh"), true);
  assertEquals([findProgram("no-such-program"), findProgram("../etc")], [undefined, undefined]);
});

Deno.test("only what is missing is named", () => {
  assertEquals(missingPackages([{ name: "dash", program: "sh" }, ABSENT]), [ABSENT]);
});

Deno.test("where nothing can be installed, what is missing is left to the user", async () => {
  assertEquals(await installPackages([ABSENT], "this is not root"), [ABSENT]);
  assertEquals(await installPackages([{ name: "dash", program: "sh" }], "this is not root"), []);
});

Deno.test("the tests' packages contain those of the node", { permissions: "none" }, () => {
  assertEquals(NODE_PACKAGES.filter((wanted) => !TEST_PACKAGES.includes(wanted)), []);
  assertEquals(new Set(TEST_PACKAGES.map(({ name }) => name)).size, TEST_PACKAGES.length);
});
