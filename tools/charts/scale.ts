/**
 * Scales of charts, and text in SVG.
 *
 * @module
 */

/** From a value to a place. */
export interface Scale {
  readonly kind: "log" | "linear";
  readonly least: number;
  readonly most: number;
  /** Between the lines of a linear scale. */
  readonly step: number;
  readonly at: (value: number) => number;
}

/** A decade's lines. */
const STEPS = [1, 2, 5] as const;
const LINEAR_TICKS = 6;

/** 1, 2 or 5 times a power of ten: the largest at or below a value, or the smallest at or above it. */
function roundStep(value: number, side: "below" | "above"): number {
  const power = Math.floor(Math.log10(value));
  const around = [power - 1, power, power + 1].flatMap((exponent) =>
    STEPS.map((step) => tick(step, exponent))
  );
  const found = side === "below"
    ? around.findLast((candidate) => candidate <= value)
    : around.find((candidate) => candidate >= value);
  return found ?? value;
}

function tick(step: number, exponent: number): number {
  return Number(`${step}e${exponent}`);
}

/**
 * A scale that holds all values, and whose ends are round numbers; a linear one begins at 0. `bottom` and `top` are the places of its
 * ends.
 *
 * @throws {RangeError} if there are no values, or one that a logarithm does not know
 */
export function yScaleOf(
  kind: Scale["kind"],
  values: readonly number[],
  bottom: number,
  top: number,
): Scale {
  if (values.length === 0 || values.some((value) => !(value > 0))) {
    throw new RangeError(`A chart needs values above 0: got ${values.join(", ")}`);
  }
  const largest = Math.max(...values);
  const isLog = kind === "log";
  const least = isLog ? roundStep(Math.min(...values), "below") : 0;
  const step = roundStep(largest / LINEAR_TICKS, "above");
  const most = isLog ? roundStep(largest, "above") : Math.ceil(largest / step) * step;
  const share = (value: number): number =>
    isLog ? Math.log(value / least) / Math.log(most / least) : value / most;
  return { kind, least, most, step, at: (value) => bottom + share(value) * (top - bottom) };
}

/** Where a scale has its lines. */
export function ticksOf({ kind, least, most, step }: Scale): number[] {
  if (kind === "linear") {
    return Array.from({ length: Math.round(most / step) + 1 }, (_, k) => k * step);
  }
  const ticks: number[] = [];
  for (let exponent = Math.floor(Math.log10(least)); exponent <= Math.ceil(Math.log10(most)); exponent++) {
    for (const digit of STEPS) {
      const value = tick(digit, exponent);
      if (value >= least && value <= most) ticks.push(value);
    }
  }
  return ticks;
}

/** Text as it stands in XML. */
export function escapeXml(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
