/**
 * Transcripts in the documentation: fenced blocks of commands and their output, which a test runs again.
 *
 * A block is fenced by three backticks with `console STATE`; each line that begins with `$ ` is a command for `sh`, and lines up
 * to the next one are its output.
 *
 * @module
 */

/** A command of a document, and its documented output. */
export interface Transcript {
  readonly state: string;
  readonly command: string;
  readonly output: string;
}

const BLOCK_REGEXP = /^```console ([a-z-]+)\n(.*?)^```$/gms;

/** All commands of a document, in order. */
export function parseTranscripts(text: string): Transcript[] {
  return [...text.matchAll(BLOCK_REGEXP)].flatMap(([, state = "", body = ""]) =>
    body.split(/^\$ /m).slice(1).map((part): Transcript => {
      const end = part.indexOf("\n");
      return { state, command: part.slice(0, end), output: part.slice(end + 1).trimEnd() };
    })
  );
}

/** The document with new outputs: `outputs` in the order of {@linkcode parseTranscripts}. */
export function replaceOutputs(text: string, outputs: readonly string[]): string {
  const left = [...outputs];
  return text.replaceAll(BLOCK_REGEXP, (_whole, state: string, body: string) => {
    const commands = body.split(/^\$ /m).slice(1).map((part) => part.slice(0, part.indexOf("\n")));
    const parts = commands.map((command) => {
      const output = left.shift();
      if (output === undefined) throw new RangeError(`No output for "${command}"`);
      return output === "" ? `$ ${command}\n` : `$ ${command}\n${output}\n`;
    });
    return `\`\`\`console ${state}\n${parts.join("\n")}\`\`\``;
  });
}

/** Patterns of texts that differ in each run, and the words that replace them. */
const VARYING: readonly (readonly [pattern: RegExp, word: string])[] = [
  [/\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z/g, "TIME"],
  [/\b[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT/g, "TIME"],
  [/\b[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d UTC \d{4}/g, "TIME"],
  [/\d+ hr \d\d min \d\d sec/g, "SPAN"],
  [/"(ageSeconds|waitingSeconds)":[\d.]+/g, '"$1":SECONDS'],
  [/waiting for [\d.]+ s/g, "waiting for SECONDS"],
  [/^(content-length|process-start-time-unix): \d+\r?$/gim, "$1: NUMBER"],
  [/^(\w+(?:\{[^}]*\})?) [\d.e+-]+$/gm, "$1 NUMBER"],
  [/^((?:Deno|Binary) version): \S+$/gm, "$1: VERSION"],
  // Values of `kproxy status`; columns are as wide as their contents.
  [/^( +Process) +\d+/gm, "$1  PID"],
  [/(?<=\bup |, )(\d+[dhms] ?)+( ago)?\b/g, "SPAN"],
  [/\b\d+ MiB\b/g, "SIZE"],
  [/\b\d+(\.\d)? m?s\b/g, "TIME"],
  [/(; \w+ TIME)+; \d+ commands?$/gm, "; PHASES"],
  [/\b\d+\/\d+\/0\b/g, "COUNTS"],
  // Counters of `kproxy service get`.
  [/\b\d+ packets? counted/g, "COUNT packets counted"],
  [/^( +iptables \S+ \S+ +)\d+(?= )/gm, "$1COUNT"],
  [/ {2,}/g, "  "],
  [/"kproxy-transcripts-[^"]*"/g, '"FOLDER"'],
  [/(=|files )\/tmp\/kproxy-[^\s"]*/g, "$1FOLDER"],
];

/** An output with fixed words for what differs in each run: times, lengths, metrics, versions, temporary folders. */
export function withoutVarying(output: string): string {
  return VARYING.reduce((text, [pattern, word]) => text.replaceAll(pattern, word), output);
}
