import { assertEquals } from "@std/assert";
import { runInNewContext } from "node:vm";
import { setFlagsFromString } from "node:v8";
import { SharedTexts, tight } from "./kept.ts";

const COUNT = 4_000;

/** How much memory what `make` yields `COUNT` times takes, in bytes for each: the least of three, as the runtime compiles meanwhile. */
function bytesOfEach(make: (index: number) => unknown): number {
  setFlagsFromString("--expose-gc");
  const collectGarbage: () => void = runInNewContext("gc");
  return Math.min(...[1, 2, 3].map(() => bytesOnce(make, collectGarbage)));
}

function bytesOnce(make: (index: number) => unknown, collectGarbage: () => void): number {
  collectGarbage();
  const before = Deno.memoryUsage().heapUsed;
  const kept = Array.from({ length: COUNT }, (_, index) => make(index));
  collectGarbage();
  const bytes = (Deno.memoryUsage().heapUsed - before) / kept.length;
  assertEquals(kept.length, COUNT);
  return bytes;
}

/** A list that grew item by item, as in decoders. */
function grown(index: number, length: number): string[] {
  const list: string[] = [];
  for (let item = 0; item < length; item++) list.push(index % 2 === 0 ? "a" : "b");
  return list;
}

Deno.test("a tight list has the same items in a fraction of the memory", () => {
  for (const length of [0, 1, 10]) {
    assertEquals(tight(grown(1, length)), grown(1, length));
    const roomy = bytesOfEach((index) => grown(index, length));
    const kept = bytesOfEach((index) => tight(grown(index, length)));
    // Eight bytes for an item and one place that holds the list, 32 for the list, 16 for the room.
    assertEquals(kept <= 8 * length + 64, true, `${kept} bytes for ${length} items, ${roomy} as it grew`);
  }
});

Deno.test("a text that many have is kept once, also after so many others that all were forgotten", () => {
  const shared = new SharedTexts(100);
  const node = (index: number): string => `a-node-with-a-long-name-of-its-own-${index % 50}`;
  for (let index = 0; index < 1000; index++) assertEquals(shared.of(`other-${index}`), `other-${index}`);
  assertEquals(shared.of(node(7)), "a-node-with-a-long-name-of-its-own-7");
  const own = bytesOfEach((index) => node(index).toUpperCase());
  const once = bytesOfEach((index) => shared.of(node(index).toUpperCase()));
  assertEquals(once < 16, true, `${once} bytes for each, ${own} where each has its own`);
});
