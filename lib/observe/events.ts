/**
 * Kubernetes Events: what an operator who looks at the cluster, not at the node's log, must hear of.
 *
 * @module
 */
import type { EventJson } from "../source/decode/api_json.ts";
import type { Logger } from "./log.ts";

/** The object an Event is about. Nodes have no namespace. */
export type EventSubject =
  | Named<Pick<Reference, "kind" | "name">, "Node">
  | Named<Pick<Reference, "kind" | "name" | "namespace">, "Service">;

type Reference = NonNullable<EventJson["regarding"]>;
type Named<Fields, Kind extends string> = Required<Fields> & { readonly kind: Kind };

/** One Event; `event_catalog.ts` has those that there are. */
export interface ProxyEvent
  extends Required<Pick<EventJson, "type" | "reason" | "action" | "note" | "regarding">> {
  readonly type: "Normal" | "Warning";
  /** Why, in one CamelCase word that people can search for. */
  readonly reason: string;
  /** What the proxy was doing, likewise. */
  readonly action: string;
  /** For people; may be empty. */
  readonly note: string;
  readonly regarding: EventSubject;
}

/** Takes Events. */
export interface EventRecorder {
  /** Never throws and never waits. */
  record(event: ProxyEvent): void;
}

/** Writes Events to the log: all there is to do without an API server. */
export class LogEvents implements EventRecorder {
  readonly #log: Logger;

  constructor(log: Logger) {
    this.#log = log;
  }

  record(event: ProxyEvent): void {
    if (event.type === "Warning") this.#log.warn("Event", eventValues(event));
    else this.#log.info("Event", eventValues(event));
  }
}

/** An Event as the values of a log line. */
export function eventValues(
  { type, reason, note, regarding }: ProxyEvent,
): Record<string, string | undefined> {
  return { type, reason, regarding: subjectText(regarding), note: note === "" ? undefined : note };
}

/** `Node node-a` or `Service shop/web`. */
export function subjectText(subject: EventSubject): string {
  return subject.kind === "Node" ? `Node ${subject.name}` : `Service ${subject.namespace}/${subject.name}`;
}
