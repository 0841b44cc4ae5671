import { assert, assertEquals } from "@std/assert";
import { CopyBuffers, QuietGarbage } from "./copy_buffers.ts";

const [SMALL, LARGE] = [128, 64 * 1024];
const MIB = 1024 * 1024;

type Buffer = ReturnType<CopyBuffers["first"]>;

/** As who copies does it: what fills a small buffer goes on in a large one. */
function read(buffers: CopyBuffers, buffer: Buffer, message: number): Buffer {
  for (let left = message; left > 0;) {
    let filled = Math.min(left, buffer.length);
    left -= filled;
    if (buffers.isTooSmall(buffer, filled)) {
      buffer = buffers.grown(buffer);
      const more = Math.min(left, buffer.length - filled);
      filled += more;
      left -= more;
    }
    buffer = buffers.next(buffer, filled);
  }
  return buffer;
}

Deno.test("who waits for a first message, or after a small one, waits with little", {
  permissions: "none",
}, () => {
  const buffers = new CopyBuffers();
  let buffer = buffers.first();
  assertEquals(buffer.length, SMALL);
  for (const [message, next] of [[100, SMALL], [20_000, LARGE], [200_000, LARGE], [50, SMALL]] as const) {
    buffer = read(buffers, buffer, message);
    assertEquals(buffer.length, next, `after ${message} bytes`);
    assertEquals(buffers.bytesInUse, next);
  }
  buffers.giveBack(buffer);
  assertEquals(buffers.bytesInUse, 0);
});

Deno.test("what was in a small buffer is at the beginning of the one that it grows to", {
  permissions: "none",
}, () => {
  const buffers = new CopyBuffers();
  const small = buffers.first().fill(7);
  assert(buffers.isTooSmall(small, SMALL) && !buffers.isTooSmall(small, SMALL - 1));
  const large = buffers.grown(small);
  assertEquals([large.length, large.indexOf(0)], [LARGE, SMALL]);
  assert(!buffers.isTooSmall(large, SMALL));
});

Deno.test("however many wait, and whatever they have read before, all together hold some megabytes", {
  permissions: "none",
}, () => {
  const buffers = new CopyBuffers();
  const held = Array.from({ length: 20_000 }, () => buffers.first());
  assert(buffers.bytesInUse < 11 * MIB, `${buffers.bytesInUse} bytes before anything was read`);
  for (const message of [100, 1_000, 20_000, LARGE - 1]) {
    for (const [at, waiting] of held.entries()) held[at] = read(buffers, waiting, message);
    assert(buffers.bytesInUse < 11 * MIB, `${buffers.bytesInUse} bytes after messages of ${message}`);
  }
  for (const buffer of held) buffers.giveBack(buffer);
  assertEquals(buffers.bytesInUse, 0);
});

Deno.test("a buffer is its holder's alone", { permissions: "none" }, () => {
  const buffers = new CopyBuffers();
  const held = Array.from({ length: 2_000 }, () => buffers.first());
  for (const [at, buffer] of held.entries()) buffer.fill(at % 251);
  const changed = held.filter((buffer, at) => buffer.some((byte) => byte !== at % 251));
  assertEquals(changed.length, 0);
});

Deno.test("garbage of many sessions is collected once, when it has been quiet for a while", {
  permissions: "none",
}, () => {
  let collections = 0;
  const garbage = new QuietGarbage(() => collections++);
  const quietFor = (looks: number, changes: number): number => {
    garbage.look(false, changes);
    for (let look = 0; look < looks; look++) garbage.look(true, changes);
    return collections;
  };
  assertEquals(quietFor(3, 5_000), 0, "it is busy again too soon");
  assertEquals(quietFor(10, 1_999), 0, "few sessions leave little");
  assertEquals(quietFor(4, 5_000), 1);
  assertEquals(quietFor(10, 6_999), 1, "few more");
  assertEquals(quietFor(10, 7_000), 2);
});
