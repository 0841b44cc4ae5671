/**
 * The queries of `deploy/grafana/kproxy.json`.
 *
 * @module
 */
import { ROOT } from "../../tools/project_files.ts";
import type { Series } from "./alert_cases.ts";

/** A query of a panel. */
export interface Query {
  readonly panel: string;
  /** With what Grafana puts in place of its variables. */
  readonly expr: string;
  /** `{{node}}`. */
  readonly legendFormat: string;
}

/** A panel, as far as tests look at it. */
export interface Panel {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly datasource?: { readonly uid: string };
  readonly targets?: readonly { readonly expr: string; readonly legendFormat: string }[];
}

/** The dashboard, as far as tests look at it. */
export interface Dashboard {
  readonly panels: readonly Panel[];
  readonly templating: { readonly list: readonly { readonly name: string; readonly definition?: string }[] };
}

/** Reads it. */
export async function readDashboard(): Promise<Dashboard> {
  return JSON.parse(await Deno.readTextFile(`${ROOT}/deploy/grafana/kproxy.json`)) as Dashboard;
}

/** All queries, as Grafana sends them for all nodes. */
export function queriesOf({ panels }: Dashboard): Query[] {
  return panels.flatMap(({ title, targets = [] }) =>
    targets.map(({ expr, legendFormat }) => ({
      panel: title,
      expr: expr.replaceAll("$node", ".*").replaceAll("$__rate_interval", "1m"),
      legendFormat,
    }))
  );
}

/** An expression that is 1 where the query yields anything with the labels that its lines are named by. */
export function yieldsSomething({ expr, legendFormat }: Query): string {
  const shown = [...legendFormat.matchAll(/\{\{(\w+)\}\}/g)].reduce(
    // Of what has no such label, the copy is empty, as that of a bare number is.
    (from, [, label]) =>
      `(label_replace(${from}, "shown_${label}", "$1", "${label}", "(.+)") unless on (shown_${label}) vector(0))`,
    expr,
  );
  return `(count(${shown}) > bool 0) or vector(0)`;
}

/** The text of a scrape as series that stay as they are, with the labels of a target on this node. */
export function seriesOf(metrics: string, node: string): Series {
  const series: Record<string, string> = {};
  for (const line of metrics.split("\n")) {
    const [, name, labels, value] = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
    if (name === undefined || value === undefined) continue;
    const all = [...labels === undefined ? [] : [labels], `job="kproxy"`, `node="${node}"`].join(",");
    series[`${name}{${all}}`] = `${Number(value)}x8`;
  }
  series[`up{job="kproxy",node="${node}"}`] = "1x8";
  return series;
}
