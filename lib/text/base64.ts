/**
 * Text in base64.
 *
 * @module
 */

/** The UTF-8 of the text: `btoa` takes no more than Latin-1. */
export function base64Of(text: string): string {
  return btoa(String.fromCharCode(...new TextEncoder().encode(text)));
}
