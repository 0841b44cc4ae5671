/**
 * Shapes of JSON documents: one declaration gives the type of a document to those that make it, and checks one that came from elsewhere.
 *
 * @module
 */
import { isRecord } from "./record.ts";

/** A shape that values must have. */
export interface Shape<Value> {
  /** The path of the first field that does not fit, e.g. `families.IPv4.services`; null: all do. More may be there. */
  readonly problem: (value: unknown, path: string) => string | null;
  /** True for a field that may be absent. */
  readonly isOptional: boolean;
  /** Never set: it carries the type. */
  readonly of?: Value;
}

/** A field that may be absent. */
export interface OptionalShape<Value> extends Shape<Value> {
  readonly isOptional: true;
}

/** The type of the values of a shape. */
export type Shaped<S> = S extends Shape<infer Value> ? Value : never;

type Fields = Readonly<Record<string, Shape<unknown>>>;

/** The type of an object with these fields. */
export type ShapedFields<F extends Fields> =
  & { readonly [Name in keyof F as F[Name] extends OptionalShape<unknown> ? never : Name]: Shaped<F[Name]> }
  & {
    readonly [Name in keyof F as F[Name] extends OptionalShape<unknown> ? Name : never]?:
      | Shaped<F[Name]>
      | undefined;
  };

function shape<Value>(problem: Shape<Value>["problem"]): Shape<Value> {
  return { problem, isOptional: false };
}

function typed<Value>(isOfType: (value: unknown) => boolean): Shape<Value> {
  return shape((value, path) => isOfType(value) ? null : path);
}

/** Any text; of a type that is narrower than that, the values are not checked: a newer release may have more. */
export function text<Value extends string = string>(): Shape<Value> {
  return typed((value) => typeof value === "string");
}

export const ANYTHING: Shape<unknown> = typed(() => true);
export const NUMBER: Shape<number> = typed(Number.isFinite);
export const FLAG: Shape<boolean> = typed((value) => typeof value === "boolean");

export function list<Value>(of: Shape<Value>): Shape<readonly Value[]> {
  return shape((value, path) =>
    Array.isArray(value) ? problemIn(Object.entries(value), () => of, path) : path
  );
}

/** An object with values by name; where names are a narrower type than text, some may be missing. */
export function record<Value, Name extends string = string>(
  of: Shape<Value>,
): Shape<Readonly<string extends Name ? Record<string, Value> : Partial<Record<Name, Value>>>> {
  return shape((value, path) => isRecord(value) ? problemIn(Object.entries(value), () => of, path) : path);
}

export function orNull<Value>(of: Shape<Value>): Shape<Value | null> {
  return shape((value, path) => value === null ? null : of.problem(value, path));
}

export function optional<Value>(of: Shape<Value>): OptionalShape<Value> {
  return { problem: (value, path) => value === undefined ? null : of.problem(value, path), isOptional: true };
}

export function object<F extends Fields>(fields: F): Shape<ShapedFields<F>> {
  return shape((value, path) =>
    isRecord(value)
      ? problemIn(Object.keys(fields).map((name) => [name, value[name]]), (name) => fields[name]!, path)
      : path
  );
}

function problemIn(
  entries: readonly (readonly [name: string, value: unknown])[],
  shapeOf: (name: string) => Shape<unknown>,
  path: string,
): string | null {
  for (const [name, value] of entries) {
    const problem = shapeOf(name).problem(value, path === "" ? name : `${path}.${name}`);
    if (problem !== null) return problem;
  }
  return null;
}
