/**
 * The objects of a set of manifest files, and their changes when a file changes.
 *
 * @module
 */
import type { ApiObject } from "../../model/objects.ts";
import { toEnd } from "../../text/steps.ts";
import { eventsBetween, identityOf, type Rejection, sameObject, type SourceEvent } from "../source.ts";
import type { ManifestItem } from "../decode/manifest_items.ts";
import type { Manifest } from "../decode/manifest_text.ts";

/** A file in the order of precedence: of two files with the same object, the one with the smaller `order` counts. */
export interface ManifestFile {
  /** Path, as shown to people. */
  readonly path: string;
  /** Unique; compared as text. */
  readonly order: string;
}

/** Objects of one kind in one file that are left out, because the proxy reads no such objects. */
export interface ForeignObjects {
  /** The file that they are in. */
  readonly path: string;
  /** Kind, as it stands in the file. */
  readonly kind: string;
  /** Number of these objects. */
  readonly count: number;
}

/** Changes since the last checkout. */
export interface ManifestChanges {
  /** At most one event per object. */
  readonly events: readonly SourceEvent[];
  /** Only rejections not reported before. */
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
  /** Rejections of the present content, by their texts, so that each is reported once. */
  readonly reported: ReadonlyMap<string, Rejection>;
  readonly foreignKinds: ReadonlySet<string>;
}

/** Some milliseconds of work. */
const OBJECTS_PER_STEP = 500;

const LAST_GOOD = "the last good version stays in force";

/** Folds the contents of files into one set of objects. */
export class ManifestStore {
  readonly #files = new Map<string, FileContent>();
  /** Key of an object → its versions in files, the one in force first. */
  readonly #candidates = new Map<string, Candidate[]>();
  readonly #delivered = new Map<string, ManifestItem>();
  /** Objects overridden by another file, by key and file. */
  readonly #conflicts = new Map<string, Rejection>();
  #touched = new Set<string>();
  #rejections: Rejection[] = [];
  #foreign: ForeignObjects[] = [];

  /**
   * Takes a file's new content, in steps; nothing else may be asked of the store until they are at their end. If the text as a whole is
   * broken, the former content stays; if an object is refused, its former version in this file does.
   */
  *set(file: ManifestFile, manifest: Manifest): Generator<void, void> {
    const former = this.#files.get(file.order);
    const rejections: Rejection[] = [];
    const byKey = manifest.problem === undefined
      ? yield* this.#collect(file, manifest.items, former, rejections)
      : former?.byKey ?? new Map<string, ManifestItem>();
    if (manifest.problem !== undefined) rejections.push(brokenFile(file, manifest.problem, former));
    const reported = this.#report(rejections, former?.reported);
    const foreignKinds = manifest.problem === undefined
      ? this.#noteForeign(file, manifest.items, former)
      : former?.foreignKinds ?? new Set<string>();
    this.#files.set(file.order, { file, byKey, reported, foreignKinds });
    yield* this.#replaceCandidates(file, former?.byKey ?? new Map(), byKey);
  }

  /** Notes that a file cannot be read; its former content stays. */
  unreadable(file: ManifestFile, message: string): void {
    const former = this.#files.get(file.order);
    const reported = this.#report([{ where: file.path, object: file.path, message }], former?.reported);
    const { byKey, foreignKinds } = former ?? { byKey: new Map(), foreignKinds: new Set<string>() };
    this.#files.set(file.order, { file, byKey, reported, foreignKinds });
  }

