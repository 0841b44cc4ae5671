/**
 * What an image holds of kproxy: the bundle, and the folder of Deno's beside it.
 *
 * @module
 */
import { bundle, writeBundle } from "../../tools/bundle.ts";
import { UNKNOWN_COMMIT } from "../../lib/node/version.ts";

/** Names the folder of the bundle that the test task has built for all tests. */
export const TEST_BUNDLE_VARIABLE = "KPROXY_TEST_BUNDLE";

/** `kproxy.js` of that bundle, which starts in a third of the time; undefined where there is none. */
export function testBundle(): string | undefined {
  const folder = Deno.env.get(TEST_BUNDLE_VARIABLE);
  return folder === undefined ? undefined : `${folder}/kproxy.js`;
}

/** A bundle in a folder; disposing of it removes it. */
export class BundleFolder implements AsyncDisposable {
  private constructor(readonly folder: string) {}

  static async create(): Promise<BundleFolder> {
    const folder = await Deno.makeTempDir({ prefix: `kproxy-bundle-${Deno.pid}-` });
    await writeBundle(await bundle(UNKNOWN_COMMIT), folder);
    await Deno.mkdir(`${folder}/.deno`);
    return new BundleFolder(folder);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Deno.remove(this.folder, { recursive: true });
  }
}
