import { assertEquals } from "@std/assert";
import { PartialMap } from "./partial_map.ts";

Deno.test(
  "what is looked for and not known is remembered until somebody answers",
  { permissions: "none" },
  () => {
    const map = new PartialMap<string>();
    assertEquals([map.get("a"), map.has("b"), map.size], [undefined, false, 0]);
    assertEquals([...map.asked], ["a", "b"]);
    map.answer("a", "1");
    map.answer("b", undefined);
    assertEquals([map.get("a"), map.has("b"), [...map.asked]], ["1", false, []]);
    // What was said without being asked for counts, too.
    map.answer("c", "");
    assertEquals([map.has("c"), [...map.entries()], [...map.asked]], [true, [["a", "1"], ["c", ""]], []]);
  },
);
