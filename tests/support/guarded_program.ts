/**
 * Makes a namespace, starts an API server, prints where both are as one line of JSON, and then does nothing until it is killed.
 *
 * @module
 */
import { writeLine } from "../../tools/output.ts";
import { Kapi } from "./kapi.ts";
import { withNetns } from "./netns.ts";

/** What the program prints. */
export interface Guarded {
  readonly netns: string;
  readonly folder: string;
  /** Of the API server and its store. */
  readonly pids: readonly number[];
}

if (import.meta.main) {
  await withNetns(async ({ name: netns }) => {
    await using kapi = await Kapi.start();
    const { folder } = kapi;
    const pids = ["kapi", "etcd"].map((name) => Number(Deno.readTextFileSync(`${folder}/${name}.pid`)));
    const guarded: Guarded = { netns, folder, pids };
    writeLine(JSON.stringify(guarded));
    await new Promise((resolve) => setTimeout(resolve, 600_000));
  });
}
