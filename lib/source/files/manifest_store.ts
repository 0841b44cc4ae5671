/**
 * Which objects a set of manifest files stands for, and what changes when a file does.
 *
 * @module
 */
import type { ApiObject } from "../../model/objects.ts";
import { eventsBetween, identityOf, type Rejection, type SourceEvent } from "../source.ts";
import type { ManifestItem } from "../decode/manifest_items.ts";
import type { Manifest } from "../decode/manifest_text.ts";

/** A file in the order of precedence: of two files with the same object, the one with the smaller `order` counts. */
export interface ManifestFile {
  /** As shown to people. */
  readonly path: string;
  /** Unique; compared as text. */
  readonly order: string;
}

/** Objects of one kind in one file that are left out, because the proxy reads no such objects. */
export interface ForeignObjects {
  /** The file that they are in. */
  readonly path: string;
  /** As it stands in the file. */
  readonly kind: string;
  /** How many. */
  readonly count: number;
}

/** What changed since the last time. */
export interface ManifestChanges {
  /** At most one event per object. */
  readonly events: readonly SourceEvent[];
  /** Only those not reported before. */
  readonly rejections: readonly Rejection[];
  /** Only kinds not reported before of the same file. */
  readonly foreign: readonly ForeignObjects[];
}

interface Candidate {
  readonly file: ManifestFile;
  readonly item: ManifestItem;
}

interface FileContent {
  readonly file: ManifestFile;
  readonly byKey: ReadonlyMap<string, ManifestItem>;
  /** The rejections that the present content has given, by their texts, so that each is said once. */
  readonly reported: ReadonlyMap<string, Rejection>;
  readonly foreignKinds: ReadonlySet<string>;
}

/** Some milliseconds of work. */
const OBJECTS_PER_STEP = 500;

const NO_OBJECTS: readonly ApiObject[] = [];
const LAST_GOOD = "the last good version stays in force";

/** Folds the contents of files into one set of objects. */
export class ManifestStore {
  readonly #files = new Map<string, FileContent>();
  /** By key, that of the file that counts first. */
  #winners: ReadonlyMap<string, Candidate> = new Map();
  /** By key and file. */
  #conflicts: ReadonlyMap<string, Rejection> = new Map();
  #hasChanged = false;
  #rejections: Rejection[] = [];
  #foreign: ForeignObjects[] = [];

  /**
   * Takes a file's new content, in steps, of which the last one does it. If the text as a whole is broken, the former content stays; if an
   * object is refused, its former version in this file does.
   */
  *set(file: ManifestFile, { items, problem }: Manifest): Generator<void, void> {
    const former = this.#files.get(file.order);
    if (problem !== undefined) return this.#keep(file, brokenFile(file, problem, former));
    const rejections: Rejection[] = [];
    const byKey = yield* collect(file, items, former, rejections);
    const reported = this.#report(rejections, former?.reported);
    const foreignKinds = this.#noteForeign(file, items, former);
    this.#files.set(file.order, { file, byKey, reported, foreignKinds });
    this.#hasChanged = true;
  }

  /** Notes that a file cannot be read; its former content stays. */
  unreadable(file: ManifestFile, message: string): void {
    this.#keep(file, { where: file.path, object: file.path, message });
  }

