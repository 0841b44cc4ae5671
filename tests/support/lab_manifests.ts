/**
 * A folder of manifests that a test edits while kproxy reads it.
 *
 * @module
 */

import type { ObjectJson } from "../../lib/source/decode/api_json.ts";

function listText(objects: readonly ObjectJson[]): string {
  return JSON.stringify({ apiVersion: "v1", kind: "List", items: objects });
}

/** The folder; disposing of it removes it. */
export class LabManifests implements AsyncDisposable {
  private constructor(readonly folder: string) {}

  static async create(): Promise<LabManifests> {
    // The process id tells the lab's guard to which process it belongs.
    return new LabManifests(await Deno.makeTempDir({ prefix: `kproxy-manifests-${Deno.pid}-` }));
  }

  path(name: string): string {
    return `${this.folder}/${name}`;
  }

  /** Replaces a file by a new one, atomically, as careful programs do. */
  async replace(name: string, objects: readonly ObjectJson[]): Promise<void> {
    await this.replaceText(name, listText(objects));
  }

  /** {@linkcode replace} with any text. */
  async replaceText(name: string, text: string): Promise<void> {
    const temporary = await Deno.makeTempFile({ dir: this.folder, prefix: ".", suffix: ".tmp" });
    await Deno.writeTextFile(temporary, text);
    // A proxy of another user must be able to read it, too.
    await Deno.chmod(temporary, 0o644);
    await Deno.rename(temporary, this.path(name));
  }

  /** Overwrites the file in place, as an editor may. */
  async overwrite(name: string, objects: readonly ObjectJson[]): Promise<void> {
    await Deno.writeTextFile(this.path(name), listText(objects));
  }

  async remove(name: string): Promise<void> {
    await Deno.remove(this.path(name));
  }

  /** Removes all files. */
  async clear(): Promise<void> {
    for await (const { name } of Deno.readDir(this.folder)) await this.remove(name);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Deno.remove(this.folder, { recursive: true });
  }
}
