/**
 * The page that changes how much is logged: `/debug/flags/v`.
 *
 * @module
 */
import type { Verbosity } from "../observe/log.ts";
import { textAnswer } from "./answers.ts";
import type { Handler } from "./http_listener.ts";

const MAX_BODY_BYTES = 1024;
const MAX_INT32 = 2 ** 31 - 1;

/** Sets the verbosity to the number that is PUT. */
export function verbosityHandler(verbosity: Verbosity): Handler {
  return async (request) => {
    if (request.method !== "PUT") return textAnswer("unsupported http method\n", { status: 406 });
    const text = await limitedText(request);
    const problem = intProblem(text);
    if (problem !== undefined) {
      const reason = `strconv.ParseInt: parsing ${JSON.stringify(text)}: ${problem}`;
      return textAnswer(`failed set klog.logging.verbosity ${text}: ${reason}\n`, { status: 400 });
    }
    // Lines without a verbosity cannot be switched off.
    verbosity.level = Math.max(0, Number(text));
    return textAnswer(`successfully set klog.logging.verbosity to ${text}\n`);
  };
}

function intProblem(text: string): string | undefined {
  if (!/^[+-]?\d+$/.test(text)) return "invalid syntax";
  const value = Number(text);
  return value > MAX_INT32 || value < -MAX_INT32 - 1 ? "value out of range" : undefined;
}

/** The body, cut off where no number can be that long. */
async function limitedText(request: Request): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const chunk of request.body ?? []) {
    text += decoder.decode(chunk, { stream: true });
    if (text.length > MAX_BODY_BYTES) return text.slice(0, MAX_BODY_BYTES);
  }
  return text;
}
