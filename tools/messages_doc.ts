/**
 * The Events and log lines of `docs/messages.md`: what can be said is read off the code, what is to be done stands in `log_actions.ts`
 * and {@linkcode EVENT_ACTIONS}.
 *
 * @module
 */
import ts from "typescript";
import { LOG_ACTIONS, type LogAction } from "./log_actions.ts";
import { type LogCall, logCalls } from "./log_calls.ts";
import { ROOT } from "./project_files.ts";

const CATALOG = "lib/observe/events.ts";

/** One Event that kproxy writes. */
export interface EventRow {
  readonly reason: string;
  readonly type: string;
  /** `Node` or `Service`. */
  readonly about: string;
  /** When it is written, from the code's comment. */
  readonly when: string;
}

/** What an Event asks for, by its reason, and the command that shows more. */
export const EVENT_ACTIONS: Readonly<Record<string, LogAction>> = {
  Starting: { action: "none", command: "kproxy status" },
  FailedToStartProxierHealthcheck: {
    action: "free the address, or set healthzBindAddress",
    command: "kproxy status",
  },
  FailedToStartMetricServer: {
    action: "free the address, or set metricsBindAddress",
    command: "kproxy status",
  },
  FailedToStartServiceHealthcheck: {
    action: "free the port on the node, or delete one of the Services that want it",
    command: "kproxy status",
  },
  readOnlySysFS: {
    action: "let kproxy run once with --init-only as root, or set what the note names",
    command: "kproxy doctor",
  },
  ProxyModeFallback: {
    action: "give the node what the note says that it lacks, and start anew",
    command: "kproxy selftest --proxy-mode=MODE",
  },
  IPFamilyNotServed: {
    action: "switch the family on in the kernel, or leave it out of the cluster",
    command: "kproxy doctor",
  },
  ConfigRefused: {
    action: "correct the file: it is taken as soon as it is right",
    command: "kproxy write-config --config=FILE",
  },
  ServiceQuarantined: {
    action: "change what the note names in the Service, or give the kernel what it lacks",
    command: "kproxy service get NAMESPACE/NAME",
  },
  DestinationRefused: {
    action: "take the address or node port from one of the Services that want it",
    command: "kproxy service get NAMESPACE/NAME",
  },
  EndpointUnreachable: {
    action: "correct the address in the EndpointSlice or Endpoints",
    command: "kproxy service get NAMESPACE/NAME",
  },
  OtherProxy: {
    action: "end the other proxy: two of them undo one another's work",
    command: "kproxy doctor",
  },
};

const AREAS: readonly (readonly [heading: string, folders: RegExp])[] = [
  ["Rules and the kernel", /^lib\/(?:backend|kernel|sync)\//],
  ["Objects and where they come from", /^lib\/source\/|^lib\/observe\/log\.ts|^lib\/node\/wire_node/],
  ["The node, the configuration, other proxies", /^lib\/(?:node|cli|observe)\//],
  ["Servers", /^lib\/serve\//],
];

/** The Events of the catalog, in its order. */
export function eventRows(text: string): EventRow[] {
  const source = ts.createSourceFile(CATALOG, text, ts.ScriptTarget.Latest, true);
  return source.statements.flatMap((statement) => {
    if (!ts.isFunctionDeclaration(statement) || statement.name?.text.endsWith("Event") !== true) return [];
    const body = statement.body?.getText() ?? "";
    const [, about = "", reason = ""] = /\babout(Node|Service)\(\s*\w+,\s*"(\w+)"/.exec(body) ?? [];
    const [comment] = ts.getJSDocCommentsAndTags(statement).filter(ts.isJSDoc);
    return [{
      reason,
      type: /type: "Normal"/.test(body) ? "Normal" : "Warning",
      about,
      when: ts.getTextOfJSDocComment(comment?.comment) ?? "",
    }];
  });
}

/** The section `events`. */
export async function eventsMarkdown(): Promise<string> {
  const rows = eventRows(await Deno.readTextFile(`${ROOT}/${CATALOG}`));
  return table(
    ["Event", "Type", "About", "When", "What to do", "What shows more"],
    rows.map(({ reason, type, about, when }) => {
      const { action, command } = known(EVENT_ACTIONS, reason, CATALOG);
      return [`\`${reason}\``, type, about, when, action, commandText(command)];
    }),
  );
}

/** The section `log-lines`. */
export async function logLinesMarkdown(): Promise<string> {
  const calls = await logCalls();
  const areas = AREAS.map(([heading]) => ({ heading, rows: new Map<string, readonly string[]>() }));
  for (const call of calls) {
    const index = AREAS.findIndex(([, folders]) => folders.test(call.file));
    const area = areas[index];
    if (area === undefined) throw new RangeError(`${call.file}: its log lines belong to no area`);
    for (const key of keysOf(call)) {
      const { action, command, shown } = known(LOG_ACTIONS, key, call.file);
      area.rows.set(key, [shown ?? `\`${key}\``, call.severity, action, commandText(command)]);
    }
  }
  return areas.flatMap(({ heading, rows }) => [
    `### ${heading}\n`,
    `${table(["Line", "Level", "What to do", "What shows more"], [...rows.values()])}\n`,
  ]).join("\n");
}

/** Under which names the actions know a call's messages. */
export function keysOf({ file, messages }: LogCall): readonly string[] {
  return messages.map((message) => message.startsWith("(") ? `${file}: ${message}` : message);
}

function known(actions: Readonly<Record<string, LogAction>>, key: string, file: string): LogAction {
  const action = actions[key];
  if (action === undefined) throw new RangeError(`${file}: no action for "${key}"`);
  return action;
}

function commandText(command: string | undefined): string {
  return command === undefined ? "" : `\`${command}\``;
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
  return [line(head), line(head.map(() => "---")), ...rows.map(line)].join("\n");
}
