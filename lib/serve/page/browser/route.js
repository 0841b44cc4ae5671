/**
 * Which view the address names: `#/`, `#/services?q=web`, `#/service/shop/web`, `#/path?from=world&to=10.96.0.1:80`, `#/changes`.
 *
 * @module
 */
import { useEffect, useState } from "preact/hooks";

/** @typedef {"overview" | "services" | "service" | "path" | "changes"} View */

/**
 * @typedef {object} Route
 * @property {View} view
 * @property {string} name of a Service, `""` in other views
 * @property {URLSearchParams} query
 */

/**
 * @param {string} hash
 * @returns {Route}
 */
export function routeOf(hash) {
  const text = hash.replace(/^#\/?/, "");
  const mark = text.indexOf("?");
  const path = mark < 0 ? text : text.slice(0, mark);
  const query = new URLSearchParams(mark < 0 ? "" : text.slice(mark + 1));
  const [word = "", ...rest] = path.split("/");
  if (word === "service") return { view: "service", name: decoded(rest.join("/")), query };
  if (word === "services" || word === "path" || word === "changes") return { view: word, name: "", query };
  return { view: "overview", name: "", query };
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/**
 * The address of a view.
 *
 * @param {View} view
 * @param {Record<string, string>} [query] empty ones are left out
 */
export function hrefOf(view, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== "");
  const text = given.length === 0 ? "" : `?${new URLSearchParams(given)}`;
  return view === "overview" ? "#/" : `#/${view}${text}`;
}

/**
 * The address of a Service.
 *
 * @param {string} service `namespace/name`
 */
export function serviceHref(service) {
  return `#/service/${service.split("/").map(encodeURIComponent).join("/")}`;
}

/**
 * Changes the query of the view that is shown, without a step in the history.
 *
 * @param {View} view
 * @param {Record<string, string>} query
 */
export function replaceQuery(view, query) {
  history.replaceState(null, "", hrefOf(view, query));
}

/** @returns {Route} the one that is shown */
export function useRoute() {
  const [route, setRoute] = useState(() => routeOf(location.hash));
  useEffect(() => {
    const update = () => setRoute(routeOf(location.hash));
    addEventListener("hashchange", update);
    return () => removeEventListener("hashchange", update);
  }, []);
  return route;
}
