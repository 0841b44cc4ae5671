/**
 * Whether a drawing can be seen.
 *
 * @module
 */

/** The contrast of two colours (`#0969da`), 1 to 21, as WCAG has it: text wants 4.5, what is no text 3. */
export function contrastOf(one: string, other: string): number {
  const [dark = 0, light = 0] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

function luminance(colour: string): number {
  const [red = NaN, green = NaN, blue = NaN] = (colour.match(/\w\w/g) ?? []).map((hex) => {
    const part = parseInt(hex, 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
