/**
 * Comparing objects and joining events.
 *
 * @module
 */
import type { ApiObject } from "../model/objects.ts";
import type { SourceEvent } from "./source.ts";

/** Some milliseconds of work. */
const EVENTS_PER_STEP = 5_000;

/** True if both values of plain data are equal in every field and order. */
export function sameObject(one: unknown, other: unknown): boolean {
  if (one === other) return true;
  if (typeof one !== "object" || typeof other !== "object" || one === null || other === null) return false;
  if (Array.isArray(one)) {
    return Array.isArray(other) && one.length === other.length &&
      one.every((item, index) => sameObject(item, other[index]));
  }
  if (Array.isArray(other)) return false;
  const [mine, others] = [one, other] as [PlainObject, PlainObject];
  const keys = Object.keys(mine);
  if (keys.length !== Object.keys(others).length) return false;
  for (const key of keys) if (!(key in others) || !sameObject(mine[key], others[key])) return false;
  return true;
}

type PlainObject = Readonly<Record<string, unknown>>;

/** The event that leads from `old` to `object`, if they differ. */
export function eventsBetween(old: ApiObject | undefined, object: ApiObject | undefined): SourceEvent[] {
  if (object === undefined) return old === undefined ? [] : [{ type: "delete", old }];
  if (old === undefined) return [{ type: "add", object }];
  return sameObject(old, object) ? [] : [{ type: "update", old, object }];
}

/** `Service shop/web`. */
export function identityOf(object: ApiObject): string {
  return "namespace" in object
    ? `${object.kind} ${object.namespace}/${object.name}`
    : `${object.kind} ${object.name}`;
}

/** Joins several events of one object into the one that says the same, in steps. */
export function* nettingEvents(events: readonly SourceEvent[]): Generator<void, SourceEvent[]> {
  const net = new Map<string, { old: ApiObject | undefined; current: ApiObject | undefined }>();
  for (const [index, event] of events.entries()) {
    if (index % EVENTS_PER_STEP === 0) yield;
    if (event.type === "synced") continue;
    const old = event.type === "add" ? undefined : event.old;
    const current = event.type === "delete" ? undefined : event.object;
    const identity = identityOf((current ?? old) as ApiObject);
    net.set(identity, { old: net.has(identity) ? net.get(identity)?.old : old, current });
  }
  const joined: SourceEvent[] = [];
  for (const { old, current } of net.values()) {
    if (joined.push(...eventsBetween(old, current)) % EVENTS_PER_STEP === 0) yield;
  }
  return joined;
}
