import { AssertionError, assertRejects, assertThrows } from "@std/assert";
import type { Service } from "../../lib/model/objects.ts";
import { testService } from "./model_objects.ts";
import type { Source } from "../../lib/source/source.ts";
import { runSource, SourceRecorder } from "./source_recorder.ts";

const WEB: Service = testService();

/** Says that an object changed which is not the one that was delivered, and takes the handler's error for its own affair. */
const CONFUSED: Source = {
  name: "confused",
  run: async (handler, signal) => {
    try {
      handler.events([{ type: "add", object: WEB }]);
      handler.events([{ type: "update", old: { ...WEB }, object: WEB }]);
    } catch (error) {
      if (!(error instanceof AssertionError)) throw error;
    }
    await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
  },
};

Deno.test(
  "an event that makes no sense fails whoever waits, and the end",
  { permissions: "none" },
  async () => {
    const source = runSource(() => CONFUSED);
    await assertRejects(() => source.recorder.until(() => true, "anything"), AssertionError);
    await assertRejects(async () => await source[Symbol.asyncDispose](), AssertionError);
  },
);

Deno.test("the one who delivers it hears of it, too", { permissions: "none" }, () => {
  const recorder = new SourceRecorder();
  assertThrows(() => recorder.events([{ type: "delete", old: WEB }]), AssertionError);
  assertThrows(() => recorder.assertSound(), AssertionError);
});
