/** Writes one line to standard output, at once. */
export function writeLine(line = ""): void {
  writeAll(Deno.stdout, `${line}\n`);
}

/** Writes one line to standard error, at once. */
export function writeErrorLine(line: string): void {
  writeAll(Deno.stderr, `${line}\n`);
}

function writeAll(stream: { writeSync(bytes: Uint8Array): number }, text: string): void {
  let bytes: Uint8Array = new TextEncoder().encode(text);
  // A write to a pipe may take only a part.
  while (bytes.length > 0) bytes = bytes.subarray(stream.writeSync(bytes));
}
