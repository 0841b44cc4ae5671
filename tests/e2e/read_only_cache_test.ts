/**
 * What the image's build has Deno find out about kproxy's files, read on a root that is read-only.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { readInstructions } from "../deploy/dockerfile.ts";
import { e2eTest, ROOT_NAMESPACES } from "../support/skip.ts";

/** Binds a folder over itself, read-only, in a mount namespace of its own, and runs the rest there. */
const READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"';

/** A folder as the image's `/opt/kproxy`, with a program in the place of kproxy. */
class ImageFolder implements AsyncDisposable {
  private constructor(readonly folder: string) {}

  static async create(): Promise<ImageFolder> {
    const folder = await Deno.makeTempDir({ prefix: `kproxy-read-only-${Deno.pid}-` });
    await Deno.writeTextFile(`${folder}/kproxy.js`, "export const known = 1;\n");
    return new ImageFolder(folder);
  }

  /** Starts the program once; resolves to whether Deno had the engine's code of it. */
  async start(isReadOnly: boolean): Promise<boolean> {
    const deno = [Deno.execPath(), "run", "--log-level=debug", "--no-config", "--cached-only"];
    const [program = "", ...args] = [
      ...isReadOnly ? ["unshare", "--mount", "sh", "-c", READ_ONLY, this.folder] : [],
      ...[...deno, `${this.folder}/kproxy.js`],
    ];
    const { success, stderr } = await new Deno.Command(program, {
      args,
      env: { DENO_DIR: `${this.folder}/.deno`, DENO_NO_UPDATE_CHECK: "1" },
      stdin: "null",
    }).output();
    const log = new TextDecoder().decode(stderr);
    assertEquals(success, true, log);
    return /code cache hit for ES module: \S*\/kproxy\.js/.test(log);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Deno.remove(this.folder, { recursive: true });
  }
}

e2eTest(
  "what Deno found out while the image was built is read on a root that is read-only",
  [ROOT_NAMESPACES],
  async () => {
    const last = (await readInstructions()).findLast(({ name }) => name === "RUN");
    const starts = last?.words.join(" ").split(" && ") ?? [];
    assertEquals(new Set(starts), new Set(["kproxy version"]));
    await using image = await ImageFolder.create();
    for (const _ of starts) await image.start(false);
    assertEquals(await image.start(true), true);
  },
);

e2eTest(
  "one start is too few: Deno then leaves its databases alone where it may not write",
  [ROOT_NAMESPACES],
  async () => {
    await using image = await ImageFolder.create();
    await image.start(false);
    assertEquals(await image.start(true), false);
  },
);
