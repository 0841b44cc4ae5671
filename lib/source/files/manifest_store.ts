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

interface PlacedItem {
  readonly file: ManifestFile;
  readonly item: ManifestItem;
}

interface Candidate extends PlacedItem {
  /** True once it was reported that another file has precedence. */
  isReported: boolean;
}

interface FileContent {
  readonly byKey: ReadonlyMap<string, ManifestItem>;
  /** Rejections of the present content, by their texts, so that each is reported once. */
  readonly reported: ReadonlyMap<string, Rejection>;
  readonly foreignKinds: ReadonlySet<string>;
}

const NO_CONTENT: FileContent = { byKey: new Map(), reported: new Map(), foreignKinds: new Set() };

/** Objects per step: some milliseconds of work. */
const OBJECTS_PER_STEP = 500;

const LAST_GOOD = "the last good version stays in force";

/** Folds the contents of files into one set of objects. */
export class ManifestStore {
  readonly #files = new Map<string, FileContent>();
  /** Key of an object → its versions in files, the one in force first. */
  readonly #candidates = new Map<string, Candidate[]>();
  readonly #delivered = new Map<string, ManifestItem>();
  #touched = new Set<string>();
  #rejections: Rejection[] = [];
  #foreign: ForeignObjects[] = [];

  /**
   * Takes a file's new content, in steps; nothing else may be asked of the store until they are at their end. If the text as a whole is
   * broken, the former content stays; if an object is refused, its former version in this file does.
   */
  *set(file: ManifestFile, manifest: Manifest): Generator<void, void> {
    const { items, problem } = manifest;
    const former = this.#files.get(file.order) ?? NO_CONTENT;
    if (problem !== undefined) {
      const kept = former.byKey.size > 0 ? `; ${LAST_GOOD}` : "";
      return this.unreadable(file, `cannot be parsed: ${problem.message}${kept}`, placeOf(file, problem));
    }
    const rejections: Rejection[] = [];
    const byKey = yield* this.#collect(file, items, former, rejections);
    const reported = this.#report(rejections, former);
    const foreignKinds = this.#noteForeign(file, items, former);
    this.#files.set(file.order, { byKey, reported, foreignKinds });
    yield* this.#replaceCandidates(file, former.byKey, byKey);
  }

  /** Reports that a file cannot be read, at the place `where`; its former content stays. */
  unreadable(file: ManifestFile, message: string, where: string = file.path): void {
    const former = this.#files.get(file.order) ?? NO_CONTENT;
    const reported = this.#report([{ where, object: file.path, message }], former);
    this.#files.set(file.order, { ...former, reported });
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
    former: FileContent,
  ): ReadonlySet<string> {
    const counts = new Map<string, number>();
    for (const { foreign } of items) {
      if (foreign !== undefined) counts.set(foreign, (counts.get(foreign) ?? 0) + 1);
    }
    for (const [kind, count] of counts) {
      if (!former.foreignKinds.has(kind)) this.#foreign.push({ path, kind, count });
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
    for (const candidates of this.#candidates.values()) {
      for (let at = 1; at < candidates.length; at++) yield ignored(candidates[at]!, candidates[0]!);
    }
  }

  *#collect(
    file: ManifestFile,
    items: readonly ManifestItem[],
    former: FileContent,
    rejections: Rejection[],
  ): Generator<void, ReadonlyMap<string, ManifestItem>> {
    const byKey = new Map<string, ManifestItem>();
    for (const [index, item] of items.entries()) {
      if (index % OBJECTS_PER_STEP === 0) yield;
      const { key, object, refusal } = item;
      const kept = key === null ? undefined : former.byKey.get(key);
      if (refusal !== undefined) {
        const message = kept === undefined ? refusal : `${refusal}; ${LAST_GOOD}`;
        rejections.push({ where: placeOf(file, item), object, message });
        if (key !== null && kept !== undefined && !byKey.has(key)) byKey.set(key, kept);
        continue;
      }
      if (key === null) continue;
      const first = byKey.get(key);
      if (first === undefined) byKey.set(key, item);
      else rejections.push(ignored({ file, item }, { file, item: first }));
    }
    return byKey;
  }

  #report(rejections: readonly Rejection[], former: FileContent): ReadonlyMap<string, Rejection> {
    const reported = new Map<string, Rejection>();
    for (const rejection of rejections) {
      const reason = rejection.message.replace(`; ${LAST_GOOD}`, "");
      const text = `${rejection.object}: ${reason}`;
      if (!former.reported.has(text) && !reported.has(text)) this.#rejections.push(rejection);
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
    const known = this.#candidates.get(key) ?? [];
    const candidates = known.filter((one) => one.file.order !== file.order);
    if (item !== undefined) {
      const isReported = known.find((one) => one.file.order === file.order)?.isReported ?? false;
      candidates.push({ file, item, isReported });
    }
    if (candidates.length > 1) candidates.sort((one, other) => one.file.order < other.file.order ? -1 : 1);
    if (candidates.length === 0) this.#candidates.delete(key);
    else this.#candidates.set(key, candidates);
  }

  /** Events that lead from the delivered version of an object to the one in force. */
  #settle(key: string): SourceEvent[] {
    const [winner, ...others] = this.#candidates.get(key) ?? [];
    if (winner !== undefined) winner.isReported = false;
    for (const other of others) {
      if (!other.isReported) this.#rejections.push(ignored(other, winner!));
      other.isReported = true;
    }
    const old = this.#delivered.get(key);
    const current = winner?.item.exclusion === undefined ? winner?.item : undefined;
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
}

function ignored({ file, item }: PlacedItem, winner: PlacedItem): Rejection {
  const message = `is ignored: already defined at ${placeOf(winner.file, winner.item)}`;
  return { where: placeOf(file, item), object: item.object, message };
}

function sameItem(one: ManifestItem | undefined, other: ManifestItem): boolean {
  return one !== undefined && one.exclusion === other.exclusion && sameObject(one.objects, other.objects);
}

/** `web.yaml:12 (document 2)`. */
function placeOf(file: ManifestFile, at: { readonly line: number; readonly document: number }): string {
  return `${file.path}${at.line === 0 ? "" : `:${at.line}`} (document ${at.document})`;
}
