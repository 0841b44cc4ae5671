/**
 * A watch in protobuf, looked at just as far as its protocol goes: objects that were added are counted and dropped, unread.
 *
 * @module
 */
import { EventReader } from "../../lib/source/decode/protobuf_stream.ts";

const MAX_FRAME_BYTES = 16 * 1024 * 1024;
const decoder = new TextDecoder();

/** What is seen of a frame. */
export interface Frame {
  /** `ADDED`, `BOOKMARK`, … */
  readonly type: string;
  readonly bytes: Uint8Array;
  /** True for the bookmark after the last object of a list. */
  readonly endsList: boolean;
}

/** Cuts pieces of a watch into frames. */
export class FrameCutter {
  readonly #reader = new EventReader("Service");

  /** The frames that are complete with this piece. */
  *frames(piece: Uint8Array): Generator<Frame> {
    for (const bytes of this.#reader.frames(piece, MAX_FRAME_BYTES)) {
      // Field 1 of a WatchEvent, the first one that is written.
      const type = bytes[0] === 0x0a ? decoder.decode(bytes.subarray(2, 2 + (bytes[1] ?? 0))) : "";
      const endsList = type === "BOOKMARK" && decoder.decode(bytes).includes("k8s.io/initial-events-end");
      yield { type, bytes, endsList };
    }
  }
}

/** Passes on all frames but those of added objects; tells of all bytes, and of the end of a list. */
export function withoutObjects(
  { onBytes, onListEnd }: { readonly onBytes: (bytes: number) => void; readonly onListEnd: () => void },
): TransformStream<Uint8Array, Uint8Array> {
  const cutter = new FrameCutter();
  return new TransformStream({
    transform(piece, controller) {
      onBytes(piece.length);
      for (const { type, bytes, endsList } of cutter.frames(piece)) {
        if (type === "ADDED") continue;
        const framed = new Uint8Array(4 + bytes.length);
        new DataView(framed.buffer).setUint32(0, bytes.length);
        framed.set(bytes, 4);
        controller.enqueue(framed);
        if (endsList) onListEnd();
      }
    },
  });
}
