/**
 * Metrics as Prometheus reads them.
 *
 * @module
 */
import type { Registry } from "./prom_client.ts";

/** What the text is, in the words of a `Content-Type`; Prometheus 3 is told that names need no unescaping. */
export const METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/** A metric with so many series that it had better write them itself. */
export interface WritesOwnText {
  /** Its two lines of comment, then a line for each series; no end of line after the last. */
  ownText(): Promise<string>;
}

/** All metrics that have a value, by name. One without any is left out whole, as Go's library does. */
export async function metricsText(registry: Registry): Promise<string> {
  const texts = await Promise.all(
    registry.getMetricsAsArray().map((metric) =>
      writesOwnText(metric) ? metric.ownText() : registry.getSingleMetricAsString(metric.name)
    ),
  );
  // A text without a value has only its two comment lines.
  return texts.filter((text) => text.split("\n", 3).length > 2).sort().map((text) => `${text}\n`).join("");
}

function writesOwnText<Metric extends object>(metric: Metric): metric is Metric & WritesOwnText {
  return "ownText" in metric;
}
