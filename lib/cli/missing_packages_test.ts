import { assertEquals } from "@std/assert";
import { missingPackageText } from "./missing_packages.ts";

const HELP =
  'run "deno cache --frozen main.ts start.ts" in /opt/kproxy where there is a network, with the same DENO_DIR, or take what ' +
  '"deno task bundle" builds there, which needs neither packages nor a network';

const CASES: readonly [message: string, text: string | undefined][] = [
  [
    "Failed caching npm package '@a/b@1.0.0'\n    0: error sending request for url (https://r/@a/b)\n    1: client error (Connect)\n" +
    "    2: failed to lookup address information\n    at file:///opt/kproxy/lib/model/ip.ts:6:20",
    `The package @a/b@1.0.0, which deno.json names, is not on this machine and cannot be had (failed to lookup address information): ${HELP}`,
  ],
  [
    "Failed caching npm package 'b@1.0.0'\n    0: npm package not found in cache: \"b\", --cached-only is specified.",
    `The package b@1.0.0, which deno.json names, is not on this machine and cannot be had (nothing may be downloaded at a start): ${HELP}`,
  ],
  [
    "Failed caching npm package 'b@1.0.0'",
    `The package b@1.0.0, which deno.json names, is not on this machine and cannot be had: ${HELP}`,
  ],
  ["the object has no name", undefined],
  ["a.yaml: Failed caching npm package 'b'", undefined],
];

Deno.test("a package that is missing is reported in one line, with the reason and what helps", {
  permissions: "none",
}, () => {
  for (const [message, text] of CASES) {
    assertEquals(missingPackageText(new TypeError(message), "/opt/kproxy"), text, message);
  }
  assertEquals(missingPackageText("no error", "/opt/kproxy"), undefined);
});
