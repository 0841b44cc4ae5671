/**
 * What of an object Kubernetes' API does not know: fields by name, and values of another type. The models of
 * `@kubernetes/client-node`, which are made from the API's own description, say what there is.
 *
 * @module
 */
import * as models from "@kubernetes/client-node/dist/gen/models/all.js";

interface Attribute {
  readonly baseName: string;
  /** `string`, `Array<V1Container>`, `{ [key: string]: string; }`, `V1PodSpec`. */
  readonly type: string;
}

interface Model {
  getAttributeTypeMap(): readonly Attribute[];
}

/** By kind. */
const MODELS: Readonly<Record<string, string>> = {
  ClusterRole: "V1ClusterRole",
  ClusterRoleBinding: "V1ClusterRoleBinding",
  ConfigMap: "V1ConfigMap",
  DaemonSet: "V1DaemonSet",
  ServiceAccount: "V1ServiceAccount",
};

/** The problems of an object, each with its path. */
export function problemsOf(object: { readonly kind: string }): string[] {
  return schemaProblems(object, MODELS[object.kind] ?? object.kind);
}

/** The problems of a value, each with its path. `type` is the name of a model, such as `V1DaemonSet`. */
export function schemaProblems(value: unknown, type: string, path = ""): string[] {
  const item = /^Array<(.*)>$/.exec(type)?.[1];
  if (item !== undefined) {
    if (!Array.isArray(value)) return [`${path}: no list`];
    return value.flatMap((one, index) => schemaProblems(one, item, `${path}[${index}]`));
  }
  if (type === "IntOrString") {
    return typeof value === "string" || Number.isInteger(value) ? [] : [`${path}: no number and no text`];
  }
  if (type === "any") return [];
  if (type === "number") return Number.isInteger(value) ? [] : [`${path}: no number`];
  if (type === "string") return typeof value === "string" ? [] : [`${path}: no string`];
  if (type === "boolean") return typeof value === "boolean" ? [] : [`${path}: no boolean`];
  if (typeof value !== "object" || value === null || Array.isArray(value)) return [`${path}: no object`];
  const ofMap = /^\{ \[key: string\]: (.*); \}$/.exec(type)?.[1];
  if (ofMap !== undefined) {
    return Object.entries(value).flatMap(([key, one]) => schemaProblems(one, ofMap, `${path}.${key}`));
  }
  return fieldProblems(value, modelOf(type), path);
}

function fieldProblems(value: object, model: Model, path: string): string[] {
  const attributes = new Map(model.getAttributeTypeMap().map(({ baseName, type }) => [baseName, type]));
  return Object.entries(value).flatMap(([name, one]) => {
    const type = attributes.get(name);
    return type === undefined ? [`${path}.${name}: unknown`] : schemaProblems(one, type, `${path}.${name}`);
  });
}

/** @throws {TypeError} if there is none */
function modelOf(type: string): Model {
  const model = (models as Readonly<Record<string, unknown>>)[type];
  if (model === undefined) throw new TypeError(`No model ${type}`);
  return model as Model;
}
