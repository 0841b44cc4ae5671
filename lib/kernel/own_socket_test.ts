import { assertEquals, assertRejects, assertThrows } from "@std/assert";
import { e2eTest, ROOT_NAMESPACES } from "../../tests/support/skip.ts";
import { findOwnSocket, openOwnSocket, UnsafePathError } from "./own_socket.ts";
import { withFolder } from "../../tests/support/temp_files.ts";

const NOBODY = 65_534;

function modeOf(path: string): number {
  return (Deno.lstatSync(path).mode ?? 0) & 0o7777;
}

async function greeting(path: string): Promise<string> {
  using connection = await Deno.connect({ transport: "unix", path });
  return await new Response(connection.readable).text();
}

/** Answers one client. */
async function greet(listener: Deno.UnixListener, text: string): Promise<void> {
  using connection = await listener.accept();
  await connection.write(new TextEncoder().encode(text));
}

Deno.test("the socket and its directory are its user's alone", async () => {
  await withFolder((folder) => {
    const path = `${folder}/kproxy/kproxy.sock`;
    using _listener = openOwnSocket(path).listener;
    assertEquals([modeOf(`${folder}/kproxy`), modeOf(path)], [0o700, 0o600]);
    assertEquals([...Deno.readDirSync(`${folder}/kproxy`)].map(({ name }) => name), ["kproxy.sock"]);
    assertEquals(findOwnSocket(path), { path, isTrusted: true });
  });
});

Deno.test("one that follows takes the place at once, and the former one knows; a client always finds one", async () => {
  await withFolder(async (folder) => {
    const path = `${folder}/kproxy.sock`;
    const former = openOwnSocket(path);
    assertEquals(former.isInPlace(), true);
    const later = openOwnSocket(path);
    assertEquals([former.isInPlace(), later.isInPlace()], [false, true]);
    // The end of the former one leaves the later one alone.
    former.listener.close();
    const [text] = await Promise.all([greeting(path), greet(later.listener, "later")]);
    assertEquals(text, "later");
    later.listener.close();
    await assertRejects(() => greeting(path), Deno.errors.ConnectionRefused);
    // What a dead process has left is replaced.
    const next = openOwnSocket(path);
    const [again] = await Promise.all([greeting(path), greet(next.listener, "next")]);
    assertEquals(again, "next");
    next.listener.close();
  });
});

Deno.test("a volume of a Pod, which is open to all and empty, is closed to others; nothing else is", async () => {
  await withFolder((folder) => {
    const volume = `${folder}/volume`;
    Deno.mkdirSync(volume);
    Deno.chmodSync(volume, 0o777);
    openOwnSocket(`${volume}/kproxy.sock`).listener.close();
    assertEquals(modeOf(volume), 0o700);

    for (const [mode, file] of [[0o777, "x"], [0o755, "x"], [0o1777, null]] as const) {
      const open = `${folder}/open-${mode}`;
      Deno.mkdirSync(open);
      Deno.chmodSync(open, mode);
      if (file !== null) Deno.writeTextFileSync(`${open}/${file}`, "");
      assertThrows(
        () => openOwnSocket(`${open}/kproxy.sock`),
        UnsafePathError,
        `is open to others (mode ${mode.toString(8)})`,
      );
      assertEquals(modeOf(open), mode);
    }
  });
});

Deno.test("a path that is no socket stays as it is", async () => {
  await withFolder((folder) => {
    Deno.writeTextFileSync(`${folder}/precious`, "text");
    assertThrows(() => openOwnSocket(`${folder}/precious`), UnsafePathError, "is no socket");
    assertThrows(() => findOwnSocket(`${folder}/precious`), UnsafePathError, "is no socket");
    assertEquals(Deno.readTextFileSync(`${folder}/precious`), "text");
  });
});

Deno.test("a link in the place of the directory, or of the socket, is not followed", async () => {
  await withFolder((folder) => {
    const path = `${folder}/real/kproxy.sock`;
    using _listener = openOwnSocket(path).listener;
    Deno.symlinkSync(`${folder}/real`, `${folder}/link`);
    assertThrows(() => findOwnSocket(`${folder}/link/kproxy.sock`), UnsafePathError, "is a link");
    assertThrows(() => openOwnSocket(`${folder}/link/kproxy.sock`), UnsafePathError, "is a link");
    Deno.symlinkSync(path, `${folder}/real/other.sock`);
    assertThrows(() => findOwnSocket(`${folder}/real/other.sock`), UnsafePathError, "is no socket");
    // One above is followed, as /var/run is one.
    assertEquals(findOwnSocket(`${folder}/link/../real/kproxy.sock`).path, path);
  });
});

Deno.test("where others may write, nothing is believed and nothing opened", async () => {
  await withFolder((folder) => {
    const path = `${folder}/own/kproxy.sock`;
    using _listener = openOwnSocket(path).listener;
    Deno.chmodSync(folder, 0o777);
    assertThrows(() => findOwnSocket(path), UnsafePathError, `others may write in ${folder}, above`);
    assertThrows(() => openOwnSocket(path), UnsafePathError, `others may write in ${folder}, above`);
    // As /tmp is: what belongs to this user stays this user's.
    Deno.chmodSync(folder, 0o1777);
    assertEquals(findOwnSocket(path).isTrusted, true);
    Deno.chmodSync(folder, 0o700);
    Deno.chmodSync(`${folder}/own`, 0o770);
    assertThrows(() => findOwnSocket(path), UnsafePathError, `others may write in ${folder}/own`);
    Deno.chmodSync(`${folder}/own`, 0o700);
    Deno.chmodSync(path, 0o666);
    assertThrows(() => findOwnSocket(path), UnsafePathError, `others may use ${path}`);
  });
});

e2eTest(
  "what belongs to another user is not opened, and believed only where root alone can have put it, and then not trusted",
  [ROOT_NAMESPACES],
  async () => {
    await withFolder((folder) => {
      const directory = `${folder}/run`;
      const path = `${directory}/kproxy.sock`;
      using _listener = openOwnSocket(path).listener;
      Deno.chownSync(directory, NOBODY, NOBODY);
      assertThrows(() => openOwnSocket(path), UnsafePathError, `${directory} belongs to user ${NOBODY}`);
      // The folder is below /tmp, where any user may make one of this name.
      assertThrows(() => findOwnSocket(path), UnsafePathError);
      Deno.chownSync(directory, 0, 0);
      Deno.chownSync(path, NOBODY, NOBODY);
      assertThrows(() => findOwnSocket(path), UnsafePathError, `${path} belongs to user ${NOBODY}`);
      Deno.chownSync(folder, NOBODY, NOBODY);
      assertThrows(
        () => findOwnSocket(path),
        UnsafePathError,
        `${folder}, above ${directory}, belongs to user`,
      );
    });
    // As systemd makes it for the user of its unit, in a place where only root can.
    const directory = `/run/kproxy-test-${Deno.pid}`;
    try {
      using _listener = openOwnSocket(`${directory}/kproxy.sock`).listener;
      for (const path of [directory, `${directory}/kproxy.sock`]) Deno.chownSync(path, NOBODY, NOBODY);
      assertEquals(findOwnSocket(`${directory}/kproxy.sock`).isTrusted, false);
    } finally {
      Deno.removeSync(directory, { recursive: true });
    }
  },
);
