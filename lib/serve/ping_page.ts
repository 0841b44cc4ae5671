/**
 * The metrics server's own `/healthz`: it says only that the server answers.
 *
 * @module
 */
import type { SliMetrics } from "../observe/metrics_program.ts";
import { textAnswer } from "./answers.ts";
import type { Handler } from "./http_listener.ts";

const CHECK = "ping";

/**
 * Answers `ok`; the root page also lists its one check with `?verbose`, and leaves it out with `?exclude=ping`.
 *
 * @param isRoot true for `/healthz`, false for `/healthz/ping`
 */
export function pingHandler(slis: SliMetrics, isRoot: boolean): Handler {
  return (request) => {
    const { searchParams } = new URL(request.url);
    const excluded = isRoot ? searchParams.getAll("exclude").filter((name) => name !== "") : [];
    const isExcluded = excluded.includes(CHECK);
    if (!isExcluded) slis.pinged();
    if (!isRoot || !searchParams.has("verbose")) return textAnswer("ok");
    const unknown = [...new Set(excluded)].filter((name) => name !== CHECK).sort();
    return textAnswer([
      `[+]${CHECK} ${isExcluded ? "excluded: " : ""}ok\n`,
      ...unknown.length === 0 ? [] : [noMatches(unknown)],
      "healthz check passed\n",
    ].join(""));
  };
}

function noMatches(names: readonly string[]): string {
  const quoted = names.map((name) => JSON.stringify(name)).join(",");
  return `warn: some health checks cannot be excluded: no matches for ${quoted}\n`;
}
