import { assertEquals } from "@std/assert";
import { formatRfc3339 } from "./rfc3339.ts";

/** What the local zone adds; tests run in whatever zone the machine has. */
function zone(epochMs: number): string {
  const minutes = -new Date(epochMs).getTimezoneOffset();
  if (minutes === 0) return "Z";
  const two = (value: number): string => String(value).padStart(2, "0");
  const size = Math.abs(minutes);
  return `${minutes < 0 ? "-" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
}

Deno.test("times have as many digits of a second as are not zero", { permissions: "none" }, () => {
  const base = new Date(2025, 0, 2, 3, 4, 5).getTime();
  for (
    const [ms, fraction] of [[0, ""], [123, ".123"], [120, ".12"], [0.25, ".00025"]] as const
  ) {
    assertEquals(formatRfc3339(base + ms), `2025-01-02T03:04:05${fraction}${zone(base)}`);
  }
  assertEquals(formatRfc3339(base + 999.9999), `2025-01-02T03:04:06${zone(base)}`);
});

Deno.test("a zone east or west of UTC is told as its distance", async () => {
  for (
    const [tz, expected] of [
      ["Asia/Kolkata", "1970-01-01T05:30:00.001+05:30"],
      ["America/New_York", "1969-12-31T19:00:00.001-05:00"],
      ["UTC", "1970-01-01T00:00:00.001Z"],
    ] as const
  ) {
    const { stdout } = await new Deno.Command(Deno.execPath(), {
      args: [
        "eval",
        `import { formatRfc3339 } from "${
          import.meta.resolve("./rfc3339.ts")
        }"; console.log(formatRfc3339(1));`,
      ],
      env: { TZ: tz, NO_COLOR: "1" },
    }).output();
    assertEquals(new TextDecoder().decode(stdout).trim(), expected);
  }
});
