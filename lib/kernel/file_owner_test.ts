import { assertEquals } from "@std/assert";
import { withFolder } from "../../tests/support/temp_files.ts";
import { othersMayWrite, writableByOthers } from "./file_owner.ts";

const FOREIGN = (Deno.uid() ?? 0) + 4711;

Deno.test("others may write what belongs to another user, or what their bits say", () => {
  for (
    const [uid, gid, mode, wanted] of [
      [0, 0, 0o644, null],
      [0, 0, 0o664, null],
      [Deno.uid(), 4711, 0o644, null],
      // A Secret of a pod with fsGroup.
      [0, 2000, 0o440, null],
      [0, 4711, 0o664, "may be written by others (mode 0664)"],
      [0, 0, 0o646, "may be written by others (mode 0646)"],
      [FOREIGN, 0, 0o600, `belongs to user ${FOREIGN}`],
    ] as const
  ) assertEquals(othersMayWrite({ uid, gid, mode }), wanted, `${uid} ${gid} ${mode?.toString(8)}`);
});

/** The problem found for a name in the folder, with the folder's own path left out. */
async function found(folder: string, name: string): Promise<string | undefined> {
  return (await writableByOthers(`${folder}/${name}`))?.replace(await Deno.realPath(folder), "");
}

Deno.test("every directory and link on the way counts, and only those", async () => {
  await withFolder(async (folder) => {
    await Deno.mkdir(`${folder}/open/inner`, { recursive: true });
    await Deno.mkdir(`${folder}/closed`);
    for (const place of ["open", "open/inner", "closed"]) {
      await Deno.writeTextFile(`${folder}/${place}/file`, "");
    }
    await Deno.chmod(`${folder}/open`, 0o777);
    await Deno.symlink("../open/inner/file", `${folder}/closed/into-open`);
    await Deno.symlink("../closed/file", `${folder}/open/into-closed`);
    await Deno.symlink("loop", `${folder}/closed/loop`);
    const open = "/open may be written by others (mode 0777)";
    assertEquals(await found(folder, "closed/file"), undefined);
    assertEquals(await found(folder, "closed/nothing"), undefined);
    assertEquals(await found(folder, "closed/loop"), undefined);
    assertEquals(await found(folder, "open/../closed/file"), open);
    for (const name of ["open", "open/file", "open/inner/file", "closed/into-open", "open/into-closed"]) {
      assertEquals(await found(folder, name), open, name);
    }
    await Deno.chmod(`${folder}/closed/file`, 0o666);
    assertEquals(await found(folder, "closed/file"), "/closed/file may be written by others (mode 0666)");
    // As /tmp is: others cannot take away what is not theirs.
    await Deno.chmod(`${folder}/open`, 0o1777);
    assertEquals(await found(folder, "open/inner/file"), undefined);
  });
});

Deno.test("what the kubelet mounts passes: a ConfigMap has mode 0777, and a link leads to what it holds", async () => {
  await withFolder(async (folder) => {
    await Deno.mkdir(`${folder}/config/..2026_11_24`, { recursive: true });
    await Deno.writeTextFile(`${folder}/config/..2026_11_24/config.conf`, "");
    await Deno.chmod(`${folder}/config`, 0o777);
    await Deno.symlink("..data/config.conf", `${folder}/config/config.conf`);
    assertEquals(await found(folder, "config"), "/config may be written by others (mode 0777)");
    await Deno.symlink("..2026_11_24", `${folder}/config/..data`);
    assertEquals(await found(folder, "config"), undefined);
    assertEquals(await found(folder, "config/config.conf"), undefined);
  });
});

Deno.test("what the shell hands over has no owner", async () => {
  for (const path of ["/dev/fd/63", "/dev/stdin", "/proc/self/fd/0"]) {
    assertEquals(await writableByOthers(path), null, path);
  }
});
