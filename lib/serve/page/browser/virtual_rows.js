/**
 * A table of any length, of which only the rows in sight are there.
 *
 * @module
 */
import { h } from "preact";
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

/** @typedef {import("./parts.js").Children} Children */
/** @typedef {import("../page_document.ts").ServiceRow} Row */

/** Rows above and below what is in sight. */
const BEYOND = 8;

/**
 * @typedef {object} VirtualRowsProps
 * @property {string} label
 * @property {readonly Children[]} head its columns
 * @property {readonly Row[]} rows
 * @property {(row: Row) => string} keyOf
 * @property {(row: Row) => readonly Children[]} cellsOf
 * @property {(row: Row) => void} onOpen for Enter and clicks
 * @property {number} rowHeight in pixels
 */

/** Which part of the rows is in sight, in pixels: of what scrolls, without the head above it. */
function useSight() {
  const scroller = useRef(/** @type {HTMLDivElement | null} */ (null));
  const headGroup = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [sight, setSight] = useState({ top: 0, height: 600 });
  const measure = useCallback(() => {
    const box = scroller.current;
    if (box !== null) {
      setSight({ top: box.scrollTop, height: box.clientHeight - (headGroup.current?.offsetHeight ?? 0) });
    }
  }, []);
  useEffect(() => {
    const observer = new ResizeObserver(measure);
    if (scroller.current !== null) observer.observe(scroller.current);
    return () => observer.disconnect();
  }, []);
  return { scroller, headGroup, sight, measure };
}

/**
 * Gives the focus to the row that the keys have moved to, once it is drawn.
 *
 * @param {{ readonly current: HTMLDivElement | null }} scroller
 * @returns {{ current: boolean }} to be set where it is wanted
 */
function useRowFocus(scroller) {
  const isWanted = useRef(false);
  useLayoutEffect(() => {
    if (!isWanted.current) return;
    isWanted.current = false;
    const row = scroller.current?.querySelector('[tabindex="0"]');
    if (row instanceof HTMLElement) row.focus({ preventScroll: true });
  });
  return isWanted;
}

/**
 * Arrow keys, Page Up and Down, Home and End move from row to row, Enter opens one. The focus stays with its row, whatever is
 * changed around it.
 *
 * @param {VirtualRowsProps} props
 */
export function VirtualRows({ label, head, rows, keyOf, cellsOf, onOpen, rowHeight }) {
  const { scroller, headGroup, sight, measure } = useSight();
  const [active, setActive] = useState("");
  const wantsFocus = useRowFocus(scroller);
  const found = rows.findIndex((row) => keyOf(row) === active);
  const activeIndex = Math.max(0, found);
  const moveTo = (/** @type {number} */ index) => {
    const row = rows[index];
    const box = scroller.current;
    if (row === undefined || box === null) return;
    scrollTo(box, { top: index * rowHeight, rowHeight, height: sight.height });
    wantsFocus.current = true;
    setActive(keyOf(row));
    measure();
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    const page = Math.max(1, Math.floor(sight.height / rowHeight) - 1);
    const to = targetOf(event.key, { at: activeIndex, page, count: rows.length });
    const row = rows[activeIndex];
    if (to !== null) moveTo(to);
    else if (event.key === "Enter" && row !== undefined) onOpen(row);
    else return;
    event.preventDefault();
  };
  return h(
    "div",
    {
      role: "grid",
      "aria-label": label,
      "aria-rowcount": rows.length + 1,
      "aria-colcount": head.length,
      class: "grid",
    },
    h(
      "div",
      { class: "grid-scroller", role: "presentation", ref: scroller, onScroll: measure, onKeyDown },
      h("div", { role: "rowgroup", class: "grid-head-group", ref: headGroup }, headRow(head)),
      h(
        "div",
        { role: "rowgroup", class: "grid-space", style: { height: `${rows.length * rowHeight}px` } },
        indexesInSight(sight, rowHeight, rows.length, activeIndex).map((index) => {
          const row = rows[index];
          if (row === undefined) return null;
          const key = keyOf(row);
          return bodyRow(cellsOf(row), {
            key,
            "aria-rowindex": index + 2,
            tabIndex: index === activeIndex ? 0 : -1,
            style: { height: `${rowHeight}px`, transform: `translateY(${index * rowHeight}px)` },
            onClick: () => onOpen(row),
            onFocus: () => setActive(key),
          });
        }),
      ),
    ),
  );
}

/**
 * Scrolls as far as a row needs to be in sight.
 *
 * @param {HTMLDivElement} box
 * @param {{ top: number, rowHeight: number, height: number }} place of the row, and how much is in sight
 */
function scrollTo(box, { top, rowHeight, height }) {
  if (top < box.scrollTop) box.scrollTop = top;
  else if (top + rowHeight > box.scrollTop + height) box.scrollTop = top + rowHeight - height;
}

/** @param {readonly Children[]} cells */
function headRow(cells) {
  return h(
    "div",
    { role: "row", "aria-rowindex": 1, class: "grid-row grid-head" },
    cells.map((cell, index) => h("div", { role: "columnheader", key: index, class: `cell-${index}` }, cell)),
  );
}

/**
 * @param {readonly Children[]} cells
 * @param {import("preact").HTMLAttributes<HTMLDivElement>} place where the row is, and what it does
 */
function bodyRow(cells, place) {
  return h(
    "div",
    { role: "row", class: "grid-row", ...place },
    cells.map((cell, column) => h("div", { role: "gridcell", key: column, class: `cell-${column}` }, cell)),
  );
}

/**
 * @param {string} key
 * @param {{ at: number, page: number, count: number }} place
 * @returns {number | null} the row that the key moves to; null for other keys
 */
function targetOf(key, { at, page, count }) {
  const last = count - 1;
  switch (key) {
    case "ArrowDown":
      return Math.min(last, at + 1);
    case "ArrowUp":
      return Math.max(0, at - 1);
    case "PageDown":
      return Math.min(last, at + page);
    case "PageUp":
      return Math.max(0, at - page);
    case "Home":
      return 0;
    case "End":
      return last;
    default:
      return null;
  }
}

/**
 * @param {{ top: number, height: number }} sight
 * @param {number} rowHeight
 * @param {number} count
 * @param {number} active is there wherever it is, or the focus would be lost
 * @returns {number[]}
 */
function indexesInSight({ top, height }, rowHeight, count, active) {
  const first = Math.max(0, Math.min(Math.floor(top / rowHeight) - BEYOND, count - 1));
  const last = Math.min(count - 1, Math.ceil((top + height) / rowHeight) + BEYOND);
  const indexes = Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => first + index);
  if (active >= count || count === 0) return indexes;
  return active < first ? [active, ...indexes] : active > last ? [...indexes, active] : indexes;
}
