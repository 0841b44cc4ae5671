/**
 * A table of any length, of which only the visible rows are in the document.
 *
 * @module
 */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { html } from "./parts.js";

/** @typedef {import("./parts.js").Children} Children */
/** @typedef {import("../page_document.ts").ServiceRow} Row */

/** Rows rendered above and below the visible ones. */
const BEYOND = 8;

/**
 * Arrow keys, Page Up and Down, Home and End move from row to row, Enter opens one. The focus stays with its row, whatever is
 * changed around it.
 *
 * @param {object} props
 * @param {string} props.label
 * @param {readonly Children[]} props.head of the columns
 * @param {readonly Row[]} props.rows each identified by its first column
 * @param {(row: Row) => readonly Children[]} props.cellsOf
 * @param {(row: Row) => void} props.onOpen for Enter and clicks
 * @param {number} props.rowHeight in pixels
 */
export function Grid({ label, head, rows, cellsOf, onOpen, rowHeight }) {
  const scroller = useRef(/** @type {HTMLDivElement | null} */ (null));
  const headGroup = useRef(/** @type {HTMLDivElement | null} */ (null));
  // The visible part of the rows, in pixels: scroll position, and height without the head.
  const [sight, setSight] = useState({ top: 0, height: 600 });
  const [active, setActive] = useState("");
  const wantsFocus = useRef(false);
  const measure = () => {
    const box = scroller.current;
    if (box === null) return;
    setSight({ top: box.scrollTop, height: box.clientHeight - (headGroup.current?.offsetHeight ?? 0) });
  };
  useEffect(() => {
    const observer = new ResizeObserver(measure);
    if (scroller.current !== null) observer.observe(scroller.current);
    return () => observer.disconnect();
  }, []);
  // The row that the keys have moved to is focused once it is rendered.
  useLayoutEffect(() => {
    const row = wantsFocus.current ? scroller.current?.querySelector('[tabindex="0"]') : null;
    wantsFocus.current = false;
    if (row instanceof HTMLElement) row.focus({ preventScroll: true });
  });
  const at = Math.max(0, rows.findIndex(([name]) => name === active));
  const moveTo = (/** @type {number} */ index) => {
    const [row, box] = [rows[index], scroller.current];
    if (row === undefined || box === null) return;
    const top = index * rowHeight;
    // Scrolls only as far as needed to make the row visible.
    box.scrollTop = Math.min(top, Math.max(box.scrollTop, top + rowHeight - sight.height));
    wantsFocus.current = true;
    setActive(row[0]);
    measure();
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    const page = Math.max(1, Math.floor(sight.height / rowHeight) - 1);
    /** @type {Readonly<Record<string, number>>} */
    const steps = {
      ArrowDown: 1,
      ArrowUp: -1,
      PageDown: page,
      PageUp: -page,
      Home: -Infinity,
      End: Infinity,
    };
    const [step, row] = [steps[event.key], rows[at]];
    if (step !== undefined) moveTo(Math.max(0, Math.min(rows.length - 1, at + step)));
    else if (event.key === "Enter" && row !== undefined) onOpen(row);
    else return;
    event.preventDefault();
  };
  const bodyRow = (/** @type {number} */ index) => {
    const row = rows[index];
    return row && html`
      <div
        key=${row[0]} role="row" class="grid-row" aria-rowindex=${index + 2} tabIndex=${index === at ? 0 : -1}
        style=${{ height: `${rowHeight}px`, transform: `translateY(${index * rowHeight}px)` }}
        onClick=${() => onOpen(row)} onFocus=${() => setActive(row[0])}
      >
        ${cellsOf(row).map((cell, column) =>
          html`<div role="gridcell" key=${column} class="cell-${column}">${cell}</div>`
        )}
      </div>
    `;
  };
  return html`
    <div role="grid" aria-label=${label} aria-rowcount=${rows.length + 1} aria-colcount=${head
      .length} class="grid">
      <div class="grid-scroller" role="presentation" ref=${scroller} onScroll=${measure} onKeyDown=${onKeyDown}>
        <div role="rowgroup" class="grid-head-group" ref=${headGroup}>
          <div role="row" aria-rowindex=${1} class="grid-row grid-head">
            ${head.map((cell, column) =>
              html`<div role="columnheader" key=${column} class="cell-${column}">${cell}</div>`
            )}
          </div>
        </div>
        <div role="rowgroup" class="grid-space" style=${{ height: `${rows.length * rowHeight}px` }}>
          ${indexesInSight(sight, rowHeight, rows.length, at).map(bodyRow)}
        </div>
      </div>
    </div>
  `;
}

/**
 * @param {{ top: number, height: number }} sight
 * @param {number} rowHeight
 * @param {number} count
 * @param {number} active row that is always rendered, visible or not, or the focus would be lost
 */
function indexesInSight({ top, height }, rowHeight, count, active) {
  const first = Math.max(0, Math.min(Math.floor(top / rowHeight) - BEYOND, count - 1));
  const last = Math.min(count - 1, Math.ceil((top + height) / rowHeight) + BEYOND);
  const indexes = Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => first + index);
  if (active >= count || count === 0) return indexes;
  return active < first ? [active, ...indexes] : active > last ? [...indexes, active] : indexes;
}
