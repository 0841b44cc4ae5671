import { assertEquals } from "@std/assert";
import { LineWriter } from "./line_writer.ts";

const decoder = new TextDecoder();

/** A stream that takes what it is told to: a number of bytes, an error, or nothing for ever. */
class Stream {
  text = "";
  calls = 0;
  takes: number | Error | "nothing" = Number.POSITIVE_INFINITY;
  #waiting = Promise.withResolvers<number>();

  readonly write = (bytes: Uint8Array): Promise<number> => {
    this.calls++;
    if (this.takes === "nothing") return this.#waiting.promise;
    if (this.takes instanceof Error) return Promise.reject(this.takes);
    return Promise.resolve(this.#take(bytes.subarray(0, this.takes)));
  };

  /** Ends the pending write with an error. */
  fail(error: Error): void {
    this.takes = error;
    this.#waiting.reject(error);
  }

  #take(bytes: Uint8Array): number {
    this.text += decoder.decode(bytes);
    return bytes.length;
  }
}

function numbered(from: number, to: number): string[] {
  return Array.from({ length: to - from }, (_, i) => `line ${from + i}\n`);
}

Deno.test("lines come in their order, those of one moment at once, however little is taken at a time", async () => {
  const stream = new Stream();
  const writer = new LineWriter(stream);
  const lines = numbered(0, 100);
  for (const line of lines) writer.write(line);
  await writer.flush(10_000);
  // The first one does not wait for others.
  assertEquals([stream.text, stream.calls, writer.dropped], [lines.join(""), 2, 0]);
  stream.takes = 7;
  for (const line of lines) writer.write(line);
  await writer.flush(10_000);
  assertEquals([stream.text, writer.dropped], [lines.join("").repeat(2), 0]);
});

Deno.test("what a stream refuses is dropped and counted, and reported when it takes lines again", async () => {
  const stream = new Stream();
  const writer = new LineWriter(stream);
  const told: number[] = [];
  writer.onResumed = (dropped) => {
    told.push(dropped);
    writer.write("some were dropped\n");
  };
  for (
    const error of [new Deno.errors.BrokenPipe("gone"), new Error("No space left on device (os error 28)")]
  ) {
    stream.takes = error;
    for (const line of numbered(0, 10)) writer.write(line);
    await writer.flush(10_000);
  }
  assertEquals([stream.text, writer.dropped, told], ["", 20, []]);
  stream.takes = 100;
  writer.write("again\n");
  await writer.flush(10_000);
  assertEquals([stream.text, writer.dropped, told], ["again\nsome were dropped\n", 20, [20]]);
});

Deno.test("a stream that is not read holds nothing up, and keeps only so much", async () => {
  const stream = new Stream();
  stream.takes = "nothing";
  const writer = new LineWriter({ ...stream, write: stream.write, maxQueued: 70 });
  for (const line of numbered(0, 30)) writer.write(line);
  const startMs = performance.now();
  await writer.flush(50);
  assertEquals([performance.now() - startMs < 10_000, writer.dropped], [true, 20]);
  stream.fail(new Deno.errors.BrokenPipe("gone"));
  await writer.flush(10_000);
  assertEquals(writer.dropped, 30);
});

Deno.test("a full pipe that does not block is tried again", async () => {
  const stream = new Stream();
  const writer = new LineWriter({
    write: (bytes) => {
      stream.takes = stream.calls < 2 ? new Deno.errors.WouldBlock("full") : 3;
      return stream.write(bytes);
    },
  });
  writer.write("hello\n");
  await writer.flush(10_000);
  assertEquals([stream.text, writer.dropped], ["hello\n", 0]);
});

Deno.test("what one stream refuses goes to the other one", async () => {
  const [out, err] = [new Stream(), new Stream()];
  const fallback = new LineWriter(err);
  const writer = new LineWriter({ write: out.write, fallback });
  writer.write("here\n");
  await writer.flush(10_000);
  out.takes = new Deno.errors.BrokenPipe("gone");
  writer.write("there\n");
  await writer.flush(10_000);
  assertEquals([out.text, err.text, writer.dropped], ["here\n", "there\n", 0]);
});
