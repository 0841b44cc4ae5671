/**
 * Figures from samples.
 *
 * @module
 */

/** A distribution of times in milliseconds. */
export interface Distribution {
  readonly count: number;
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
}

/** The value below which `share` of the samples lie (nearest rank). */
export function quantile(samples: readonly number[], share: number): number {
  const sorted = samples.toSorted((a, b) => a - b);
  const value = sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)];
  if (value === undefined) throw new RangeError("There are no samples");
  return value;
}

/** Median, 99th percentile and maximum. */
export function distribution(samples: readonly number[]): Distribution {
  return {
    count: samples.length,
    p50: quantile(samples, 0.5),
    p99: quantile(samples, 0.99),
    max: quantile(samples, 1),
  };
}

/** Means of ten parts of the samples, in order; the samples themselves if there are fewer. */
export function tenths(samples: readonly number[]): readonly number[] {
  const parts = Math.min(10, samples.length);
  return Array.from({ length: parts }, (_, k) => {
    const part = samples.slice(
      Math.floor(k * samples.length / parts),
      Math.floor((k + 1) * samples.length / parts),
    );
    return part.reduce((sum, value) => sum + value, 0) / part.length;
  });
}
