import { assertEquals } from "@std/assert";
import { connReuse } from "./preflight_sysctls.ts";

const permissions = "none";

// conn_reuse_mode by kernel version.
Deno.test("conn_reuse_mode is chosen by the version of the kernel", { permissions }, () => {
  for (
    const [release, choice] of [
      ["3.10.0-1160.el7.x86_64", "too old"],
      ["4.0.9", "too old"],
      ["4.1.0", "off"],
      ["4.19.0-26-amd64", "off"],
      ["5.4.0-150-generic", "off"],
      ["5.8.18", "off"],
      ["5.9.0", "leave"],
      ["5.10.0-28-cloud-amd64", "leave"],
      ["6.1.176", "leave"],
      ["10.0", "leave"],
    ] as const
  ) {
    assertEquals(connReuse(`${release}\n`), choice, release);
  }
  assertEquals(connReuse("FreeBSD"), null);
});
