import { assertEquals } from "@std/assert";
import { OWN_PROGRAMS } from "../../kernel/exec.ts";
import { withFolder } from "../../../tests/support/temp_files.ts";
import { ownProgram } from "./credentials.ts";

Deno.test("kproxy's own programs are known by name and path; others are none of them", {
  permissions: "none",
}, () => {
  const cases: readonly (readonly [command: string, own: string | null])[] = [
    ["ip", "ip"],
    ["/sbin/ip", "ip"],
    ["/nowhere/ip", "ip"],
    ["./../bin/nft", "nft"],
    ["iptables-legacy-restore", "iptables-legacy-restore"],
    ["login", null],
    ["/opt/login", null],
    ["ip-login", null],
    ["ip/login", null],
    ["", null],
  ];
  for (const [command, own] of cases) assertEquals(ownProgram(command), own, command);
  for (const name of OWN_PROGRAMS) assertEquals(ownProgram(name), name);
});

Deno.test("the runtime starts a program by the path that was granted, not by another one that leads to it", async () => {
  await withFolder(async (folder) => {
    const [granted, link, hardLink] = [`${folder}/granted`, `${folder}/link`, `${folder}/hard`];
    await Deno.writeTextFile(granted, "#!/bin/sh\n", { mode: 0o755 });
    await Deno.symlink(granted, link);
    await Deno.link(granted, hardLink);
    const script = `for (const path of Deno.args) {
      try {
        new Deno.Command(path).outputSync();
        console.log("started");
      } catch (error) {
        console.log(error.name);
      }
    }`;
    await Deno.writeTextFile(`${folder}/start.ts`, script);
    const { stdout } = await new Deno.Command(Deno.execPath(), {
      args: [
        "run",
        "-q",
        "--no-prompt",
        `--allow-run=${granted}`,
        `${folder}/start.ts`,
        granted,
        link,
        hardLink,
      ],
    }).output();
    assertEquals(new TextDecoder().decode(stdout).trim().split("\n"), [
      "started",
      "NotCapable",
      "NotCapable",
    ]);
  });
});
