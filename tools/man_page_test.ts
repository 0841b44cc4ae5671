import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { COMMANDS } from "../lib/config/setting.ts";
import { FLAGS } from "../lib/cli/flags/flags.ts";
import { COMMAND_DOCS } from "../lib/cli/help.ts";
import { e2eTest, program } from "../tests/support/skip.ts";
import { manPage } from "./man_page.ts";

/** groff's output for a page, and its warnings. */
async function formatted(page: string): Promise<{ readonly text: string; readonly warnings: string }> {
  // Without bold text, as overstruck letters; with lines long enough for each sentence.
  const child = new Deno.Command("groff", {
    args: ["-man", "-ww", "-Tutf8", "-P-cbou", "-rLL=400n"],
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const output = child.output();
  const writer = child.stdin.getWriter();
  await writer.write(new TextEncoder().encode(page));
  await writer.close();
  const { stdout, stderr } = await output;
  const decoder = new TextDecoder();
  return { text: decoder.decode(stdout), warnings: decoder.decode(stderr) };
}

e2eTest("groff reads the manual page without a warning, and every command and flag is in it", [
  program("groff"),
], async () => {
  const page = manPage();
  const { text, warnings } = await formatted(page);
  assertEquals(warnings, "");
  const lines = new Set(text.split("\n").map((line) => line.trim().replaceAll(/\s+/g, " ")));
  for (const name of COMMANDS) {
    const { usage, summary } = COMMAND_DOCS[name];
    // A short tag is on the same line as its text.
    assert(
      lines.has(usage) || [...lines].some((line) => line.startsWith(`${usage} ${summary}`)),
      usage,
    );
    assertStringIncludes(text, `${summary}.`);
  }
  for (const { name, short, doc } of FLAGS) {
    const tag = short === undefined ? `--${name}` : `-${short}, --${name}`;
    assert([...lines].some((line) => line === tag || line.startsWith(`${tag} `)), tag);
    assertStringIncludes(text, doc);
  }
  // An unknown request and an unprintable character are reported.
  assert((await formatted(`${page}.NOSUCH x\n`)).warnings.includes("NOSUCH"));
  assert((await formatted(`${page}\\[nosuch]\n`)).warnings.includes("nosuch"));
});

Deno.test(
  "the manual page is ASCII, and no line of text is taken for a request",
  { permissions: "none" },
  () => {
    const known = /^\.(?:\\"|nh|ad|TH|SH|SS|TP|IP|B|BR|I|RI|br|nf|fi)(?: |$)/;
    for (const line of manPage().split("\n")) {
      assert(/^[\x20-\x7e]*$/.test(line), line);
      assert(!/^[.']/.test(line) || known.test(line), line);
    }
  },
);
