/**
 * Selectors of labels and fields, as far as tests ask by them.
 *
 * @module
 */
import type { RawApiObject } from "./list_watch_server.ts";

/** True for what is selected. */
export type Selects = (object: RawApiObject | undefined) => boolean;

/** Understands `!label`, `label=x`, `metadata.name=x` and `spec.clusterIP!=x`, and several of them. */
export function selector(labels: string, fields: string): Selects {
  const terms = (text: string): string[] => text.split(",").filter((term) => term !== "");
  const ofLabels = terms(labels).map((term) => {
    const [, not, label = "", value] = /^(!?)([\w./-]+)(?:=(.*))?$/.exec(term) ?? [];
    if (not === undefined || (not === "!") !== (value === undefined)) {
      throw new TypeError(`Label selector "${term}" is not understood`);
    }
    return { label, value };
  });
  const ofFields = terms(fields).map((term) => {
    const [, field = "", operator, value] = /^([\w.]+)(!?=)(.*)$/.exec(term) ?? [];
    return { field, operator, value };
  });
  return (object) => {
    if (object === undefined) return false;
    const { labels: own = {} } = object.metadata;
    if (!ofLabels.every(({ label, value }) => own[label] === value)) return false;
    return ofFields.every(({ field, operator, value }) => {
      const found = field.split(".").reduce<unknown>(
        (place, key) => (place as Record<string, unknown> | undefined)?.[key],
        object,
      );
      return ((found ?? "") === value) === (operator === "=");
    });
  };
}
