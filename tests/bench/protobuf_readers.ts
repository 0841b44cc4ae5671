/**
 * Which reader of protobuf decodes Services and EndpointSlices at what price: time of one decode, and what its texts leave on the
 * heap. The others than the one in use are loaded from npm for this alone.
 *
 * ```text
 * deno run -A --no-lock --v8-flags=--max-semi-space-size=2,--expose-gc tests/bench/protobuf_readers.ts [COUNT]
 * ```
 *
 * @module
 */
import { decodeEndpointSlice, decodeService } from "../../lib/source/decode/decode.ts";
import { ObjectReader } from "../../lib/source/decode/protobuf_stream.ts";
import { writeLine } from "../../tools/output.ts";
import { objectBytes } from "../support/kube_protobuf.ts";
import { serviceObject, sliceObject } from "./fake_objects.ts";

const COUNT = Number(Deno.args[0] ?? 10_000);
const ROUNDS = 10;
const SIZE = { services: COUNT, endpoints: 10 };

/** What all of these readers have. */
interface Reader {
  pos: number;
  readonly varint: () => number;
  readonly text: () => string;
  readonly skip: (type: number) => void;
}
type Raw = Record<string, unknown>;
type Opener = (bytes: Uint8Array) => Reader;
/** Number of a field → its name, with the fields of a message, or a mark of a list. */
type Fields = Readonly<
  Record<number, readonly [name: string, sort: "text" | "number" | "list" | Fields, isList?: true]>
>;

const META: Fields = {
  1: ["name", "text"],
  3: ["namespace", "text"],
  5: ["uid", "text"],
  6: ["resourceVersion", "text"],
};
const PORT: Fields = { 1: ["name", "text"], 2: ["protocol", "text"], 3: ["port", "number"] };
const SERVICE: Fields = {
  1: ["metadata", META],
  2: ["spec", {
    1: ["ports", PORT, true],
    3: ["clusterIP", "text"],
    4: ["type", "text"],
    7: ["sessionAffinity", "text"],
    18: ["clusterIPs", "list"],
    19: ["ipFamilies", "list"],
    22: ["internalTrafficPolicy", "text"],
  }],
};
const SLICE: Fields = {
  1: ["metadata", META],
  2: ["endpoints", { 1: ["addresses", "list"], 6: ["nodeName", "text"] }, true],
  3: ["ports", PORT, true],
  4: ["addressType", "text"],
};

function read(reader: Reader, end: number, fields: Fields): Raw {
  const object: Raw = {};
  while (reader.pos < end) {
    const tag = reader.varint();
    const field = fields[tag >>> 3];
    if (field === undefined) {
      reader.skip(tag & 7);
      continue;
    }
    const [name, sort, isList] = field;
    if (sort === "text") object[name] = reader.text();
    else if (sort === "number") object[name] = reader.varint();
    else if (sort === "list") ((object[name] ??= []) as unknown[]).push(reader.text());
    else {
      const length = reader.varint();
      const inner = read(reader, reader.pos + length, sort);
      if (isList === true) ((object[name] ??= []) as unknown[]).push(inner);
      else object[name] = inner;
    }
  }
  return object;
}

/** A reader of a package by the names of its methods. */
async function opener(
  specifier: string,
  open: (module: Raw, bytes: Uint8Array) => Raw & { pos: number },
  [varint, text, skip]: readonly [string, string, string],
): Promise<Opener> {
  // Not known when the program is checked: only this measures it.
  const module = await import(specifier) as Raw;
  return (bytes) => {
    const inner = open(module, bytes) as Raw & { pos: number } & Record<string, (type?: number) => never>;
    return {
      get pos(): number {
        return inner.pos;
      },
      varint: () => inner[varint]!(),
      text: () => inner[text]!(),
      skip: (type) => inner[skip]!(type),
    } as Reader;
  };
}

type New = new (bytes: Uint8Array) => Raw & { pos: number };
const READERS: Readonly<Record<string, () => Promise<Opener>>> = {
  "pbf 5.1.2": () =>
    opener("npm:pbf@5.1.2", ({ PbfReader }, bytes) => new (PbfReader as New)(bytes), [
      "readVarint",
      "readString",
      "skip",
    ]),
  "protobufjs 8.8.1": () =>
    opener(
      "npm:protobufjs@8.8.1/minimal.js",
      (module, bytes) =>
        ((module["default"] as Raw)["Reader"] as { create: (bytes: Uint8Array) => never }).create(bytes),
      ["uint32", "string", "skipType"],
    ),
  "@bufbuild/protobuf 2.17.0": () =>
    opener(
      "npm:@bufbuild/protobuf@2.17.0/wire",
      ({ BinaryReader }, bytes) => new (BinaryReader as New)(bytes),
      [
        "uint32",
        "string",
        "skip",
      ],
    ),
};