  /** Removes a file and its objects. */
  remove(file: ManifestFile): void {
    const former = this.#files.get(file.order);
    if (former === undefined) return;
    this.#files.delete(file.order);
    toEnd(this.#replaceCandidates(file, former.byKey, new Map()));
  }

  /** Changes since the last checkout, in steps as those of {@linkcode ManifestStore.set}. */
  *checkout(): Generator<void, ManifestChanges> {
    const events: SourceEvent[] = [];
    for (const key of this.#touched) {
      events.push(...this.#settle(key));
      if (events.length % OBJECTS_PER_STEP === 0) yield;
    }
    const rejections = this.#rejections;
    const foreign = this.#foreign;
    this.#touched = new Set();
    this.#rejections = [];
    this.#foreign = [];
    return { events, rejections, foreign };
  }

  /** Objects in force as of the last checkout. */
  *objects(): Generator<ApiObject> {
    for (const { objects } of this.#delivered.values()) yield* objects;
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

  /** Objects that kube-proxy's selectors exclude, and why. */
  *excluded(): Generator<Rejection> {
    for (const [winner] of this.#candidates.values()) {
      if (winner?.item.exclusion === undefined) continue;
      const { file, item: { object, exclusion } } = winner;
      yield { where: placeOf(file, winner.item), object, message: exclusion };
    }
  }

  /** Current refusals of files and objects. */
  *refusals(): Generator<Rejection> {
    for (const { reported } of this.#files.values()) yield* reported.values();
    yield* this.#conflicts.values();
  }

  *#collect(
    file: ManifestFile,
    items: readonly ManifestItem[],
    former: FileContent | undefined,
    rejections: Rejection[],
  ): Generator<void, ReadonlyMap<string, ManifestItem>> {
    const byKey = new Map<string, ManifestItem>();
    for (const [index, item] of items.entries()) {
      if (index % OBJECTS_PER_STEP === 0) yield;
      const { key, object, refusal } = item;
      const where = placeOf(file, item);
      const kept = key === null ? undefined : former?.byKey.get(key);
      if (refusal !== undefined) {
        const message = kept === undefined ? refusal : `${refusal}; ${LAST_GOOD}`;
        rejections.push({ where, object, message });
        if (key !== null && kept !== undefined && !byKey.has(key)) byKey.set(key, kept);
        continue;
      }
      if (key === null) continue;
      const first = byKey.get(key);
      if (first === undefined) byKey.set(key, item);
      else {rejections.push({
          where,
          object,
          message: `is ignored: already defined at ${placeOf(file, first)}`,
        });}
    }
    return byKey;
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

  *#replaceCandidates(
    file: ManifestFile,
    former: ReadonlyMap<string, ManifestItem>,
    current: ReadonlyMap<string, ManifestItem>,
  ): Generator<void, void> {
    let done = 0;
    for (const key of former.keys()) {
      if (!current.has(key)) this.#replaceCandidate(key, file, undefined);
      if (++done % OBJECTS_PER_STEP === 0) yield;
    }
    for (const [key, item] of current) {
      if (!sameItem(former.get(key), item)) this.#replaceCandidate(key, file, item);
      if (++done % OBJECTS_PER_STEP === 0) yield;
    }
  }

  #replaceCandidate(key: string, file: ManifestFile, item: ManifestItem | undefined): void {
    this.#touched.add(key);
    const others = (this.#candidates.get(key) ?? []).filter((other) => other.file.order !== file.order);
    if (item !== undefined) others.push({ file, item });
    if (others.length > 1) others.sort((one, other) => one.file.order < other.file.order ? -1 : 1);
    if (others.length === 0) this.#candidates.delete(key);
    else this.#candidates.set(key, others);
    if (item === undefined) this.#conflicts.delete(`${key}\n${file.order}`);
  }

  /** Events that lead from the delivered version of an object to the one in force. */
  #settle(key: string): SourceEvent[] {
    const [winner, ...others] = this.#candidates.get(key) ?? [];
    for (const other of others) this.#reportConflict(key, other, winner);
    if (winner !== undefined) this.#conflicts.delete(`${key}\n${winner.file.order}`);
    const old = this.#delivered.get(key);
    const current = winner?.item.selected === true ? winner.item : undefined;
    if (current === undefined) this.#delivered.delete(key);
    else this.#delivered.set(key, current);
    const former = new Map(old?.objects.map((object) => [identityOf(object), object]));
    const events: SourceEvent[] = [];
    for (const object of current?.objects ?? []) {
      const identity = identityOf(object);
      events.push(...eventsBetween(former.get(identity), object));
      former.delete(identity);
    }
    for (const gone of former.values()) events.push({ type: "delete", old: gone });
    return events;
  }

  #reportConflict(key: string, loser: Candidate, winner: Candidate | undefined): void {
    const conflict = `${key}\n${loser.file.order}`;
    if (winner === undefined || this.#conflicts.has(conflict)) return;
    const rejection = {
      where: placeOf(loser.file, loser.item),
      object: loser.item.object,
      message: `is ignored: already defined at ${placeOf(winner.file, winner.item)}`,
    };
    this.#conflicts.set(conflict, rejection);
    this.#rejections.push(rejection);
  }
}

function sameItem(one: ManifestItem | undefined, other: ManifestItem): boolean {
  return one !== undefined && one.selected === other.selected && sameObject(one.objects, other.objects);
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
