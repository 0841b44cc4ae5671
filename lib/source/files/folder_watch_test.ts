import { assert, assertEquals } from "@std/assert";
import { silentLogger } from "../../observe/log.ts";
import { FolderWatch } from "./folder_watch.ts";
import { withFolder } from "../../../tests/support/temp_files.ts";

const NEVER = new AbortController().signal;

function watchOf(folder: string, times: { debounceMs?: number; pollMs?: number } = {}): FolderWatch {
  return new FolderWatch({ folders: [folder], debounceMs: 20, pollMs: 10_000, log: silentLogger, ...times });
}

/** The next answer that names a file: on a machine that stalls, a poll may be due before an event arrives. */
async function nextNamed(watch: FolderWatch): Promise<string[]> {
  for (let polls = 0; polls < 50; polls++) {
    const names = [...await watch.next(NEVER) ?? []];
    if (names.length > 0) return names;
  }
  return [];
}

Deno.test("a change is answered with the names of what changed", async () => {
  await withFolder(async (folder) => {
    await using watch = watchOf(folder);
    await watch.refresh();
    await Deno.writeTextFile(`${folder}/a.yaml`, "a");
    assertEquals([...await watch.next(NEVER) ?? []], ["a.yaml"]);
  });
});

Deno.test("changes in quick succession are one answer", async () => {
  await withFolder(async (folder) => {
    await using watch = watchOf(folder, { debounceMs: 400 });
    await watch.refresh();
    const answer = watch.next(NEVER);
    // Told by the watch itself: its timers and ours keep their order, however slow the machine is; writing a file is not bound to it.
    for (const name of ["a", "b", "c", "d"]) {
      watch.touch(name);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    assertEquals([...await answer ?? []].sort(), ["a", "b", "c", "d"]);
  });
});

Deno.test("a storm that does not end is answered all the same", async () => {
  await withFolder(async (folder) => {
    await using watch = watchOf(folder, { debounceMs: 30 });
    await watch.refresh();
    const storm = setInterval(() => watch.touch("a"), 5);
    try {
      const startMs = performance.now();
      assertEquals([...await watch.next(NEVER) ?? []], ["a"]);
      assert(performance.now() - startMs < 60_000);
    } finally {
      clearInterval(storm);
    }
  });
});

Deno.test("closing a file is no change, writing to it is", async () => {
  await withFolder(async (folder) => {
    // Not made by the opening: that would be a change before the writing, and answered by itself if the writing is late.
    await Deno.writeTextFile(`${folder}/a.yaml`, "b");
    await using watch = watchOf(folder, { pollMs: 200 });
    await watch.refresh();
    {
      using file = await Deno.open(`${folder}/a.yaml`, { write: true });
      await file.write(new Uint8Array([0x61]));
      assertEquals(await nextNamed(watch), ["a.yaml"]);
    }
    assertEquals([...await watch.next(NEVER) ?? ["aborted"]], []);
  });
});

Deno.test("reading is no change, and without any the poll answers with no names", async () => {
  await withFolder(async (folder) => {
    await Deno.writeTextFile(`${folder}/a.yaml`, "a");
    await using watch = watchOf(folder, { pollMs: 200 });
    await watch.refresh();
    await Deno.readTextFile(`${folder}/a.yaml`);
    assertEquals([...await watch.next(NEVER) ?? ["aborted"]], []);
  });
});

Deno.test("a folder that was replaced is watched again after a refresh", async () => {
  await withFolder(async (parent) => {
    const folder = `${parent}/manifests`;
    await Deno.mkdir(folder);
    await using watch = watchOf(folder, { pollMs: 300 });
    await watch.refresh();
    await Deno.rename(folder, `${parent}/away`);
    await Deno.mkdir(folder);
    while ((await watch.next(NEVER))?.size !== 0);
    await watch.refresh();
    await Deno.writeTextFile(`${folder}/a.yaml`, "a");
    assertEquals(await nextNamed(watch), ["a.yaml"]);
  });
});

Deno.test("aborting ends the wait, before and during it", async () => {
  await withFolder(async (folder) => {
    await using watch = watchOf(folder);
    await watch.refresh();
    assertEquals(await watch.next(AbortSignal.abort()), null);
    const abort = new AbortController();
    const answer = watch.next(abort.signal);
    abort.abort();
    assertEquals(await answer, null);
  });
});

Deno.test("a FIFO in the folder costs one poll, and no event after it", async () => {
  await withFolder(async (folder) => {
    await using watch = watchOf(folder, { pollMs: 200 });
    await watch.refresh();
    await new Deno.Command("mkfifo", { args: [`${folder}/fifo`] }).output();
    await watch.next(NEVER);
    await watch.refresh();
    await Deno.writeTextFile(`${folder}/a.yaml`, "a");
    // A poll names no files.
    const named = new Set<string>();
    for (let polls = 0; polls < 50 && !named.has("a.yaml"); polls++) {
      for (const name of await watch.next(NEVER) ?? []) named.add(name);
      await watch.refresh();
    }
    assert(named.has("a.yaml"));
  });
});
