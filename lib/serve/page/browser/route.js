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

/** @returns {Route} */
function currentRoute() {
  const [, word = "", rest = "", text = ""] = /^#\/?([^/?]*)\/?([^?]*)\??(.*)$/.exec(location.hash) ?? [];
  const query = new URLSearchParams(text);
  if (word === "service") return { view: word, name: decoded(rest), query };
  const isView = word === "services" || word === "path" || word === "changes";
  return { view: isView ? word : "overview", name: "", query };
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
 * @param {Record<string, string>} [query] empty values are left out
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

/** @returns {Route} the current route */
export function useRoute() {
  const [route, setRoute] = useState(currentRoute);
  useEffect(() => {
    const update = () => setRoute(currentRoute());
    addEventListener("hashchange", update);
    return () => removeEventListener("hashchange", update);
  }, []);
  return route;
}
