/**
 * Writes a configuration as YAML, as kube-proxy does.
 *
 * @module
 */
import { Document, visit } from "yaml";
import type { KubeProxyConfiguration } from "./types.ts";
import { configToObject } from "./write.ts";

/** Characters that the package leaves as they are, though some readers take them for line ends and a terminal may obey them. */
const UNPRINTABLE = /[\x7f-\xa0\u2028\u2029\ufeff\ufffe\uffff]/g;
/** An octal number of YAML 1.2, and a key with a meaning in 1.1. */
const OTHER_WORDS = /^(?:[-+]?0o[0-7_]+|=)$/;

/** The configuration as YAML that `parseConfig` and kube-proxy (but for `kproxy`) read back. Texts that YAML 1.1 takes for none are quoted. */
export function writeConfigYaml(config: KubeProxyConfiguration): string {
  const document = new Document(configToObject(config), { version: "1.1" });
  visit(document, {
    Scalar(_, node) {
      if (typeof node.value !== "string") return;
      if (OTHER_WORDS.test(node.value)) node.type = "QUOTE_SINGLE";
      // Only double quotes have escapes.
      // deno-lint-ignore no-control-regex
      if (/[\x00-\x1f]/.test(node.value) || node.value.search(UNPRINTABLE) >= 0) node.type = "QUOTE_DOUBLE";
    },
  });
  const format = {
    lineWidth: 0,
    singleQuote: true,
    indentSeq: false,
    doubleQuotedMinMultiLineLength: Infinity,
  };
  return document.toString(format)
    .replace(UNPRINTABLE, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
