/**
 * kproxy's files in an image: the bundle, and Deno's folder beside it.
 *
 * @module
 */
import { bundle, writeBundle } from "../../tools/bundle.ts";
import { UNKNOWN_COMMIT } from "../../lib/node/version.ts";

/** Environment variable with the folder of the bundle that the test task has built. */
export const TEST_BUNDLE_VARIABLE = "KPROXY_TEST_BUNDLE";

/** Path of `kproxy.js` in that bundle, which starts in a third of the time; undefined without a bundle. */
export function testBundle(): string | undefined {
  const folder = Deno.env.get(TEST_BUNDLE_VARIABLE);
  return folder === undefined ? undefined : `${folder}/kproxy.js`;
}

/** A bundle in a temporary folder; disposing of it removes it. */
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
