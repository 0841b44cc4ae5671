/**
 * What samples of rounds say.
 *
 * @module
 */
import type { ProxiesRow, ProxySamples } from "./records.ts";

/** The middle one; of an even number the lower of two (nearest rank). */
export function median(samples: readonly number[]): number {
  const value = samples.toSorted((a, b) => a - b)[Math.ceil(samples.length / 2) - 1];
  if (value === undefined) throw new RangeError("There are no samples");
  return value;
}

/** Whether kube-proxy was measured at this size. */
export function isMeasured(kubeProxy: ProxiesRow["kubeProxy"]): kubeProxy is ProxySamples {
  return typeof kubeProxy !== "string";
}

/** `0.53 (0.51–0.60)`: the median and in brackets the least and the most, each with so many digits. */
export function spread(samples: readonly number[], format: (value: number) => string): string {
  const [least, most] = [Math.min(...samples), Math.max(...samples)].map(format);
  return least === most ? format(median(samples)) : `${format(median(samples))} (${least}–${most})`;
}

/** Whether even the best round of one is worse than the other's worst: then they differ by more than their rounds do. */
export function isClearlyMore(one: readonly number[], other: readonly number[]): boolean {
  return Math.min(...one) > Math.max(...other);
}
