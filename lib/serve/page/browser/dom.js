/**
 * What the other modules ask of the browser.
 *
 * @module
 */
import { useEffect, useState } from "preact/hooks";

/**
 * Whether the media query matches, now and whenever that changes.
 *
 * @param {string} query
 * @returns {boolean}
 */
export function useMedia(query) {
  const [matches, setMatches] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const list = matchMedia(query);
    const update = () => setMatches(list.matches);
    list.addEventListener("change", update);
    update();
    return () => list.removeEventListener("change", update);
  }, [query]);
  return matches;
}

/** True on screens of a phone's width. */
export function useIsNarrow() {
  return useMedia("(max-width: 720px)");
}

/**
 * The time in milliseconds since the epoch, anew every so often, so that "3 s ago" stays true.
 *
 * @param {number} periodMs
 * @returns {number}
 */
export function useNow(periodMs) {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => {
      if (!document.hidden) setNow(Date.now());
    }, periodMs);
    return () => clearInterval(timer);
  }, [periodMs]);
  return now;
}