  #keep(file: ManifestFile, rejection: Rejection): void {
    const former = this.#files.get(file.order);
    const reported = this.#report([rejection], former?.reported);
    const { byKey, foreignKinds } = former ?? { byKey: new Map(), foreignKinds: new Set<string>() };
    this.#files.set(file.order, { file, byKey, reported, foreignKinds });
  }

  /** Forgets a file. */
  remove(file: ManifestFile): void {
    if (this.#files.delete(file.order)) this.#hasChanged = true;
  }

  /** What the calls since the last checkout changed, in steps; files may be set meanwhile. */
  *checkout(): Generator<void, ManifestChanges> {
    const isDue = this.#hasChanged;
    // What is set while this goes on is for the next time.
    this.#hasChanged = false;
    const events = isDue ? yield* this.#settle() : [];
    const [rejections, foreign] = [this.#rejections, this.#foreign];
    [this.#rejections, this.#foreign] = [[], []];
    return { events, rejections, foreign };
  }

  /** What was checked out and counts. */
  *objects(): Generator<ApiObject> {
    for (const candidate of this.#winners.values()) yield* selectedObjects(candidate);
  }

  #noteForeign(
    { path }: ManifestFile,
    items: readonly ManifestItem[],
    former: FileContent | undefined,
  ): ReadonlySet<string> {
    const counts = new Map<string, number>();
    for (const { foreign } of items) {
      if (foreign !== undefined) counts.set(foreign, (counts.get(foreign) ?? 0) + 1);
    }
    for (const [kind, count] of counts) {
      if (former?.foreignKinds.has(kind) !== true) this.#foreign.push({ path, kind, count });
    }
    return new Set(counts.keys());
  }

  /** What kube-proxy's selectors keep from the proxy. */
  *excluded(): Generator<Rejection> {
    for (const { file, item } of this.#winners.values()) {
      const { object, exclusion } = item;
      if (exclusion !== undefined) yield { where: placeOf(file, item), object, message: exclusion };
    }
  }

  /** What is refused as it is now. */
  *refusals(): Generator<Rejection> {
    for (const { reported } of this.#files.values()) yield* reported.values();
    yield* this.#conflicts.values();
  }

  #report(
    rejections: readonly Rejection[],
    before: ReadonlyMap<string, Rejection> | undefined,
  ): ReadonlyMap<string, Rejection> {
    const reported = new Map<string, Rejection>();
    for (const rejection of rejections) {
      const reason = rejection.message.replace(`; ${LAST_GOOD}`, "");
      const text = `${rejection.object}: ${reason}`;
      if (before?.has(text) !== true && !reported.has(text)) this.#rejections.push(rejection);
      reported.set(text, rejection);
    }
    return reported;
  }

  /** Decides anew which file counts for each object, and yields what that changes. */
  *#settle(): Generator<void, SourceEvent[]> {
    const winners = new Map<string, Candidate>();
    const conflicts = new Map<string, Rejection>();
    let done = 0;
    for (const { file, byKey } of [...this.#files.values()].sort(byOrder)) {
      for (const [key, item] of byKey) {
        const winner = winners.get(key);
        if (winner === undefined) winners.set(key, { file, item });
        else conflicts.set(`${key}\n${file.order}`, duplicate(file, item, winner));
        if (++done % OBJECTS_PER_STEP === 0) yield;
      }
    }
    for (const [conflict, rejection] of conflicts) {
      if (!this.#conflicts.has(conflict)) this.#rejections.push(rejection);
    }
    const before = this.#winners;
    [this.#winners, this.#conflicts] = [winners, conflicts];
    const events: SourceEvent[] = [];
    for (const key of new Set([...before.keys(), ...winners.keys()])) {
      for (const event of eventsOf(before.get(key), winners.get(key))) events.push(event);
      if (++done % OBJECTS_PER_STEP === 0) yield;
    }
    return events;
  }
}

/** The file's objects by key; of one that is refused the former version, of one that is there twice the first. */
function* collect(
  file: ManifestFile,
  items: readonly ManifestItem[],
  former: FileContent | undefined,
  rejections: Rejection[],
): Generator<void, ReadonlyMap<string, ManifestItem>> {
  const byKey = new Map<string, ManifestItem>();
  for (const [index, item] of items.entries()) {
    if (index % OBJECTS_PER_STEP === 0) yield;
    const { key, object, refusal } = item;
    const first = key === null ? undefined : byKey.get(key);
    if (refusal !== undefined) {
      const kept = key === null ? undefined : former?.byKey.get(key);
      const message = kept === undefined ? refusal : `${refusal}; ${LAST_GOOD}`;
      rejections.push({ where: placeOf(file, item), object, message });
      if (key !== null && kept !== undefined && first === undefined) byKey.set(key, kept);
    } else if (first !== undefined) {
      rejections.push(duplicate(file, item, { file, item: first }));
    } else if (key !== null) byKey.set(key, item);
  }
  return byKey;
}

function byOrder({ file: one }: FileContent, { file: other }: FileContent): number {
  return one.order < other.order ? -1 : 1;
}

function selectedObjects(candidate: Candidate | undefined): readonly ApiObject[] {
  return candidate?.item.selected === true ? candidate.item.objects : NO_OBJECTS;
}

/** The events that lead from what counted for one key to what does now. */
function eventsOf(before: Candidate | undefined, now: Candidate | undefined): SourceEvent[] {
  const [old, current] = [selectedObjects(before), selectedObjects(now)];
  if (old === current) return [];
  const former = new Map(old.map((object) => [identityOf(object), object]));
  const events: SourceEvent[] = [];
  for (const object of current) {
    const identity = identityOf(object);
    events.push(...eventsBetween(former.get(identity), object));
    former.delete(identity);
  }
  for (const gone of former.values()) events.push({ type: "delete", old: gone });
  return events;
}

function duplicate(file: ManifestFile, item: ManifestItem, winner: Candidate): Rejection {
  const message = `is ignored: already defined at ${placeOf(winner.file, winner.item)}`;
  return { where: placeOf(file, item), object: item.object, message };
}

/** `web.yaml:12 (document 2)`. */
function placeOf(file: ManifestFile, at: { readonly line: number; readonly document: number }): string {
  return `${file.path}${at.line === 0 ? "" : `:${at.line}`} (document ${at.document})`;
}

function brokenFile(
  file: ManifestFile,
  problem: NonNullable<Manifest["problem"]>,
  former: FileContent | undefined,
): Rejection {
  const kept = (former?.byKey.size ?? 0) > 0 ? `; ${LAST_GOOD}` : "";
  return {
    where: placeOf(file, problem),
    object: file.path,
    message: `cannot be parsed: ${problem.message}${kept}`,
  };
}
