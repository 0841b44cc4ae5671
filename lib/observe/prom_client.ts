/**
 * The parts of `prom-client` that are used, and their text as Prometheus reads it. The whole of it also loads a push gateway, a cluster and
 * collectors that read `/proc`: about 25 ms and 7 MB for nothing.
 *
 * @module
 */
import type * as prom from "prom-client";
import counter from "prom-client/lib/counter.js";
import gauge from "prom-client/lib/gauge.js";
import histogram from "prom-client/lib/histogram.js";
import registry from "prom-client/lib/registry.js";

export const Counter: typeof prom.Counter = counter;
export const Gauge: typeof prom.Gauge = gauge;
export const Histogram: typeof prom.Histogram = histogram;
export const Registry: typeof prom.Registry = registry;

export type Counter = prom.Counter;
export type Gauge = prom.Gauge;
export type Histogram = prom.Histogram;
export type Registry = prom.Registry;

/** Options of a metric, besides its name and its help. */
export interface MetricOptions {
  readonly labels?: readonly string[];
  /** Called at every scrape; undefined: the value is unknown, and the metric is left out. */
  readonly read?: () => number | undefined | Promise<number | undefined>;
  /** Stability of its name; null: the help does not say. @default {"ALPHA"} */
  readonly stability?: "ALPHA" | "BETA" | "STABLE" | null;
}

function shared(
  registry: Registry | null,
  name: string,
  help: string,
  { labels = [], stability = "ALPHA" }: MetricOptions,
) {
  return {
    name,
    help: stability === null ? help : `[${stability}] ${help}`,
    labelNames: [...labels],
    registers: registry === null ? [] : [registry],
  };
}

/** @param registry null: it is registered later */
export function newCounter(
  registry: Registry | null,
  name: string,
  help: string,
  options: MetricOptions = {},
): Counter {
  const { read } = options;
  const made: Counter = new Counter({
    ...shared(registry, name, help, options),
    ...read !== undefined && {
      async collect() {
        const value = await read();
        made.reset();
        // Resetting a metric without labels sets it to 0, which would claim a count.
        if (value === undefined) made.remove();
        else made.inc(value);
      },
    },
  });
  return made;
}

/** @param registry null: it is registered later */
export function newGauge(
  registry: Registry | null,
  name: string,
  help: string,
  options: MetricOptions = {},
): Gauge {
  const { read } = options;
  const made: Gauge = new Gauge({
    ...shared(registry, name, help, options),
    ...read !== undefined && {
      async collect() {
        const value = await read();
        if (value !== undefined) made.set(value);
      },
    },
  });
  return made;
}

/** Shares one reading among all calls while it is under way: metrics of a registry are collected at the same time. */
export function readTogether<Value>(read: () => Promise<Value>): () => Promise<Value> {
  let reading: Promise<Value> | undefined;
  return () =>
    reading ??= read().finally(() => {
      reading = undefined;
    });
}

/** Content type of the text; for Prometheus 3, names need no unescaping. */
export const METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/** A metric that writes its own text, because it has very many series. */
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
