/**
 * One end of a long connection: a server that sends back what it hears, or a client that says a line every 100 ms and prints the
 * answers.
 *
 * Usage: `deno run --allow-net echo.ts serve|connect IP PORT`. The client ends with 0 when its standard input does, with 1 when
 * the connection does or an answer takes longer than 10 s.
 *
 * @module
 */
const [role, hostname = "", port = ""] = Deno.args;
const address = { hostname, port: Number(port) };
const encoder = new TextEncoder();

if (role === "serve") {
  for await (const connection of Deno.listen(address)) {
    // A client that is cut off is what some tests want.
    void connection.readable.pipeTo(connection.writable).then(undefined, () => connection.close());
  }
} else {
  const connection = await Deno.connect(address);
  const reader = connection.readable.getReader();
  const writer = connection.writable.getWriter();
  void new Response(Deno.stdin.readable).text().then(() => {
    connection.close();
    Deno.exit(0);
  });
  const lost = (): never => {
    Deno.stdout.writeSync(encoder.encode("lost\n"));
    return Deno.exit(1);
  };
  for (let i = 0;; i++) {
    const timer = setTimeout(lost, 10_000);
    try {
      await writer.write(encoder.encode(`${i}\n`));
      if ((await reader.read()).done) lost();
    } catch (error) {
      if (error instanceof Error) lost();
    }
    clearTimeout(timer);
    Deno.stdout.writeSync(encoder.encode(`${i}\n`));
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
