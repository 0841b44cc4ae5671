/**
 * A document of a manifest file → its objects, read or refused.
 *
 * @module
 */
import type { V1ObjectMeta } from "@kubernetes/client-node";
import { toEnd } from "../../text/steps.ts";
import type { ApiObject } from "../../model/objects.ts";
import type { Raw, RawKubernetesObject } from "./api_json.ts";
import { decodeItem, describeItem, exclusionOf, foreignKind, itemsOf, type RawItem } from "./decode.ts";
import { DecodeError, isAbsent } from "./decode_values.ts";

/** One object of a file: read, or refused with a reason. */
export interface ManifestItem {
  /** `Service shop/web`: identity among all files; null if the object does not say. */
  readonly key: string | null;
  /** `Service shop/web`, as far as known. */
  readonly object: string;
  /** 1-based; 0 if not known. */
  readonly line: number;
  /** 1-based, counting documents that hold something. */
  readonly document: number;
  /** What it decodes to; empty if refused. */
  readonly objects: readonly ApiObject[];
  /** False if kube-proxy's selectors would keep it from the proxy. */
  readonly selected: boolean;
  /** Why they would. */
  readonly exclusion?: string;
  /** Why it is refused. */
  readonly refusal?: string;
  /** Its kind, if that is one the proxy does not read. */
  readonly foreign?: string;
}

/** Where and why a text cannot be read at all. */
export interface SyntaxProblem {
  readonly line: number;
  readonly document: number;
  readonly message: string;
}

/** One part of a text, with lines and documents counted from its own start (the first is 0). */
export interface ManifestPart {
  readonly items: readonly ManifestItem[];
  readonly documents: number;
  readonly problem?: SyntaxProblem;
}

/**
 * The objects of what a document holds. `line` yields the 0-based line of a path such as `items[0].spec.ports[1].port`, or -1 if
 * that is not known.
 */
export function decodeDocument(
  raw: unknown,
  document: number,
  line: (path: string) => number,
): ManifestItem[] {
  return toEnd(decodingDocument(raw, document, line));
}

/** As {@linkcode decodeDocument}, in steps of one object each. */
export function* decodingDocument(
  raw: unknown,
  document: number,
  line: (path: string) => number,
): Generator<void, ManifestItem[]> {
  const items: ManifestItem[] = [];
  for (const item of itemsOf(raw)) {
    yield;
    const foreign = foreignKind(item);
    if (foreign !== undefined) {
      const object = describeWritten(item);
      items.push({ key: null, object, document, line: -1, objects: [], selected: false, foreign });
      continue;
    }
    const base = { key: keyOf(item), object: describeWritten(item), document };
    try {
      const objects = decodeItem(item, { manifest: true });
      const exclusion = exclusionOf(item.raw as RawKubernetesObject, String(item.kind));
      const selected = exclusion === null;
      items.push({ ...base, line: line(item.path), objects, selected, ...(selected ? {} : { exclusion }) });
    } catch (error) {
      if (!(error instanceof DecodeError)) throw error;
      items.push({
        ...base,
        line: line(error.path),
        objects: [],
        selected: false,
        refusal: error.message,
      });
    }
  }
  return items;
}

/** `default` stands in for a namespace that is not written. */
function keyOf({ raw, kind }: RawItem): string | null {
  const { name, namespace = "default" } = metadataOf(raw);
  if (typeof kind !== "string" || kind === "" || typeof name !== "string" || name === "") return null;
  if (isClusterScoped(kind)) return `${kind} ${name}`;
  return typeof namespace === "string" ? `${kind} ${namespace}/${name}` : null;
}

function describeWritten({ raw, kind }: RawItem): string {
  const { namespace = "default", name } = metadataOf(raw);
  return describeItem({ kind, raw: { metadata: isClusterScoped(kind) ? { name } : { namespace, name } } });
}

function isClusterScoped(kind: unknown): boolean {
  return kind === "Node" || kind === "ServiceCIDR";
}

function metadataOf(raw: unknown): Pick<Raw<V1ObjectMeta>, "name" | "namespace"> {
  const metadata = (raw as RawKubernetesObject | null | undefined)?.metadata as
    | Raw<V1ObjectMeta>
    | null
    | undefined;
  const { name, namespace } = metadata ?? {};
  return { name, ...(isAbsent(namespace) ? {} : { namespace }) };
}

/** The steps of a path. */
export function segmentsOf(path: string): string[] {
  return [...path.matchAll(/\["([^"]*)"\]|\[(\d+)\]|([^.[\]]+)/g)].map((match) =>
    match[1] ?? match[2] ?? match[3] ?? ""
  );
}
