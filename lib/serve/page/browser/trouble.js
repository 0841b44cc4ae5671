/**
 * Known problems of the proxy: shown only if there are any.
 *
 * @module
 */
import { count, counted } from "./format.js";
import { badge, html, lines, mono, section, serviceLink, since, table } from "./parts.js";

const SHOWN_REFUSALS = 10;

/** @typedef {import("../../status/status_document.ts").StatusDocument} StatusDocument */

/** @param {StatusDocument} status */
export function trouble(status) {
  return [quarantine(status), unserved(status), drift(status), settings(status)];
}

/**
 * @param {number} all
 * @param {readonly unknown[]} shown
 */
function cutNote(all, { length }) {
  return all > length ? `. The first ${count(length)} are shown` : "";
}

/** @param {StatusDocument} status */
function quarantine({ quarantine: { count: all, services } }) {
  const note = `${counted(all, "Service")} whose rules the kernel refuses; the others work${
    cutNote(all, services)
  }`;
  return all > 0 && section(
    { id: "quarantine", title: "Quarantine", note },
    table(
      "Quarantine",
      ["Service", "Family", "Why", "Since"],
      services.map((
        one,
      ) => [serviceLink(one.service), one.family, one.problem, since(Date.parse(one.since))]),
      services.map(({ family, service }) => `${family} ${service}`),
    ),
  );
}

/** @param {StatusDocument} status */
function unserved({ unserved: { count: all, destinations } = { count: 0, destinations: [] } }) {
  const what = counted(all, "address or port", "addresses and ports");
  const note = `${what} that Services ask for and do not get${cutNote(all, destinations)}`;
  return all > 0 && section(
    { id: "unserved", title: "Not served", note },
    table(
      "Not served",
      ["Service", "What", "Why"],
      destinations.map((
        { service, destination, reason },
      ) => [serviceLink(service), mono(destination), reason]),
    ),
  );
}

const OUTCOMES = /** @type {const} */ ({
  repaired: ["good", "repaired"],
  pending: ["warning", "being repaired"],
  lasting: ["bad", "damaged all the same"],
});

/** @param {StatusDocument} status */
function drift({ drift: { recent } }) {
  const rows = recent.toReversed().map(({ time, family, damaged, outcome }) => {
    const [tone, words] = OUTCOMES[outcome];
    return [since(Date.parse(time)), family, mono(damaged.join(", ")), badge(tone, words)];
  });
  return rows.length > 0 && section(
    { id: "drift", title: "Drift", note: "foreign changes of the rules" },
    table("Drift", ["When", "Family", "Damaged", "Outcome"], rows),
  );
}

/** @param {StatusDocument} status */
function settings({ otherProxyTables, refusedSettings, configReload, source: { refused }, readiness }) {
  const lastGood = configReload?.inForce === false ? since(Date.parse(configReload.lastSuccess)) : null;
  const found = [
    ...otherProxyTables.map((name) => html`<span>Another service proxy keeps its table ${mono(name)}</span>`),
    ...refusedSettings.map(({ name, reason }) =>
      html`<span>Kernel setting ${mono(name)} is not as wanted: ${reason}</span>`
    ),
    ...(lastGood === null ? [] : [
      html`<span>The configuration file as it is now was refused; the one of ${lastGood} is in force</span>`,
    ]),
    ...refused.objects.slice(0, SHOWN_REFUSALS).map(({ where, object, message }) =>
      html`<span>${mono(object)} is refused: ${message} (${where})</span>`
    ),
    ...(refused.count > SHOWN_REFUSALS
      ? [`${counted(refused.count, "object")} refused in all; see Changes`]
      : []),
    ...Object.entries(readiness.unserved ?? {}).map(([family, { reason, use }]) =>
      `${family} is not served: ${reason}${use === undefined ? "" : `; ${use}`}`
    ),
  ];
  return found.length > 0 && section({ id: "settings", title: "Worth a look" }, lines(found));
}
