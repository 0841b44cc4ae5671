import { assertEquals } from "@std/assert";
import { runOk, systemExec } from "../kernel/exec.ts";
import type { Logger } from "../observe/log.ts";
import { ConfigWatch } from "./config_reload.ts";

const NEVER = new AbortController().signal;
const decoder = new TextDecoder();

async function withConfig(
  work: (folder: string, watch: ConfigWatch, warnings: string[]) => Promise<void>,
  place: (folder: string) => Promise<void> = (folder) => Deno.writeTextFile(`${folder}/config.yaml`, "a"),
  pollMs = 10_000,
): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-config-" });
  const warnings: string[] = [];
  const log: Logger = {
    enabled: () => true,
    info() {},
    warn: (message) => void warnings.push(message),
    error() {},
  };
  try {
    await place(folder);
    const path = `${folder}/config.yaml`;
    const file = { path, bytes: await Deno.readFile(path) };
    await using watch = new ConfigWatch({ file, log, debounceMs: 40, pollMs });
    await work(folder, watch, warnings);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** Who writes in place empties the file first: where that takes longer than the debounce, it is seen, too. */
async function nextText(watch: ConfigWatch, signal: AbortSignal = NEVER): Promise<string | null> {
  let text: string | null;
  do {
    const file = await watch.next(signal);
    text = file === null ? null : decoder.decode(file.bytes);
  } while (text === "");
  return text;
}

/** True if nothing is answered for a while. */
async function staysQuiet(watch: ConfigWatch): Promise<boolean> {
  return await nextText(watch, AbortSignal.timeout(400)) === null;
}

Deno.test("an edit in place and a rename into place are seen, once each", async () => {
  await withConfig(async (folder, watch) => {
    assertEquals(await staysQuiet(watch), true);
    await Deno.writeTextFile(`${folder}/config.yaml`, "b");
    assertEquals(await nextText(watch), "b");
    await Deno.writeTextFile(`${folder}/config.new`, "c");
    await Deno.rename(`${folder}/config.new`, `${folder}/config.yaml`);
    assertEquals(await nextText(watch), "c");
    assertEquals(await staysQuiet(watch), true);
  });
});

Deno.test("what was written before the watch began is seen", async () => {
  await withConfig(async (folder, watch) => {
    await Deno.writeTextFile(`${folder}/config.yaml`, "b");
    assertEquals(await nextText(watch), "b");
  });
});

Deno.test("the swap of a ConfigMap's link is seen", async () => {
  const place = async (folder: string, name: string, text: string) => {
    await Deno.mkdir(`${folder}/..${name}`);
    await Deno.writeTextFile(`${folder}/..${name}/config.yaml`, text);
    await Deno.symlink(`..${name}`, `${folder}/..data_tmp`);
    await Deno.rename(`${folder}/..data_tmp`, `${folder}/..data`);
  };
  await withConfig(
    async (folder, watch) => {
      assertEquals(await staysQuiet(watch), true);
      await place(folder, "v2", "b");
      await Deno.remove(`${folder}/..v1`, { recursive: true });
      assertEquals(await nextText(watch), "b");
    },
    async (folder) => {
      await place(folder, "v1", "a");
      await Deno.symlink("..data/config.yaml", `${folder}/config.yaml`);
    },
  );
});

Deno.test("the same content written again, and other files, are no change", async () => {
  await withConfig(async (folder, watch) => {
    // Not emptied first: where the content comes late, that would be seen.
    {
      using file = await Deno.open(`${folder}/config.yaml`, { write: true });
      await file.write(new TextEncoder().encode("a"));
    }
    await Deno.writeTextFile(`${folder}/other.yaml`, "b");
    assertEquals(await staysQuiet(watch), true);
  });
});

Deno.test("a file that is gone is said once and is no change, its return is compared", async () => {
  await withConfig(
    async (folder, watch, warnings) => {
      await Deno.remove(`${folder}/config.yaml`);
      do {
        assertEquals(await staysQuiet(watch), true);
      } while (warnings.length === 0);
      assertEquals(await staysQuiet(watch), true);
      assertEquals(warnings, ["Configuration file cannot be read, the configuration in force stays"]);
      await Deno.writeTextFile(`${folder}/config.yaml`, "b");
      assertEquals(await nextText(watch), "b");
    },
    undefined,
    50,
  );
});

Deno.test("a change behind a link to another folder is seen by polling", async () => {
  const elsewhere = await Deno.makeTempDir({ prefix: "kproxy-config-" });
  try {
    await withConfig(
      async (_folder, watch) => {
        assertEquals(await staysQuiet(watch), true);
        await Deno.writeTextFile(`${elsewhere}/real.yaml`, "b");
        assertEquals(await nextText(watch), "b");
      },
      async (folder) => {
        await Deno.writeTextFile(`${elsewhere}/real.yaml`, "a");
        await Deno.symlink(`${elsewhere}/real.yaml`, `${folder}/config.yaml`);
      },
      60,
    );
  } finally {
    await Deno.remove(elsewhere, { recursive: true });
  }
});

Deno.test("a FIFO beside the file keeps no change from being seen", async () => {
  await withConfig(
    async (folder, watch) => {
      await runOk(systemExec, ["mkfifo", `${folder}/beside`]);
      for (const text of ["bb", "ccc"]) {
        await Deno.writeTextFile(`${folder}/config.yaml`, text);
        assertEquals(await nextText(watch), text);
      }
    },
    undefined,
    200,
  );
});