/** What a controller leaves on every object. */
const MANAGED_FIELDS = [{
  manager: "kube-controller-manager",
  operation: "Update",
  apiVersion: "v1",
  fieldsType: "FieldsV1",
  fieldsV1: {
    "f:metadata": { "f:generateName": {}, "f:labels": { ".": {}, "f:kubernetes.io/service-name": {} } },
    "f:spec": {
      "f:internalTrafficPolicy": {},
      "f:ports": {},
      "f:selector": {},
      "f:sessionAffinity": {},
      "f:type": {},
    },
  },
}];

/** With what real objects have beside what is read. */
function real<T extends { readonly metadata?: object | undefined }>(object: T, index: number): T {
  const uid = `6f1f3c44-0000-4000-8000-${String(index).padStart(12, "0")}`;
  return { ...object, metadata: { ...object.metadata, uid, managedFields: MANAGED_FIELDS } };
}

function realSlice(index: number): unknown {
  const slice = sliceObject(index, index, SIZE, false);
  const endpoints = slice.endpoints?.map((endpoint, place) => ({
    ...endpoint,
    nodeName: `worker-${place}.example.internal`,
    zone: "region-1a",
    targetRef: { kind: "Pod", namespace: "default", name: `app-${index}-7d4b9c6f8-${place}` },
  }));
  return real({ ...slice, endpoints }, index);
}

const services = Array.from({ length: COUNT }, (_, index) => real(serviceObject(index, index), index));
const slices = Array.from({ length: COUNT }, (_, index) => realSlice(index));

interface Way {
  readonly service: (index: number) => unknown;
  readonly slice: (index: number) => unknown;
}

function jsonWay(): Way {
  const texts = [services, slices].map((objects) => objects.map((object) => JSON.stringify(object)));
  return {
    service: (index) => JSON.parse(texts[0]![index]!),
    slice: (index) => JSON.parse(texts[1]![index]!),
  };
}

function bytesWay(service: (bytes: Uint8Array) => unknown, slice: (bytes: Uint8Array) => unknown): Way {
  const all = [
    services.map((object) => objectBytes("Service", object)),
    slices.map((object) => objectBytes("EndpointSlice", object)),
  ];
  return { service: (index) => service(all[0]![index]!), slice: (index) => slice(all[1]![index]!) };
}

/** Microseconds of the quickest round, for one. */
function timeOf(each: (index: number) => unknown): string {
  let bestMs = Infinity;
  for (let round = 0; round < ROUNDS; round++) {
    const startMs = performance.now();
    for (let index = 0; index < COUNT; index++) each(index);
    bestMs = Math.min(bestMs, performance.now() - startMs);
  }
  return (bestMs / COUNT * 1000).toFixed(1);
}

const collect = (globalThis as { gc?: () => void }).gc ?? (() => {});

function measure(name: string, { service, slice }: Way): void {
  const times = [timeOf(service), timeOf(slice)];
  const whole = [
    timeOf((index) => decodeService(service(index))),
    timeOf((index) => decodeEndpointSlice(slice(index))),
  ];
  collect();
  const before = Deno.memoryUsage().heapUsed;
  const kept: unknown[] = [];
  for (let index = 0; index < COUNT; index++) {
    kept.push(decodeService(service(index)), decodeEndpointSlice(slice(index)));
  }
  collect();
  const megabytes = ((Deno.memoryUsage().heapUsed - before) / 1e6).toFixed(1);
  writeLine(
    `${name.padEnd(28)} Service ${times[0]} µs, slice ${times[1]} µs; with checks ${
      whole.join(" and ")
    } µs; ` +
      `${megabytes} MB for ${kept.length} objects`,
  );
}

measure("JSON.parse", jsonWay());
for (const [name, load] of Object.entries(READERS)) {
  const open = await load();
  const reading = (fields: Fields) => (bytes: Uint8Array) => read(open(bytes), bytes.length, fields);
  measure(name, bytesWay(reading(SERVICE), reading(SLICE)));
}
const [serviceReader, sliceReader] = [new ObjectReader("Service"), new ObjectReader("EndpointSlice")];
measure(
  "kproxy, over pbf",
  bytesWay((bytes) => serviceReader.read(bytes), (bytes) => sliceReader.read(bytes)),
);
