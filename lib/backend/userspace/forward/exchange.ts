/**
 * Two connections whose bytes are copied from each to the other, and the memory that these go through.
 *
 * @module
 */

/** What an exchange needs of a connection. */
export type Pipe = Pick<Deno.Conn, "read" | "write" | "closeWrite" | "close">;

/** What each direction waits with, a packet of Ethernet: most of the connections of a node are silent most of the time. */
const SMALL_BYTES = 1_536;
/** As much as a socket yields at once when bytes flow. */
const LARGE_BYTES = 64 * 1024;
/** So many directions (8 MiB) may have a large buffer at a time, because they may have to wait with it. */
const MOST_LARGE = 128;

/** The buffers of all exchanges. */
export class CopyBuffers {
  readonly #spare: Uint8Array<ArrayBuffer>[] = [];
  #smallInUse = 0;
  #largeInUse = 0;

  get bytesInUse(): number {
    return this.#smallInUse * SMALL_BYTES + this.#largeInUse * LARGE_BYTES;
  }

  /**
   * Copies all that comes until there is no more. It reads on only when the other end has taken what was read: a slow reader slows the
   * writer down, and costs one buffer.
   */
  async copy(from: Pipe, to: Pipe, onBytes: (count: number) => void): Promise<void> {
    const small = new Uint8Array(SMALL_BYTES);
    this.#smallInUse++;
    let large: Uint8Array<ArrayBuffer> | null = null;
    try {
      for (;;) {
        const buffer = large ?? small;
        const count = await from.read(buffer);
        if (count === null) return;
        for (let at = 0; at < count;) at += await to.write(buffer.subarray(at, count));
        onBytes(count);
        // A full buffer says that more is there already.
        if (large === null && count === SMALL_BYTES) large = this.#takeLarge();
        else if (count < SMALL_BYTES) large = this.#giveBack(large);
      }
    } finally {
      this.#giveBack(large);
      this.#smallInUse--;
    }
  }

  #takeLarge(): Uint8Array<ArrayBuffer> | null {
    if (this.#largeInUse >= MOST_LARGE) return null;
    this.#largeInUse++;
    return this.#spare.pop() ?? new Uint8Array(LARGE_BYTES);
  }

  #giveBack(large: Uint8Array<ArrayBuffer> | null): null {
    if (large === null) return null;
    this.#largeInUse--;
    this.#spare.push(large);
    return null;
  }
}

/**
 * Copies both ways until both ends have sent all, shuts each end down when the other has, and closes both. Never rejects: a failure of either
 * ends both directions.
 *
 * @param onBytes called with how many bytes went from the client (`in`) or to it (`out`), each time
 */
export async function exchange(
  client: Pipe,
  server: Pipe,
  buffers: CopyBuffers,
  onBytes: (direction: "in" | "out", count: number) => void,
): Promise<void> {
  const close = (): void => {
    closeQuietly(client);
    closeQuietly(server);
  };
  const oneWay = async (from: Pipe, to: Pipe, direction: "in" | "out"): Promise<void> => {
    await buffers.copy(from, to, (count) => onBytes(direction, count));
    await to.closeWrite();
  };
  await Promise.all([
    oneWay(client, server, "in").catch(close),
    oneWay(server, client, "out").catch(close),
  ]);
  close();
}

/** Closes a connection that may be closed already. */
export function closeQuietly(socket: Pick<Deno.Conn, "close">): void {
  try {
    socket.close();
  } catch (error) {
    if (!(error instanceof Deno.errors.BadResource)) throw error;
  }
}
