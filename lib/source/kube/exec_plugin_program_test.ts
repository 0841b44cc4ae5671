import { assertEquals } from "@std/assert";
import { OWN_PROGRAMS } from "../../kernel/exec.ts";
import { ownProgramBehind } from "./credentials.ts";

Deno.test("kproxy's own programs are known by name, path, link and file; others are none of them", async () => {
  const folder = await Deno.makeTempDir();
  try {
    const [bin, other] = [`${folder}/bin`, `${folder}/other`];
    await Deno.mkdir(bin);
    await Deno.mkdir(other);
    for (const name of ["ip", "xtables-nft-multi", "login"]) {
      await Deno.writeTextFile(`${bin}/${name}`, `#!/bin/sh\n# ${name}\n`, { mode: 0o755 });
    }
    await Deno.symlink("xtables-nft-multi", `${bin}/iptables`);
    await Deno.symlink(`${bin}/ip`, `${other}/token`);
    await Deno.symlink("token", `${other}/token-again`);
    await Deno.link(`${bin}/ip`, `${other}/hard`);
    await Deno.symlink("loop", `${other}/loop`);
    await Deno.symlink(`${bin}/login`, `${other}/fine`);
    const cases: readonly (readonly [command: string, own: string | null])[] = [
      ["ip", "ip"],
      ["/sbin/ip", "ip"],
      ["/nowhere/ip", "ip"],
      ["./../bin/nft", "nft"],
      ["iptables-legacy-restore", "iptables-legacy-restore"],
      [`${other}/token`, "ip"],
      [`${other}/token-again`, "ip"],
      [`${other}/hard`, "ip"],
      ["token", "ip"],
      // One file with many names: whoever starts it chooses the name.
      [`${bin}/xtables-nft-multi`, "iptables"],
      ["xtables-nft-multi", "iptables"],
      ["login", null],
      [`${bin}/login`, null],
      [`${other}/fine`, null],
      [`${other}/loop`, null],
      [`${other}/absent`, null],
      [`${bin}/login/x`, null],
      ["absent", null],
      ["ip-login", null],
      ["", null],
    ];
    for (const [command, own] of cases) {
      assertEquals(await ownProgramBehind(command, [bin, other]), own, command);
    }
    for (const name of OWN_PROGRAMS) assertEquals(await ownProgramBehind(name), name);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
