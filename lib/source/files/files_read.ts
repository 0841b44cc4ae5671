/**
 * Files that somebody else may write, or replace by something that never ends.
 *
 * @module
 */

/** A file of manifests may be so long: twice the objects of 44,000 Services. */
export const MAX_MANIFEST_BYTES = 128 * 2 ** 20;
/** A read may take no longer, as that of a file that became a FIFO, or lies on a server that is gone. */
const TIME_LIMIT_MS = 10_000;

/** Why a file that was opened must not be read; null if it may. */
export type Judge = (path: string, opened: Deno.FileInfo) => string | null;

/**
 * The bytes of a regular file. `judge` says of what was opened why it must not be read; null if it may.
 *
 * @throws {TypeError} if it is something else or longer than `maxBytes`, or reading takes longer than 10 s
 */
export async function readBounded(
  path: string,
  maxBytes: number = MAX_MANIFEST_BYTES,
  limitMs: number = TIME_LIMIT_MS,
  judge: Judge = () => null,
): Promise<Uint8Array<ArrayBuffer>> {
  const giveUp = Promise.withResolvers<never>();
  const timer = setTimeout(
    () => giveUp.reject(new TypeError(`takes longer than ${limitMs / 1000} s to read`)),
    limitMs,
  );
  const end = new AbortController();
  const reading = read(path, { maxBytes, judge }, end.signal);
  try {
    return await Promise.race([reading, giveUp.promise]);
  } finally {
    clearTimeout(timer);
    end.abort();
    // One that was given up may still fail, which then is nothing new.
    reading.catch(() => null);
  }
}

async function read(
  path: string,
  { maxBytes, judge }: { readonly maxBytes: number; readonly judge: Judge },
  until: AbortSignal,
): Promise<Uint8Array<ArrayBuffer>> {
  // To open a FIFO would wait for whoever writes to it.
  if (!(await Deno.stat(path)).isFile) throw new TypeError("is not a file");
  using file = await Deno.open(path);
  // What the path leads to may have been replaced since somebody looked.
  const info = await file.stat();
  const { isFile, size } = info;
  if (!isFile) throw new TypeError("is not a file");
  const problem = judge(path, info);
  if (problem !== null) throw new TypeError(problem);
  // One byte more than it should have tells that it has grown.
  let bytes = new Uint8Array(Math.min(size, maxBytes) + 1);
  let length = 0;
  while (!until.aborted) {
    const count = await file.read(bytes.subarray(length));
    if (count === null) break;
    length += count;
    if (length > maxBytes) throw new TypeError(`is larger than ${maxBytes / 2 ** 20} MiB`);
    if (length === bytes.length) {
      const more = new Uint8Array(Math.min(2 * length, maxBytes + 1));
      more.set(bytes);
      bytes = more;
    }
  }
  return bytes.subarray(0, length);
}
