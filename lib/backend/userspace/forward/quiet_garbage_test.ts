import { assertEquals } from "@std/assert";
import { QuietGarbage } from "./quiet_garbage.ts";

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
