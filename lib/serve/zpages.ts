/**
 * The pages `/statusz` and `/flagz` for people.
 *
 * @module
 */
import { jsonAnswer, textAnswer } from "./answers.ts";

/** What `/statusz` shows. */
export interface StatusFacts {
  /** Milliseconds since the epoch. */
  readonly startMs: number;
  readonly nowMs: number;
  readonly version: string;
  /** The Kubernetes release whose behaviour is followed, `1.36`. */
  readonly emulationVersion: string;
  readonly denoVersion: string;
  readonly paths: readonly string[];
}

const WARNING =
  "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.";

/** Who runs, since when, and which pages there are. */
export function statuszAnswer(request: Request, facts: StatusFacts): Response {
  return zpageAnswer(request, "statusz", [
    "",
    `Started: ${unixDate(facts.startMs)}`,
    `Up: ${uptime(facts.nowMs - facts.startMs)}`,
    `Deno version: ${facts.denoVersion}`,
    `Binary version: ${facts.version}`,
    `Emulation version: ${facts.emulationVersion}`,
    `Paths: ${[...facts.paths].sort().join(" ")}`,
  ]);
}

/** Every flag with its value. */
export function flagzAnswer(
  request: Request,
  flags: Iterable<readonly [name: string, value: string]>,
): Response {
  const lines = [...flags].sort(([left], [right]) => left < right ? -1 : 1);
  return zpageAnswer(request, "flagz", lines.map(([name, value]) => `${name}=${value}`));
}

function zpageAnswer(request: Request, page: string, lines: readonly string[]): Response {
  if (!acceptsText(request.headers.get("accept"))) {
    const message = "only the following media types are accepted: text/plain";
    const status = { kind: "Status", apiVersion: "v1", metadata: {}, status: "Failure", message };
    return jsonAnswer(JSON.stringify({ ...status, reason: "NotAcceptable", code: 406 }), { status: 406 });
  }
  return textAnswer(["", `kube-proxy ${page}`, WARNING, ...lines, ""].join("\n"));
}

function acceptsText(accept: string | null): boolean {
  if (accept === null || accept.trim() === "") return true;
  return accept.split(",").some((range) => /^\s*(text\/plain|text\/\*|\*\/\*)\s*(;|$)/i.test(range));
}

/** `Wed Oct  1 21:03:43 UTC 2025` */
function unixDate(epochMs: number): string {
  const [weekday, day, month, year, time] = new Date(epochMs).toUTCString().replace(",", "").split(" ");
  return `${weekday} ${month} ${String(Number(day)).padStart(2)} ${time} UTC ${year}`;
}

/** `1 hr 02 min 03 sec` */
function uptime(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const two = (value: number): string => String(value).padStart(2, "0");
  return `${Math.floor(seconds / 3600)} hr ${two(Math.floor(seconds / 60) % 60)} min ${
    two(seconds % 60)
  } sec`;
}
