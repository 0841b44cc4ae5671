/**
 * What nft says when it refuses a text: which lines, and why.
 *
 * @module
 */
import { firstLine } from "../text/lines.ts";
import type { ExecError } from "../errors.ts";
import { NO_RIGHTS_REGEXP } from "./no_rights.ts";

/** One place that nft complains of. */
export interface NftError {
  /** 1-based number of the line of the text. */
  readonly line: number;
  readonly message: string;
}

/** Whose fault a failure is. */
export type NftFailureKind =
  /** The kernel or nft does not take the text: the same text will fail again. */
  | "rejected"
  /** The process may not do this at all. */
  | "permission"
  /** The machine is out of something, or nft never ran: the text may be fine. */
  | "machine";

// Of the file that nft reads; with `-f -` it calls it /dev/stdin.
const ERROR_REGEXP = /^\S*?:(\d+):\d+-\d+: Error: (.*)$/gm;

/** Every line that nft complains of, in its order. The kernel goes on after a first wrong line, so there may be many. */
export function nftErrors(stderr: string): readonly NftError[] {
  return Array.from(stderr.matchAll(ERROR_REGEXP), ([, line, message = ""]) => ({
    line: Number(line),
    message: message.replace(/^Could not process rule: /, ""),
  }));
}

// nft's words where the kernel has no nf_tables.
const NO_NFTABLES_REGEXP = /Protocol not supported|Unable to initialize Netlink socket/;

/** True if the kernel has no nf_tables at all. */
export function isWithoutNftables({ stderr }: ExecError): boolean {
  return NO_NFTABLES_REGEXP.test(stderr);
}

/** True if the kernel has nf_tables, but takes no table of this family. */
export function isWithoutFamily({ stderr }: ExecError): boolean {
  return stderr.includes("Operation not supported");
}

/** 128 + SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV. */
const CRASHED_CODES: readonly number[] = [132, 134, 135, 136, 139];

/** Tells whose fault a failed run of nft is. */
export function nftFailureKind(error: ExecError): NftFailureKind {
  const { code, stderr } = error;
  // A crash is no answer, either, but it may well come from the text.
  const hasCrashed = CRASHED_CODES.includes(code) && error.timedOutMs === null;
  if (error.isMissing() || (error.isInconclusive() && !hasCrashed)) return "machine";
  return NO_RIGHTS_REGEXP.test(stderr) ? "permission" : "rejected";
}

/** True if the failure is an answer: nft complains of a line, or of a kernel or rights without which no text would do. */
export function saysWhy(error: ExecError): boolean {
  const kind = nftFailureKind(error);
  if (kind !== "rejected") return kind === "permission";
  return nftErrors(error.stderr).length > 0 || isWithoutNftables(error) || isWithoutFamily(error);
}

/** True if something was to be added that is there already, with another value. */
export function alreadyExists(error: ExecError): boolean {
  return error.stderr.includes("File exists");
}

const CONTEXT_LENGTH = 300;

/** The first complaint in one line, with what was wrong in the text: `No such file or directory: add element …`. */
export function describeNftFailure(error: ExecError): string {
  const [first] = nftErrors(error.stderr);
  if (first === undefined) return firstLine(error.stderr) || `nft ${error.ending}`;
  const lines = error.stderr.split("\n");
  const at = lines.findIndex((line) => line.includes(`: Error: `));
  const text = lines[at + 1] ?? "";
  // Below the line, nft marks the place: the text around it is what a reader needs of a line of 10,000 elements.
  const column = Math.max(0, (lines[at + 2] ?? "").indexOf("^"));
  const start = text.length <= CONTEXT_LENGTH ? 0 : Math.max(0, column - CONTEXT_LENGTH / 2);
  return text === ""
    ? first.message
    : `${first.message}: ${text.slice(start, start + CONTEXT_LENGTH).trim()}`;
}
