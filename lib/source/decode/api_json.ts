/**
 * Kubernetes objects as JSON, by the models of `@kubernetes/client-node`: which fields there are and of what sort. A field that no
 * model knows does not compile, and its next release shows here what changed.
 *
 * Types only: nothing of that package is loaded when the program runs.
 *
 * @module
 */
import type {
  EventsV1Event,
  KubernetesListObject,
  KubernetesObject,
  V1Endpoints,
  V1EndpointSlice,
  V1Node,
  V1Service,
  V1ServiceCIDR,
} from "@kubernetes/client-node";

/** A model's value as it stands in JSON: times are texts there. */
export type Json<T> = unknown extends T ? T
  : T extends Date ? string
  : T extends readonly (infer Item)[] ? readonly Json<Item>[]
  : T extends object ? { readonly [Key in keyof T]: Json<T[Key]> }
  : T;

/** Some fields of a model's value, as JSON. What is null or undefined counts as absent, as in the API. */
export type JsonPart<T> = unknown extends T ? T
  : T extends Date ? string
  : T extends readonly (infer Item)[] ? readonly JsonPart<Item>[]
  : T extends object ? { readonly [Key in keyof T]?: JsonPart<T[Key]> | null | undefined }
  : T;

declare const MODEL: unique symbol;

/** An unchecked object that should be a `T`: its fields have the names of the model, and any value. */
export type Raw<T> = { readonly [Key in keyof T]?: unknown } & { readonly [MODEL]?: T };

/** Model of an object whose fields are unknown: every name is one of them. */
export type AnyModel = Readonly<Record<string, unknown>>;

/** Sort of value that a field of a model holds. */
export type FieldSort = "text" | "number" | "boolean" | "object" | "texts" | "objects";

type SortOf<V> = V extends string | Date ? "text"
  : V extends number ? "number"
  : V extends boolean ? "boolean"
  : V extends readonly (infer Item)[]
    ? SortOf<Item> extends "text" ? "texts" : SortOf<Item> extends "object" ? "objects" : never
  : V extends object ? "object"
  : never;

/** Names of the fields of a model that hold values of these sorts. */
export type FieldOf<T, Sort extends FieldSort> = {
  [Key in keyof T & string]-?: unknown extends T[Key] ? Key
    : [SortOf<NonNullable<T[Key]>>] extends [Sort] ? Key
    : never;
}[keyof T & string];

/** The model of the object that stands in a field. */
export type ObjectIn<T, Key extends keyof T> = unknown extends T[Key] ? AnyModel : NonNullable<T[Key]>;

/** The model of the objects in the list that stands in a field. */
export type ItemIn<T, Key extends keyof T> = unknown extends T[Key] ? AnyModel
  : NonNullable<T[Key]> extends readonly (infer Item)[] ? Item
  : never;

/** An unchecked object of any kind. */
export type RawKubernetesObject = Raw<KubernetesObject>;

/** An unchecked list of any kind. */
export type RawList = Raw<KubernetesListObject<KubernetesObject>>;

/** The kinds that the proxy watches at an API server. */
export interface WatchedModels {
  readonly Service: V1Service;
  readonly EndpointSlice: V1EndpointSlice;
  readonly Node: V1Node;
  readonly ServiceCIDR: V1ServiceCIDR;
}

/** The kinds that the proxy reads; v1 Endpoints only in manifests. */
export interface ReadModels extends WatchedModels {
  readonly Endpoints: V1Endpoints;
}

/** An object of a kind that the proxy reads, as the API server sends it. */
export type ObjectJson<Kind extends keyof ReadModels = keyof ReadModels> = Json<ReadModels[Kind]>;

/** An Event as the API server takes it. */
export type EventJson = Json<EventsV1Event>;
