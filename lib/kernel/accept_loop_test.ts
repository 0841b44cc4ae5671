import { assertEquals } from "@std/assert";
import { FakeTime } from "@std/testing/time";
import { acceptAll, type Admission } from "./accept_loop.ts";

/** A socket that accepts, or fails, as it is told; then it waits for its end. */
function acceptor(outcomes: readonly (Error | "client")[]) {
  const left = [...outcomes];
  const end = Promise.withResolvers<never>();
  // It may be closed while no connection is accepted.
  end.promise.catch(() => "closed");
  let isClosed = false;
  const socket = {
    accept: (): Promise<Deno.TcpConn> => {
      const outcome = left.shift();
      if (outcome === undefined) return end.promise;
      return outcome === "client" ? Promise.resolve(CLIENT) : Promise.reject(outcome);
    },
    close: () => {
      isClosed = true;
      end.reject(new Deno.errors.BadResource("closed"));
    },
  };
  return { socket, left, isClosed: () => isClosed };
}

// Its content does not matter here.
const CLIENT = { close: () => {} } as Deno.TcpConn;
const OUT = Object.assign(new Error("Too many open files (os error 24)"), { code: "EMFILE" });
const BROKEN = Object.assign(new Error("Invalid argument (os error 22)"), { code: "EINVAL" });

async function run(outcomes: readonly (Error | "client")[], ms: number, admission: Admission = "admitted") {
  using time = new FakeTime();
  const stop = new AbortController();
  const { socket, left, isClosed } = acceptor(outcomes);
  const seen = { taken: 0, failures: 0, told: 0, exhausted: 0 };
  const ended = acceptAll(
    socket,
    {
      pool: { exhausted: () => seen.exhausted++ },
      onFailure: (_error, isNews) => {
        seen.failures++;
        if (isNews) seen.told++;
      },
    },
    () => {
      seen.taken++;
      return admission;
    },
    stop.signal,
  );
  for (let passed = 0; passed < ms; passed += 100) await time.tickAsync(100);
  const result = { ...seen, left: left.length, isClosed: isClosed() };
  stop.abort();
  socket.close();
  await ended;
  return result;
}

Deno.test("without a descriptor it makes room and waits, without end, and goes on as soon as there is one", async () => {
  const outcomes = [...Array.from({ length: 50 }, () => OUT), "client" as const];
  assertEquals(await run(outcomes, 60_000), {
    ...{ taken: 1, failures: 50, told: 1, exhausted: 50 },
    ...{ left: 0, isClosed: false },
  });
});

Deno.test("it does not try more often than once a second in the end", async () => {
  const { failures } = await run(Array.from({ length: 500 }, () => OUT), 60_000);
  assertEquals(failures < 75, true, `${failures} times`);
});

Deno.test("a client that is gone before it is accepted is nothing", async () => {
  const { ConnectionAborted, ConnectionReset, NotConnected } = Deno.errors;
  for (const gone of [ConnectionAborted, ConnectionReset, NotConnected]) {
    const outcomes = [...Array.from({ length: 500 }, () => new gone("gone")), "client" as const];
    assertEquals(await run(outcomes, 2_000), {
      taken: 1,
      failures: 0,
      told: 0,
      exhausted: 0,
      left: 0,
      isClosed: false,
    });
  }
});

Deno.test("a socket that is broken is closed, so that another one can be opened", async () => {
  const { failures, isClosed } = await run(Array.from({ length: 100 }, () => BROKEN), 60_000);
  assertEquals([failures, isClosed], [20, true]);
});

Deno.test("where there is no room, a crowd is let in at a pace that leaves time for other work", async () => {
  const crowd = Array.from({ length: 2_000 }, () => "client" as const);
  assertEquals((await run(crowd, 100)).taken, 2_000);
  for (const admission of ["crowded", "refused"] as const) {
    const { taken } = await run(crowd, 1_000, admission);
    assertEquals(taken >= 8 && taken <= 810, true, `${taken} in a second`);
  }
});
