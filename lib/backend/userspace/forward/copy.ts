/**
 * Copies bytes from one connection to another until either ends.
 *
 * @module
 */

/** What most connections hold while they wait: ten thousand idle ones are 10 MB of it. */
const SMALL_BYTES = 512;
/** As much as a socket yields at once when bytes flow. */
const LARGE_BYTES = 64 * 1024;
/** How many large buffers stay at hand; more are made while more connections are busy at once. */
const MOST_SPARE = 64;

const spare: Uint8Array<ArrayBuffer>[] = [];

/** What copying needs of a connection. */
export type Pipe = Pick<Deno.Conn, "read" | "write" | "closeWrite">;

/**
 * Copies what `from` sends to `to`, and then tells `to` that nothing more comes. It reads on only when `to` has taken what was
 * read, so that a slow reader slows the writer down, and costs one buffer.
 *
 * @param onBytes told how many were copied, each time
 * @throws what either connection fails with
 */
export async function copy(from: Pipe, to: Pipe, onBytes: (count: number) => void): Promise<void> {
  const small = new Uint8Array(SMALL_BYTES);
  let buffer = small;
  try {
    for (;;) {
      const count = await from.read(buffer);
      if (count === null) break;
      for (let at = 0; at < count;) at += await to.write(buffer.subarray(at, count));
      onBytes(count);
      if (buffer === small) {
        if (count === SMALL_BYTES) buffer = spare.pop() ?? new Uint8Array(LARGE_BYTES);
      } else if (count <= SMALL_BYTES) {
        giveBack(buffer);
        buffer = small;
      }
    }
  } finally {
    if (buffer !== small) giveBack(buffer);
  }
  await to.closeWrite();
}

function giveBack(buffer: Uint8Array<ArrayBuffer>): void {
  if (spare.length < MOST_SPARE) spare.push(buffer);
}
