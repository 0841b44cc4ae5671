/**
 * Events as the API has them.
 *
 * @module
 */
import type { EventSubject, ProxyEvent } from "../../observe/events.ts";
import { escaped } from "../../text/quote.ts";
import type { EventJson } from "../decode/api_json.ts";

/** Who reports. kube-proxy's name, so that what filters Events by it goes on working. */
const CONTROLLER = "kube-proxy";
/** What the API server accepts. */
const MAX_NOTE_BYTES = 1024;
const MAX_INSTANCE = 128;
const MAX_NAME = 253;

/** An object of events.k8s.io/v1, with what every one of ours has. */
export type EventBody = EventJson & {
  readonly metadata: { readonly name: string; readonly namespace: string };
};

/** How often an Event was repeated, as a part of it. */
export type EventRepetition = Required<Pick<EventJson, "series">>;

/**
 * The object to create. Events of Nodes live in namespace `default`.
 *
 * @param hostname the host's own name, not an override
 * @param nowMs milliseconds since the epoch, with fractions; also makes the name unique
 */
export function eventBody(event: ProxyEvent, hostname: string, nowMs: number): EventBody {
  const { type, reason, action, note, regarding } = event;
  const nanoseconds = BigInt(Math.round(nowMs * 1000)) * 1000n;
  const unique = `.${nanoseconds.toString(16)}`;
  return {
    apiVersion: "events.k8s.io/v1",
    kind: "Event",
    metadata: {
      name: regarding.name.slice(0, MAX_NAME - unique.length) + unique,
      namespace: regarding.kind === "Node" ? "default" : regarding.namespace,
    },
    eventTime: microTime(nowMs),
    reportingController: CONTROLLER,
    reportingInstance: `${CONTROLLER}-${hostname}`.slice(0, MAX_INSTANCE),
    action,
    reason,
    regarding: reference(regarding),
    ...(note === ""
      ? {}
      : { note: truncateBytes(escaped(note), MAX_NOTE_BYTES) } satisfies Partial<EventBody>),
    type,
  };
}

function reference(subject: EventSubject): NonNullable<EventBody["regarding"]> {
  const { kind, name } = subject;
  if (subject.kind === "Node") return { apiVersion: "v1", kind, name };
  return { apiVersion: "v1", kind, namespace: subject.namespace, name };
}

/** The part of an Event that its repetition changes. @param lastMs milliseconds since the epoch, with fractions */
export function repetitionOf(count: number, lastMs: number): EventRepetition {
  return { series: { count, lastObservedTime: microTime(lastMs) } };
}

/** `2025-01-02T03:04:05.678901Z`. */
export function microTime(epochMs: number): string {
  const micros = Math.round(epochMs * 1000);
  const seconds = new Date(Math.floor(micros / 1e6) * 1000).toISOString().slice(
    0,
    "2025-01-02T03:04:05".length,
  );
  return `${seconds}.${String(micros % 1e6).padStart(6, "0")}Z`;
}

/** The longest beginning of a text that has at most so many bytes and no half characters; three dots if something is missing. */
function truncateBytes(text: string, maxBytes: number): string {
  const encoder = new TextEncoder();
  if (encoder.encode(text).length <= maxBytes) return text;
  const dots = "...";
  const { read } = encoder.encodeInto(text, new Uint8Array(maxBytes - dots.length));
  return text.slice(0, read) + dots;
}
