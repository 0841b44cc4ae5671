/**
 * `kproxy selftest agent`: the child that `kproxy selftest` starts inside each namespace of its own. One job, from standard input.
 *
 * @module
 */
import { UsageError } from "../../../errors.ts";
import type { Job } from "./jobs.ts";

/**
 * Reads its job, does it, and prints what came of it.
 *
 * @throws {UsageError} if there is none: nobody starts it by hand
 */
export async function runAgent(
  input: ReadableStream<Uint8Array<ArrayBuffer>>,
  print: (text: string) => Promise<void>,
): Promise<number> {
  const job = jobOf(await new Response(input).text());
  switch (job.job) {
    case "serve": {
      const { serve } = await import("./serve.ts");
      await serve(job);
      return 0;
    }
    case "ask": {
      const { ask } = await import("./ask.ts");
      await print(`${JSON.stringify(await ask(job))}\n`);
      return 0;
    }
    case "apply": {
      const { apply } = await import("./apply.ts");
      await print(`${JSON.stringify(await apply(job))}\n`);
      return 0;
    }
  }
}

function jobOf(text: string): Job {
  try {
    const job = JSON.parse(text) as Job | null;
    if (job?.job === "serve" || job?.job === "ask" || job?.job === "apply") return job;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  throw new UsageError(
    '"kproxy selftest agent" is what kproxy selftest starts itself; there is no job for it here',
  );
}
