/** Which files serve as a snapshot, and what is reported of others. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { putWeb } from "../../../tests/support/kube_fixture.ts";
import { ListWatchServer } from "../../../tests/support/list_watch_server.ts";
import {
  ALL,
  PATIENCE,
  rememberedAndGone,
  SAVED_AT_MS,
  SnapshotRig,
} from "../../../tests/support/snapshot_rig.ts";
import { until } from "../../../tests/support/until.ts";

Deno.test("a file that cannot serve is reported and left; the server is waited for as without one", async (t) => {
  await using rig = await SnapshotRig.create();
  const url = await rememberedAndGone(rig);
  const good = await Deno.readTextFile(rig.path);
  const cases: readonly (readonly [name: string, content: string, reason: string])[] = [
    ["torn", good.slice(0, -100), "the file is not complete: its end is missing"],
    ["damaged", good.replace("10.1.0.3", "10.1.0.4"), "the file is damaged: its checksum is wrong"],
    ["foreign", "hello\n", "the file is no snapshot of kproxy"],
    ["newer", good.replace('Snapshot":1', 'Snapshot":2'), "was written by a newer release"],
    ["of another node", good.replace('"n1"', '"n2"'), "is of another node"],
  ];
  for (const [name, content, reason] of cases) {
    await t.step(name, async () => {
      await Deno.writeTextFile(rig.path, content);
      await using source = rig.start(url, { patience: PATIENCE });
      await until(
        () => source.lines.some((line) => line.includes("the snapshot is of no use")),
        "the reason",
      );
      assertStringIncludes(source.lines.join(""), reason);
      await using server = new ListWatchServer(Number(new URL(url).port));
      putWeb(server);
      await source.recorder.untilSynced();
      assertEquals([source.recorder.names().length, rig.restored], [3, []]);
    });
  }
  const others: readonly (readonly [name: string, make: () => Promise<unknown>, reason: string])[] = [
    ["a folder", () => Deno.mkdir(rig.path), "the file is not a regular file"],
    [
      "a pipe",
      () => new Deno.Command("mkfifo", { args: [rig.path] }).output(),
      "the file is not a regular file",
    ],
    ["a link to a good one", async () => {
      await Deno.writeTextFile(`${rig.folder}/good`, good, { mode: 0o600 });
      await Deno.symlink(`${rig.folder}/good`, rig.path);
    }, "the file is a symbolic link"],
    ["one that all may write", async () => {
      await Deno.writeTextFile(rig.path, good);
      await Deno.chmod(rig.path, 0o602);
    }, "the file may be written by others (mode 0602)"],
  ];
  for (const [name, make, reason] of others) {
    await t.step(name, async () => {
      await Deno.remove(rig.path, { recursive: true });
      await make();
      await using source = rig.start(url, { patience: PATIENCE });
      await until(() => source.lines.some((line) => line.includes(reason)), reason);
      assertEquals([source.recorder.names(), rig.restored], [[], []]);
    });
  }
});

Deno.test("a snapshot of another user is not served", { ignore: Deno.uid() !== 0 }, async () => {
  await using rig = await SnapshotRig.create();
  const url = await rememberedAndGone(rig);
  await Deno.chown(rig.path, 65_534, 65_534);
  await using source = rig.start(url, { patience: PATIENCE });
  const reason = "the file belongs to user 65534";
  await until(() => source.lines.some((line) => line.includes(reason)), reason);
  assertEquals(source.recorder.names(), []);
});

Deno.test("a snapshot that is too old is not served, which is reported until the server has listed everything", async () => {
  await using rig = await SnapshotRig.create();
  const url = await rememberedAndGone(rig);
  // A clock that was set back, as one without a battery, makes no snapshot too old.
  for (const [ageMs, isServed] of [[-86_400_000, true], [60_000, true], [60_001, false]] as const) {
    rig.restored.length = 0;
    const epochMs = () => SAVED_AT_MS + ageMs;
    await using source = rig.start(url, { patience: PATIENCE, maxAgeMs: 60_000, epochMs });
    await until(() => rig.restored.length === 1, "the snapshot");
    const kinds = ["services", "endpointslices"] as const;
    const expiresAtMs = SAVED_AT_MS + 60_000;
    assertEquals(rig.restored, [{ savedAtMs: SAVED_AT_MS, kinds, expiresAtMs, isServed }]);
    assertEquals(source.recorder.names(), isServed ? ALL : []);
    assertEquals(source.lines.some((line) => /^W.*too old to be served/.test(line)), !isServed);
    if (isServed) continue;
    await using server = new ListWatchServer(Number(new URL(url).port));
    putWeb(server);
    await source.recorder.untilSynced();
    await until(() => rig.restored.at(-1) === null, "the lists");
  }
});
