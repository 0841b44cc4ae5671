/**
 * Flags of logging. All but the obsolete ones are honoured with `--config`, over the file's `logging`.
 *
 * @module
 */
import { CONFIGURED, type Flag } from "./flag.ts";

const LOGGED = [...CONFIGURED, "cleanup"] as const;

export const LOGGING_FLAGS = [
  {
    name: "log-flush-frequency",
    type: "duration",
    default: "5s",
    group: "Logging",
    commands: LOGGED,
    doc: "Accepted as in kube-proxy; kproxy writes each line at once",
    field: "logging.flushFrequency",
  },
  {
    name: "log-json-info-buffer-size",
    type: "quantity",
    default: "0",
    group: "Logging",
    commands: LOGGED,
    doc: "Buffer of split streams in json format; needs the gate LoggingAlphaOptions",
    field: "logging.options.json.infoBufferSize",
  },
  {
    name: "log-json-split-stream",
    type: "bool",
    default: "false",
    group: "Logging",
    commands: LOGGED,
    doc: "Information to stdout, errors to stderr in json format; needs the gate LoggingAlphaOptions",
    field: "logging.options.json.splitStream",
  },
  {
    name: "log-text-info-buffer-size",
    type: "quantity",
    default: "0",
    group: "Logging",
    commands: LOGGED,
    doc: "Buffer of split streams in text format; needs the gate LoggingAlphaOptions",
    field: "logging.options.text.infoBufferSize",
  },
  {
    name: "log-text-split-stream",
    type: "bool",
    default: "false",
    group: "Logging",
    commands: LOGGED,
    doc: "Information to stdout, errors to stderr in text format; needs the gate LoggingAlphaOptions",
    field: "logging.options.text.splitStream",
  },
  {
    name: "logging-format",
    type: "string",
    default: "text",
    group: "Logging",
    commands: LOGGED,
    doc: "Form of log lines",
    values: ["text", "json"],
    field: "logging.format",
  },
  {
    name: "v",
    short: "v",
    type: "level",
    default: "0",
    group: "Logging",
    commands: LOGGED,
    doc: "Verbosity of log lines",
    field: "logging.verbosity",
  },
  {
    name: "vmodule",
    type: "vmodule",
    default: "",
    group: "Logging",
    commands: LOGGED,
    doc: "Verbosity of single source files, as pattern=N,…; text format only",
    field: "logging.vmodule",
  },
] as const satisfies readonly Flag[];
