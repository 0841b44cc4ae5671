/**
 * Bodies of answers that arrive packed, be it that nobody asked for that.
 *
 * @module
 */
import { AnswerError } from "./kube_messages.ts";

type Bytes = Uint8Array<ArrayBuffer>;

/** Lists of the API are packed to a tenth or a thirtieth; what is to fill somebody's memory, to a thousandth. */
const MAX_RATIO = 100;
/** What is small harms nobody. */
const ALWAYS_BYTES = 1024 * 1024;

/**
 * The body as it was before it was packed in the ways that `encoding` names, as the header `Content-Encoding` does; `""`
 * for none. In ways other than gzip a body comes to nobody's use: reading it fails with an {@linkcode AnswerError}, as it does
 * where it becomes a hundred times as long.
 */
export function unpacked(body: ReadableStream<Bytes>, encoding: string): ReadableStream<Bytes> {
  const way = encoding.trim().toLowerCase();
  if (way === "" || way === "identity") return body;
  if (way !== "gzip" && way !== "x-gzip") {
    return body.pipeThrough(failing(`The answer is packed by ${way}, which was not asked for`));
  }
  let packedBytes = 0;
  let bytes = 0;
  const counted = new TransformStream<Bytes, Bytes>({
    transform(piece, controller) {
      packedBytes += piece.length;
      controller.enqueue(piece);
    },
  });
  const bounded = new TransformStream<Bytes, Bytes>({
    transform(piece, controller) {
      bytes += piece.length;
      if (bytes > ALWAYS_BYTES && bytes > MAX_RATIO * packedBytes) {
        throw new AnswerError(`The answer is more than ${MAX_RATIO} times as long as it was packed`);
      }
      controller.enqueue(piece);
    },
  });
  return body.pipeThrough(counted).pipeThrough(new DecompressionStream("gzip")).pipeThrough(bounded);
}

function failing(message: string): TransformStream<Bytes, Bytes> {
  return new TransformStream({
    start(controller) {
      controller.error(new AnswerError(message));
    },
  });
}
